"""`adk`: sessions of Google's Agent Development Kit, or the list of a session's events.

Reads `Session.model_dump()`, in either spelling. An agent's name stands on its messages. Partial events repeat the whole one that
follows, and are only counted. Fields: https://google.github.io/adk-docs/sessions/session/.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers import google
from rrm.readers.base import SourceItem, conversation, record_of
from rrm.readers.chat import as_text
from rrm.readers.google import field
from rrm.readers.turns import Turns

NAME = "adk"
MARKS = ("events[].author|[].author", "events[].content.parts|[].content.parts|appName|app_name")


def sniff(value: Any) -> bool:
    """A session with events, or the list of them."""
    listed = value.get("events") if isinstance(value, dict) else value
    return isinstance(listed, list) and bool(listed) and all(map(_is_event, listed))


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("author"), str):
        return False
    return field(value, "invocationId") is not None or google.is_content(value.get("content"))


def parse(item: SourceItem) -> Trajectory:
    record = record_of(item, "events")
    turns, usage, troubles, partial = Turns(), Counter[str](), list[dict[str, Any]](), 0
    for i, event in enumerate(record["events"]):
        if not isinstance(event, dict):
            raise ValueError(f"events[{i}] must be an object, got {type(event).__name__}")
        if event.get("partial") is True:
            partial += 1
            continue
        author, content = as_text(event.get("author", "")), event.get("content")
        said_by_user = author == "user"
        role = "user" if said_by_user else "model"
        more: dict[str, Any] = {"id": event.get("id"), "timestamp": event.get("timestamp")}
        if not said_by_user:
            turns.close()
            counts = field(event, "usageMetadata")
            more |= {"name": author or None, "usage": counts, "branch": event.get("branch")}
            usage.update({k: v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {})
        google.add(turns, role, content, **more)
        if (code := field(event, "errorCode")) is not None:
            troubles.append({"code": code, "message": field(event, "errorMessage"), "author": author})
    state = record.get("state")
    extras = {"state": state, "usage": dict(usage), "trouble": troubles, "partial_events": partial}
    meta = {k: v for k, v in extras.items() if v}
    return conversation(item, NAME, record, turns.messages, ("id", "events", "state"), meta=meta)
