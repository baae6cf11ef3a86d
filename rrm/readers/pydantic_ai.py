"""`pydantic_ai`: Pydantic AI's message histories (`result.all_messages_json()`): requests and responses of parts.

Fields: https://ai.pydantic.dev/message-history/.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, first_user_text, make, own_id, text_field, without
from rrm.readers.chat import as_text
from rrm.readers.outcomes import find_outcome
from rrm.readers.turns import Turns, picture

NAME = "pydantic_ai"
MARKS = ("messages[].kind|[].kind", "messages[].parts[].part_kind|[].parts[].part_kind")
PLACES = ("messages", "all_messages", "message_history", "new_messages")
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A list of requests and responses, or an object that holds one under a usual name."""
    return _place(value) is not None if isinstance(value, dict) else _are_messages(value)


def _place(record: Message) -> str | None:
    return next((key for key in PLACES if _are_messages(record.get(key))), None)


def _are_messages(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(m, dict) and m.get("kind") in ("request", "response") and isinstance(m.get("parts"), list)
        for m in value
    )


def parse(item: SourceItem) -> Trajectory:
    """One history."""
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    if (key := _place(record)) is None:
        raise ValueError(f"no list of requests and responses at {', '.join(PLACES)}")
    turns, instructions = Turns(), None
    for i, message in enumerate(record[key]):
        if not all(isinstance(part, dict) for part in message["parts"]):
            raise ValueError(f"{key}[{i}].parts must be objects")
        if message.get("instructions") and message["instructions"] != instructions:
            instructions = message["instructions"]
            turns.add_text("system", instructions)
        if message["kind"] == "request":
            for part in message["parts"]:
                _asked(turns, part)
        else:
            _answered(turns, message)
    return make(
        item,
        NAME,
        turns.messages,
        meta=without(record, "id", key),
        id=own_id(record, "id", "run_id"),
        task=text_field(record, "question") or first_user_text(turns.messages),
        outcome=find_outcome(record),
    )


def _asked(turns: Turns, part: Message) -> None:
    """One part of a request: a prompt, what a tool gave, or why the model must try again."""
    kind, content, time = part.get("part_kind"), part.get("content"), part.get("timestamp")
    when = {} if time is None else {"timestamp": time}
    if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
        failed = kind == "retry-prompt" or part.get("outcome") not in (None, "success")
        turns.came_back(content, part.get("tool_call_id"), part.get("tool_name"), failed=failed, **when)
    else:
        turns.add_text("system" if kind == "system-prompt" else "user", _content(content), **when)


def _answered(turns: Turns, message: Message) -> None:
    """One response."""
    turns.close()
    names = (
        ("id", "provider_response_id"),
        ("usage", "usage"),
        ("model", "model_name"),
        ("finish_reason", "finish_reason"),
    )
    more = {name: message.get(key) for name, key in (*names, ("timestamp", "timestamp"))}
    for part in message["parts"]:
        kind, content = as_text(part.get("part_kind")), part.get("content")
        if kind == "thinking":
            turns.thought(as_text(content or ""), **more)
        elif kind.endswith("tool-call"):
            turns.agent(**more)
            turns.called(part.get("tool_name", ""), part.get("args"), part.get("tool_call_id"))
        elif kind.endswith("tool-return"):
            turns.came_back(content, part.get("tool_call_id"), part.get("tool_name"))
        else:
            turns.said(_content(content), **more)


def _content(content: Any) -> Any:
    """A text, or texts, pictures and other media."""
    if isinstance(content, dict) and "kind" in content:
        content = [content]
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Any) -> Message:
    if not isinstance(part, dict):
        return {"type": "text", "text": as_text(part)}
    kind, media = as_text(part.get("kind", "")), as_text(part.get("media_type") or "image/png")
    where = part.get("url", part.get("data"))
    if isinstance(where, str) and (kind == "image-url" or (kind == "binary" and media.startswith("image/"))):
        return picture(where, media)
    return {"type": kind or "part", **part}
