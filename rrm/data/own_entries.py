"""Entries that this package writes into other frameworks' records."""

from __future__ import annotations

from typing import Any

OURS = "agent_rrm"  # name of our extras, scorers and evaluations; criteria are `agent_rrm.CRITERION`


def is_ours(name: str) -> bool:
    return name == OURS or name.startswith(f"{OURS}.")


def under_our_name(record: dict[str, Any]) -> dict[str, Any]:
    extras = record.get(OURS)
    return extras if isinstance(extras, dict) else {}
