"""`openhands_events`: OpenHands' conversations on disk, one event per file or per line.

A file of several events is a run of its own; files of one event make one run with the others of their folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import openhands
from rrm.readers.base import SourceItem

NAME = "openhands_events"
MARKS = ("source", "action|observation|kind", "args|content|llm_message|tool_call_id")
OVER_FOLDER = True


def sniff(value: Any) -> bool:
    """One event."""
    return openhands.is_event(value)


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield a run per file of events, and one of those that have a file each."""
    files: dict[str, list[SourceItem]] = {}
    for item in items:
        if openhands.is_event(item.value):
            files.setdefault(item.path, []).append(item)
        else:
            yield ReadError(item.path, item.line, f"no event of OpenHands (format {NAME})")
    single = [group[0] for group in files.values() if len(group) == 1]
    if single and all(isinstance(i.value.get("id"), int) for i in single):  # 10.json stands before 2.json
        single.sort(key=lambda i: i.value["id"])
    for group in [*(h for h in files.values() if len(h) > 1), *([single] if single else [])]:
        context: dict[str, Any] = {"lines": len(group)}
        if group is single and len(group) > 1:
            folder = PurePath(group[0].path).parent
            context["id"] = (folder.parent if folder.name == "events" else folder).name or None
        yield replace(group[0], value=[i.value for i in group], context=context)


def parse(item: SourceItem) -> Trajectory:
    if openhands.is_event(item.value):
        item = replace(item, value=[item.value])
    try:
        run = openhands.parse(item)
    except ValueError as error:
        raise ValueError(f"{item.context.get('lines', 1)} lines without a run: {error}") from error
    if run.source is not None:
        run.source.format = NAME
    return run
