"""`pydantic_ai`: Pydantic AI's message histories (`all_messages_json()`).

Fields: https://ai.pydantic.dev/message-history/.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation
from rrm.readers.chat import as_text
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
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    if (key := _place(record)) is None:
        raise ValueError(f"no list of requests and responses at {', '.join(PLACES)}")
    turns, instructions = Turns(), None
    for i, message in enumerate(record[key]):
        if not all(isinstance(content_part, dict) for content_part in message["parts"]):
            raise ValueError(f"{key}[{i}].parts must be objects")
        if message.get("instructions") and message["instructions"] != instructions:
            instructions = message["instructions"]
            turns.add_text("system", instructions)
        if message["kind"] == "request":
            for content_part in message["parts"]:
                _asked(turns, content_part)
        else:
            _answered(turns, message)
    return conversation(item, NAME, record, turns.messages, ("id", key), ids=("id", "run_id"))


def _asked(turns: Turns, content_part: Message) -> None:
    """Add a part of a request: a prompt, a tool's result, or why the model must try again."""
    part_kind, content, time = content_part.get("part_kind"), content_part.get("content"), content_part.get("timestamp")
    when = {} if time is None else {"timestamp": time}
    if part_kind == "tool-return" or (part_kind == "retry-prompt" and content_part.get("tool_name")):
        failed = part_kind == "retry-prompt" or content_part.get("outcome") not in (None, "success")
        turns.came_back(content, content_part.get("tool_call_id"), content_part.get("tool_name"), failed=failed, **when)
    else:
        turns.add_text("system" if part_kind == "system-prompt" else "user", _content(content), **when)


def _answered(turns: Turns, message: Message) -> None:
    turns.close()
    names = (
        ("id", "provider_response_id"),
        ("usage", "usage"),
        ("model", "model_name"),
        ("finish_reason", "finish_reason"),
    )
    more = {name: message.get(key) for name, key in (*names, ("timestamp", "timestamp"))}
    for content_part in message["parts"]:
        part_kind, content = as_text(content_part.get("part_kind")), content_part.get("content")
        if part_kind == "thinking":
            turns.thought(as_text(content or ""), **more)
        elif part_kind.endswith("tool-call"):
            turns.agent(**more)
            turns.called(content_part.get("tool_name", ""), content_part.get("args"), content_part.get("tool_call_id"))
        elif part_kind.endswith("tool-return"):
            turns.came_back(content, content_part.get("tool_call_id"), content_part.get("tool_name"))
        else:
            turns.said(_content(content), **more)


def _content(content: Any) -> Any:
    """A text, or texts, pictures and other media."""
    if isinstance(content, dict) and "kind" in content:
        content = [content]
    return [_part(p) for p in content] if isinstance(content, list) else content


def _part(content_part: Any) -> Message:
    if not isinstance(content_part, dict):
        return {"type": "text", "text": as_text(content_part)}
    media_kind, media = as_text(content_part.get("kind", "")), as_text(content_part.get("media_type") or "image/png")
    where = content_part.get("url", content_part.get("data"))
    if isinstance(where, str) and (
        media_kind == "image-url" or (media_kind == "binary" and media.startswith("image/"))
    ):
        return picture(where, media)
    return {"type": media_kind or "part", **content_part}
