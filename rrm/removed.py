"""Config keys and commands that are gone, since when, and their replacement; a table each package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Removed(NamedTuple):
    instead: str  # a sentence without its full stop
    still: Any = None
    """Value, or null, that a file may still hold (old runs recorded every key); of a section: its keys'."""
    since: str = "0.2.0"

    def changes_nothing(self, value: Any) -> bool:
        """Tell whether a file may still hold the value."""
        if isinstance(value, dict) and isinstance(self.still, dict):
            return self.still.items() <= value.items()
        return value is None or value == self.still


_REWARD = "the parts of the reward weigh agreement 1, format 0.3, anchor 0.3, leak 0.5: `rrm.train.rl.PART_WEIGHTS`"
# of `rrm train`
REMOVED: dict[str, Removed] = {
    "calibration.blend": Removed("judges have no lexical model any more that their scores were blended with", False),
    "sft.completion_only_loss": Removed("replies alone are learned, never their prompts", True),
    "rl.weight_agreement": Removed(_REWARD, 1.0),
    "rl.weight_format": Removed(_REWARD, 0.3),
    "rl.weight_anchor": Removed(_REWARD, 0.3),
    "rl.weight_leak": Removed(_REWARD, 0.5),
}
# of `rrm`
COMMANDS = {"push": "examples/push_dataset.py puts transcripts, labels and judgements on the hub; copy and change it"}


def without_removed(tree: dict[str, Any], removed: Mapping[str, Removed]) -> None:
    """Delete removed keys from a tree, in place, where their value changes nothing; others stay."""
    for key, gone in removed.items():
        *above, name = key.split(".")
        section: Any = tree
        for parent in above:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict) and name in section and gone.changes_nothing(section[name]):
            del section[name]
