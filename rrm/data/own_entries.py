"""What this package has put into another framework's records: readers know it by its name and take no score of a judge for an outcome."""

from __future__ import annotations

from typing import Any

OURS = "agent_rrm"
"""Name of our extras, scorers and evaluations; of a criterion's `agent_rrm.CRITERION`."""


def is_ours(name: str) -> bool:
    """Whether a scorer's or an evaluation's name is one that the writers give."""
    return name == OURS or name.startswith(f"{OURS}.")


def under_our_name(place: dict[str, Any]) -> dict[str, Any]:
    """What stands there under our name, {} for nothing or something else."""
    held = place.get(OURS)
    return held if isinstance(held, dict) else {}


def without_ours(value: Any) -> Any:
    """A JSON value without what stands under a name of ours, at any depth; a repeated name has `#2` and so on behind it."""
    if isinstance(value, list):
        return [without_ours(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {k: without_ours(v) for k, v in value.items() if not is_ours(k.partition("#")[0])}
