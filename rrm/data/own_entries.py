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
