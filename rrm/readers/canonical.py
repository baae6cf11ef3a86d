"""`canonical`: what `Trajectory.to_json` writes. Taken as it is; only a missing source is filled in.

The rows of a data set (`examples/push_dataset.py`) hold the same with messages, tools and meta as JSON texts in columns.
"""

from __future__ import annotations

from typing import Any

from rrm.data.jsonl import DECODER
from rrm.data.own_entries import OURS, under_our_name
from rrm.data.trajectory import SCHEMA_VERSION, Source, Trajectory
from rrm.readers.base import SourceItem

NAME = "canonical"
MARKS = ("schema_version", "messages[].role")


def sniff(value: Any) -> bool:
    """An object with our version number, messages and an id."""
    return isinstance(value, dict) and "schema_version" in value and "messages" in value and "id" in value


def parse(item: SourceItem) -> Trajectory:
    """The trajectory itself."""
    if not isinstance(item.value, dict):
        raise ValueError(f"a canonical trajectory is an object, got {type(item.value).__name__}")
    version = item.value.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ValueError(f"schema_version {version} is newer than this package's {SCHEMA_VERSION}: upgrade agent-rrm")
    in_columns = isinstance(item.value.get("messages"), str)
    trajectory = Trajectory.model_validate(_unpacked(item.value) if in_columns else item.value)
    if trajectory.source is None:
        field = None if trajectory.outcome is None else "outcome"
        trajectory.source = Source(file=item.path, line=item.line, format=NAME, outcome_field=field)
    return trajectory


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """A row of columns as the trajectory that it was; labels and judgement go to meta."""
    held: dict[str, Any] = {}
    for name in ("messages", "tools", "meta", "annotations", "feedback"):
        if row.get(name) is not None:
            try:
                held[name] = DECODER.decode(row[name])
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"the column `{name}` is no JSON text: {str(error)[:100]}") from error
    meta = held.get("meta", {})
    if not isinstance(meta, dict):
        raise ValueError(f"the column `meta` must hold an object, got {type(meta).__name__}")
    _add(meta, held)
    source = {"file": row.get("file"), "line": row.get("line"), "format": row.get("format")}
    kept = {name: row[name] for name in ("schema_version", "id", "question_id", "outcome") if row.get(name) is not None}
    return {
        **kept,
        "task": row.get("task") or "",
        "messages": held["messages"],
        "tools": held.get("tools"),
        "meta": meta,
        "source": source if isinstance(source["file"], str) else None,
    }


def _add(meta: dict[str, Any], held: dict[str, Any]) -> None:
    """Put labels and judgement into meta. What the source has under these names stays: labels go before its other entries, and where
    there is no room, under our name."""
    ours = under_our_name(meta)
    if "annotations" in held:
        own = meta.get("annotations", [])
        if not isinstance(held["annotations"], list):
            raise ValueError("the column `annotations` must hold a list")
        if isinstance(own, list):
            meta["annotations"] = held["annotations"] + own
        else:
            ours = ours | {"annotations": held["annotations"]}
    if "feedback" in held:
        if "feedback" in meta:
            ours = ours | {"feedback": held["feedback"]}
        else:
            meta["feedback"] = held["feedback"]
    if ours:
        meta[OURS] = ours
