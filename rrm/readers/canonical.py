"""`canonical`: what `Trajectory.to_json` writes. Taken as it is; only a missing source is filled in."""

from __future__ import annotations

from typing import Any

from rrm.readers.base import Item
from rrm.trajectory import SCHEMA_VERSION, Source, Trajectory

NAME = "canonical"
MARKS = ("schema_version", "messages[].role")


def sniff(value: Any) -> bool:
    """An object with our version number, messages and an id."""
    return isinstance(value, dict) and "schema_version" in value and "messages" in value and "id" in value


def parse(item: Item) -> Trajectory:
    """The trajectory itself."""
    if not isinstance(item.value, dict):
        raise ValueError(f"a canonical trajectory is an object, got {type(item.value).__name__}")
    version = item.value.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ValueError(f"schema_version {version} is newer than this package's {SCHEMA_VERSION}: upgrade agent-rrm")
    trajectory = Trajectory.model_validate(item.value)
    if trajectory.source is None:
        field = None if trajectory.outcome is None else "outcome"
        trajectory.source = Source(file=item.path, line=item.line, format=NAME, outcome_field=field)
    return trajectory
