"""`llama_index`: LlamaIndex's chat messages (`blocks`), chat stores, memories, and workflow events.

Of events, the first agent's input begins the run, each `AgentOutput` and `ToolCallResult` follows. Fields:
https://docs.llamaindex.ai/en/stable/api_reference/llms/, https://docs.llamaindex.ai/en/stable/understanding/agent/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, conversation
from rrm.readers.chat import ROLES, as_text, is_chat, tool_call
from rrm.readers.outcomes import MISSING, get
from rrm.readers.turns import Turns, picture

NAME = "llama_index"
MARKS = (
    "messages[].role|[].role|store|chat_store.store",
    "messages[].blocks[].block_type|[].blocks[].block_type|chat_store.store",
)
OVER_FOLDER = False
PLACES = ("messages", "chat_history", "chat_store.store", "store")
EVENTS = ({"tool_kwargs", "tool_output"}, {"response", "current_agent_name"}, {"input", "current_agent_name"})
"""Keys of a workflow's events: a tool's result, an agent's output, an agent's input."""
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """Match a list of messages, an object or store with one, an event, or a list of those."""
    if isinstance(value, list):
        return _are_messages(value) or (bool(value) and all(map(_is_event, value)))
    return isinstance(value, dict) and (_is_event(value) or any(_are_messages(get(value, path)) for path in PLACES[:2]))


def _are_messages(value: Any) -> bool:
    return (
        is_chat(value) and all(isinstance(m.get("additional_kwargs"), dict) for m in value) and any(map(_marked, value))
    )


def _marked(message: Message) -> bool:
    blocks = message.get("blocks")
    if isinstance(blocks, list):
        return any(isinstance(b, dict) and "block_type" in b for b in blocks)
    return (
        "content" in message
        and "type" not in message
        and bool(message["additional_kwargs"].keys() & {"tool_calls", "tool_call_id"})
    )


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and any(keys <= value.keys() for keys in EVENTS)


def explode(value: Any) -> Iterator[tuple[Any, dict[str, Any]]] | None:
    """The conversations of a chat store, each with its key; None for others."""
    for path in PLACES[2:]:
        store = get(value, path) if isinstance(value, dict) else MISSING
        if isinstance(store, dict) and store and any(map(_are_messages, store.values())):
            return (({"id": key, "messages": messages}, {}) for key, messages in store.items())
    return None


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield conversations as they are, and a file's events as one item."""
    events: SourceItem | None = None
    for item in items:
        if isinstance(item.value, dict) and _is_event(item.value):
            events = events or SourceItem([], item.path, item.line, context={"lines": 0, "lines_of": "trace"})
            events.value.append(item.value)
            events.context["lines"] += 1
        else:
            yield item
    if events is not None:
        yield events


def parse(item: SourceItem) -> Trajectory:
    record, turns = item.value if isinstance(item.value, dict) else {"messages": item.value}, Turns()
    key = "chat_history" if "messages" not in record and "chat_history" in record else "messages"
    listed = record.get(key)
    if not isinstance(listed, list):
        raise ValueError("no list of `messages`")
    if listed and all(map(_is_event, listed)):
        for event in listed:
            _event(turns, event)
    else:
        for i, message in enumerate(listed):
            _message(turns, message, f"{key}[{i}]")
    meta = {k: item.context[k] for k in ("lines",) if k in item.context}
    return conversation(item, NAME, record, turns.messages, ("id", key), meta=meta)


def _event(turns: Turns, event: Message) -> None:
    name = event.get("current_agent_name")
    if isinstance(event.get("tool_output"), dict):
        output = event["tool_output"]
        content = output.get("content") or _content(output.get("blocks")) or output.get("raw_output")
        turns.came_back(content, event.get("tool_id"), event.get("tool_name"), failed=output.get("is_error") is True)
    elif "response" in event:
        turns.close()
        response = event["response"] if isinstance(event["response"], dict) else {"content": event["response"]}
        calls = event.get("tool_calls")
        _message(turns, {"role": "assistant", **response}, "response", name, calls if isinstance(calls, list) else [])
    elif not turns.messages and isinstance(event.get("input"), list):
        for i, message in enumerate(event["input"]):
            _message(turns, message, f"input[{i}]")


def _message(turns: Turns, raw: Any, where: str, name: Any = None, calls: list[Any] | None = None) -> None:
    """One chat message; a call stands in a block, in `additional_kwargs`, or in the event's own list."""
    if not isinstance(raw, dict) or not isinstance(raw.get("role"), str):
        raise ValueError(f"{where} must be an object with a role")
    raw_role: str = raw["role"]
    role = ROLES.get(raw_role.lower(), raw_role)
    kwargs = raw.get("additional_kwargs")
    extra = dict(kwargs) if isinstance(kwargs, dict) else {}
    blocks = [b for b in raw["blocks"] if isinstance(b, dict)] if isinstance(raw.get("blocks"), list) else []
    content = _content(blocks) if blocks else raw.get("content")
    if role == "tool":
        number = extra.pop("tool_call_id", None)
        turns.came_back(content, number, extra.pop("name", None), failed=extra.pop("is_error", False) is True)
        return
    if role != "assistant":
        turns.add_text(role, content, **({"additional_kwargs": extra} if extra else {}))
        return
    turns.close()
    for block in blocks:
        if block.get("block_type") == "thinking" and block.get("content"):
            turns.thought(as_text(block["content"]))
    listed = extra.pop("tool_calls", None)
    turns.agent(name=name, additional_kwargs=extra or None)
    turns.said(content)
    tool_calls = [tool_call(c) for c in listed] if isinstance(listed, list) else []
    for entry in [*[b for b in blocks if b.get("block_type") == "tool_call"], *(calls or [])]:
        if isinstance(entry, dict):
            number = entry.get("tool_call_id", entry.get("tool_id"))
            tool_calls.append(
                tool_call({"name": entry.get("tool_name", ""), "arguments": entry.get("tool_kwargs"), "id": number})
            )
    keys = set[str]()
    for call in tool_calls:
        key = call.get("id") or as_text([call["name"], call["arguments"]])
        if key not in keys:
            turns.called(call["name"], call["arguments"], call.get("id"))
        keys.add(key)


def _content(blocks: Any) -> Any:
    """Return the parts of a message's blocks that are content."""
    listed = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    parts = [_part(b) for b in listed if b.get("block_type") not in ("thinking", "tool_call")]
    return parts or None


def _part(block: Message) -> Message:
    block_type = as_text(block.get("block_type", "part"))
    if block_type == "text":
        return {"type": "text", "text": as_text(block.get("text", ""))}
    where = block.get("url") or block.get("image")
    if block_type == "image" and isinstance(where, str):
        return picture(where, block.get("image_mimetype"))
    return {"type": block_type, **{k: v for k, v in block.items() if v is not None}}
