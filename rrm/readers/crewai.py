"""`crewai`: output of a crew's `kickoff` (`CrewOutput`, `tasks_output`), and `output_log_file` JSON.

A kick-off is one run: each task is asked, then done by its agent, whose name stands on its messages. Where a task's output lacks its
messages, only its result is known. Fields: https://docs.crewai.com/concepts/crews, https://docs.crewai.com/concepts/tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, conversation, make, text_field
from rrm.readers.chat import as_text, is_chat
from rrm.readers.messages import chat_messages
from rrm.readers.turns import Turns

NAME = "crewai"
MARKS = ("tasks_output[].description|task_name", "tasks_output[].agent|agent", "tasks_output[].raw|status")
OVER_FOLDER = False
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A crew's output, one task's, a line of a crew's log, or a list of those lines."""
    if isinstance(value, list):
        return bool(value) and all(_is_entry(v) for v in value)
    if not isinstance(value, dict):
        return False
    listed, is_task = value.get("tasks_output"), value.keys() >= {"description", "agent", "raw", "expected_output"}
    is_crew = isinstance(listed, list) and all(isinstance(t, dict) and "description" in t for t in listed)
    return is_crew or is_task or _is_entry(value)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and all(k in value for k in ("timestamp", "task_name", "task", "agent", "status"))


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield outputs as they are; split a log into kick-offs where a task starts a second time."""
    logs, started = list[SourceItem](), set[str]()
    for item in items:
        entries = item.value if isinstance(item.value, list) else [item.value]
        if not entries or not all(map(_is_entry, entries)):
            yield item
            continue
        for entry in entries:
            name = as_text(entry["task_name"] or entry["task"])
            again = entry["status"] == "started" and name in started
            if not logs or again:
                logs.append(SourceItem([], item.path, item.line, context={"lines": 0}))
                started.clear()
            if entry["status"] == "started":
                started.add(name)
            logs[-1].value.append(entry)
            logs[-1].context["lines"] += 1
    yield from logs


def parse(item: SourceItem) -> Trajectory:
    value, turns = item.value, Turns()
    if isinstance(value, list):
        return _logged(item, value)
    if not isinstance(value, dict):
        raise ValueError(f"a crew's output is an object, got {type(value).__name__}")
    tasks = value.get("tasks_output") if isinstance(value.get("tasks_output"), list) else [value]
    only = 0
    for i, task in enumerate(tasks or []):
        if not isinstance(task, dict):
            raise ValueError(f"tasks_output[{i}] must be an object, got {type(task).__name__}")
        only += not _task(turns, task, f"tasks_output[{i}].messages")
    used = (
        ["tasks_output", "id"]
        if "tasks_output" in value
        else ["description", "expected_output", "messages", "raw", "agent"]
    )
    meta = {"tasks_without_messages": only} if only else {}
    task = text_field(value, "question") or "\n".join(as_text(t.get("description", "")) for t in tasks or [])
    return conversation(item, NAME, value, turns.messages, used, meta=meta, task=task)


def _task(turns: Turns, task: Message, where: str) -> bool:
    """Add one task and its work; return whether its messages were there."""
    listed, name, raw = task.get("messages"), as_text(task.get("agent") or ""), task.get("raw")
    has_messages = is_chat(listed)
    if has_messages:
        turns.close()
        for message in chat_messages(listed, where):
            turns.messages.append(message | ({"name": name} if name and message["role"] == "assistant" else {}))
    else:
        expected = task.get("expected_output")
        turns.add_text("user", "\n".join(as_text(t) for t in (task.get("description"), expected) if t))
    last = turns.messages[-1] if turns.messages else {}
    if raw and not (last.get("role") == "assistant" and as_text(raw).strip() in as_text(last.get("content") or "")):
        turns.close()
        turns.said(as_text(raw), name=name or None)
    turns.close()
    return has_messages


def _logged(item: SourceItem, entries: list[Any]) -> Trajectory:
    """Read a log: a task is asked where it starts, and its output said where it ends."""
    turns, tasks, statuses = Turns(), list[str](), list[str]()
    lines = item.context.get("lines", 1)
    for entry in entries:
        if not _is_entry(entry):
            raise ValueError("an entry of the log has no task, agent or status")
        task, output = as_text(entry["task"]), entry.get("output")
        if task not in tasks:
            tasks.append(task)
            turns.add_text("user", task, timestamp=entry["timestamp"])
        if output:
            turns.said(as_text(output), name=as_text(entry["agent"]), timestamp=entry["timestamp"])
            turns.close()
        statuses.append(f"{as_text(entry['task_name'])}: {as_text(entry['status'])}")
    return make(item, NAME, turns.messages, meta={"statuses": statuses, "lines": lines}, task="\n".join(tasks))
