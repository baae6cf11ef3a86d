"""`openhands_events`: OpenHands' conversations as they lie on disk, a file an event; or a line an event.

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
    """A run for each file of events, and one of those that have a file each."""
    files: dict[str, list[SourceItem]] = {}
    for item in items:
        if openhands.is_event(item.value):
            files.setdefault(item.path, []).append(item)
        else:
            yield ReadError(item.path, item.line, f"no event of OpenHands (format {NAME})")
    single = [held[0] for held in files.values() if len(held) == 1]
    if single and all(isinstance(i.value.get("id"), int) for i in single):  # 10.json stands before 2.json
        single.sort(key=lambda i: i.value["id"])
    for held in [*(h for h in files.values() if len(h) > 1), *([single] if single else [])]:
        context: dict[str, Any] = {"lines": len(held)}
        if held is single and len(held) > 1:
            folder = PurePath(held[0].path).parent
            context["id"] = (folder.parent if folder.name == "events" else folder).name or None
        yield replace(held[0], value=[i.value for i in held], context=context)


def parse(item: SourceItem) -> Trajectory:
    """One run, from the list of its events."""
    if openhands.is_event(item.value):
        item = replace(item, value=[item.value])
    try:
        run = openhands.parse(item)
    except ValueError as error:
        raise ValueError(f"{item.context.get('lines', 1)} lines without a run: {error}") from error
    if run.source is not None:
        run.source.format = NAME
    return run
