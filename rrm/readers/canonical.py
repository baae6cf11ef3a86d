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
    """Return a row of columns as a trajectory; labels and judgement go to meta."""
    columns: dict[str, Any] = {}
    for name in ("messages", "tools", "meta", "annotations", "feedback"):
        if row.get(name) is not None:
            try:
                columns[name] = DECODER.decode(row[name])
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"the column `{name}` is no JSON text: {str(error)[:100]}") from error
    meta = columns.get("meta", {})
    if not isinstance(meta, dict):
        raise ValueError(f"the column `meta` must hold an object, got {type(meta).__name__}")
    _add(meta, columns)
    source = {"file": row.get("file"), "line": row.get("line"), "format": row.get("format")}
    own = {name: row[name] for name in ("schema_version", "id", "question_id", "outcome") if row.get(name) is not None}
    return {
        **own,
        "task": row.get("task") or "",
        "messages": columns["messages"],
        "tools": columns.get("tools"),
        "meta": meta,
        "source": source if isinstance(source["file"], str) else None,
    }


def _add(meta: dict[str, Any], columns: dict[str, Any]) -> None:
    """Put labels and judgement into meta, before its own labels; under our name where there is no room."""
    ours = under_our_name(meta)
    if "annotations" in columns:
        own = meta.get("annotations", [])
        if not isinstance(columns["annotations"], list):
            raise ValueError("the column `annotations` must hold a list")
        if isinstance(own, list):
            meta["annotations"] = columns["annotations"] + own
        else:
            ours = ours | {"annotations": columns["annotations"]}
    if "feedback" in columns:
        if "feedback" in meta:
            ours = ours | {"feedback": columns["feedback"]}
        else:
            meta["feedback"] = columns["feedback"]
    if ours:
        meta[OURS] = ours
