"""Config keys and commands that are gone: since when, and what to do instead. One table a package, which its config names (`Section.removed`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Removed(NamedTuple):
    """A key, or a section, that configs had."""

    instead: str
    """What replaces it, as a sentence without its full stop."""
    still: Any = None
    """The value by which nothing changes, null beside it; of a section those of its keys that say so. Runs recorded every key, so
    their configs hold it."""
    since: str = "0.2.0"

    def changes_nothing(self, value: Any) -> bool:
        """Whether a file that holds the value is one of this version's but for the key."""
        if isinstance(value, dict) and isinstance(self.still, dict):
            return self.still.items() <= value.items()
        return value is None or value == self.still


_REWARD = "the parts of the reward weigh agreement 1, format 0.3, anchor 0.3, leak 0.5: `rrm.train.rl.PART_WEIGHTS`"
REMOVED: dict[str, Removed] = {
    "calibration.blend": Removed("judges have no lexical model any more that their scores were blended with", False),
    "sft.completion_only_loss": Removed("replies alone are learned, never their prompts", True),
    "rl.weight_agreement": Removed(_REWARD, 1.0),
    "rl.weight_format": Removed(_REWARD, 0.3),
    "rl.weight_anchor": Removed(_REWARD, 0.3),
    "rl.weight_leak": Removed(_REWARD, 0.5),
}
"""Of `rrm train`."""
COMMANDS = {"push": "examples/push_dataset.py puts transcripts, labels and judgements on the hub; copy and change it"}
"""Of `rrm`."""


def without_removed(tree: dict[str, Any], removed: Mapping[str, Removed]) -> None:
    """Take removed keys out of a file's tree, in place, where their value changes nothing; the others stay, to be refused."""
    for key, gone in removed.items():
        *above, name = key.split(".")
        section: Any = tree
        for part in above:
            section = section.get(part) if isinstance(section, dict) else None
        if isinstance(section, dict) and name in section and gone.changes_nothing(section[name]):
            del section[name]
