"""`langchain`: LangChain's messages as people keep them, and LangGraph's states that hold them.

Three forms of one message: `dumps` (`{"lc": 1, "type": "constructor", "id": [..., "AIMessage"], "kwargs": {...}}`), `messages_to_dict`
(`{"type": "ai", "data": {...}}`) and `model_dump` (`{"type": "ai", "content": ...}`). They are read as data: no class is looked up or made.
Forms: https://reference.langchain.com/python/langchain-core/messages.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation, own_id
from rrm.readers.chat import as_text, chat_message, text_of, tool_call, tool_list
from rrm.readers.outcomes import get

NAME = "langchain"
MARKS = (
    "messages[].type|values.messages[].type|channel_values.messages[].type|[].type|lc",
    "messages[].data|messages[].kwargs|[].data|[].kwargs|messages[].type=ai|values.messages[].type=ai|[].type=ai",
)
ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
    "chat": "",
    "remove": "",
}
"""Type of a message -> its role in a chat ('': the message says it itself, or has none)."""
PLACES = (
    "messages",
    "values.messages",
    "channel_values.messages",
    "checkpoint.channel_values.messages",
    "kwargs.messages",
    "output.messages",
    "outputs.messages",
    "chat_history",
)
"""Paths of the messages in a state, a checkpoint, a prompt or a result."""
THOUGHTS = ("thinking", "reasoning", "redacted_thinking", "reasoning_content")
CALLS = ("tool_use", "tool_call", "function_call", "server_tool_call", "server_tool_use", "invalid_tool_call")
OWN_TYPES = (("type", "tool_call"), ("type", "invalid_tool_call"))
EMPTY: tuple[Any, ...] = (None, "", [], {})
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A list of messages, or an object that holds one under a usual name."""
    return _place(value) is not None if isinstance(value, dict) else is_messages(value)


def is_messages(value: Any) -> bool:
    """Match a list of LangChain messages; chat messages with a role may stand among them."""
    if not isinstance(value, list) or not value:
        return False
    ours = [_data(m) is not None for m in value]
    return any(ours) and all(o or (isinstance(m, dict) and "role" in m) for o, m in zip(ours, value, strict=True))


def _place(record: dict[str, Any]) -> str | None:
    return next((path for path in PLACES if is_messages(get(record, path))), None)


def _without(record: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return the record without the field at a path; emptied objects on the way are dropped."""
    name, *rest = path
    left = {name: remaining} if rest and (remaining := _without(record[name], rest)) else {}
    return {k: v for k, v in record.items() if k != name} | left


def _data(raw: Any) -> tuple[str, Message] | None:
    """(type, fields) of a message in any of the three forms; None for anything else."""
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        return None
    if raw["type"] == "constructor":
        name = raw["id"][-1] if isinstance(raw.get("id"), list) and raw["id"] else None
        fields = raw.get("kwargs")
        message_type = _type(name) if isinstance(name, str) and "Message" in name else None
    else:
        fields = raw["data"] if isinstance(raw.get("data"), dict) else {k: v for k, v in raw.items() if k != "role"}
        message_type = _type(raw["type"])
        if "role" in raw and message_type != "chat":
            return None  # a chat message with a type beside its role
    if message_type is None or not isinstance(fields, dict) or "content" not in fields:
        return None
    return message_type, {**fields, **({"role": raw["role"]} if "role" in raw else {})}


def _type(name: str) -> str | None:
    """Return `ai` for `ai`, `AIMessage`, `AIMessageChunk`; None for a name that is no message's."""
    word = name.removesuffix("Chunk").removesuffix("Message").lower()
    return word if word in ROLES else None


def parse(item: SourceItem) -> Trajectory:
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    if (path := _place(record)) is None:
        raise ValueError(f"no list of LangChain's messages at {', '.join(PLACES)}")
    messages, removed = list[Message](), list[Any]()
    for i, entry in enumerate(get(record, path)):
        if (data := _data(entry)) is not None and data[0] == "remove":
            removed.append(entry)
        else:
            messages.append(message_of(entry, f"messages[{i}]"))
    head, *inside = path.split(".")
    beside = _without(record[head], inside) if inside else {}
    tools = tool_list(record.get("tools"))
    question_id = own_id(record, "question_id")
    used = [head, *["tools"] * (tools is not None), *["question_id"] * (question_id is not None)]
    used += ["id"] * (own_id(record) is not None)  # of a `constructor` the id is its class
    meta = ({head: beside} if beside else {}) | ({"removed_messages": removed} if removed else {})
    ids = ("id", "thread_id", "run_id")
    return conversation(item, NAME, record, messages, used, ids=ids, meta=meta, question_id=question_id, tools=tools)


def message_of(raw: Any, where: str = "message") -> Message:
    """Bring a LangChain message (or one with a role) to the OpenAI shape; other fields stay.

    Raises:
        ValueError: neither, or an unknown role.
    """
    data = _data(raw)
    if data is None:
        return chat_message(raw, where)
    message_type, fields = data
    role = ROLES[message_type] or as_text(fields.get("role", ""))
    content, calls, thoughts = _content(fields.get("content"))
    kwargs = fields.get("additional_kwargs")
    more = {k: v for k, v in kwargs.items() if v not in EMPTY} if isinstance(kwargs, dict) else {}
    calls = _calls(fields, more, calls)
    thought = more.pop("reasoning_content", None)
    message = chat_message({"role": role, "content": content, "refusal": more.pop("refusal", None)}, where)
    if thoughts or thought is not None:
        message["reasoning_content"] = "\n".join(thoughts) or as_text(thought)
    if calls:
        message["tool_calls"] = calls
    for key in ("name", "tool_call_id"):
        if fields.get(key) is not None:
            message[key] = as_text(fields[key])
    if fields.get("status") == "error":
        message["is_error"] = True
    for key in ("id", "artifact", "response_metadata", "usage_metadata"):
        if fields.get(key) not in EMPTY:
            message[key] = fields[key]
    return message | ({"additional_kwargs": more} if more else {})


def _calls(fields: Message, more: Message, blocks: list[Message]) -> list[Message]:
    """Return a message's calls, each once, from `tool_calls`, content blocks or `additional_kwargs`."""
    listed = [fields.get(key) for key in ("tool_calls", "invalid_tool_calls")]
    calls = [tool_call(c) for group in listed if isinstance(group, list) for c in group if c is not None]
    calls = [{k: v for k, v in c.items() if (k, v) not in OWN_TYPES} for c in calls]
    raw = more.pop("tool_calls", None) or more.pop("function_call", None)
    if not calls and raw is not None:
        calls = [tool_call(c) for c in (raw if isinstance(raw, list) else [raw]) if c is not None]
    ids = {c.get("id") for c in calls}
    names = {c["name"] for c in calls}
    return calls + [b for b in blocks if b.get("id") not in ids and not ("id" not in b and b["name"] in names)]


def _content(raw: Any) -> tuple[Any, list[Message], list[str]]:
    """(text or parts, calls, thoughts) of a message's content."""
    if not isinstance(raw, list):
        return raw, [], []
    parts, calls, thoughts = list[Any](), list[Message](), list[str]()
    for block in raw:
        block_type = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict):
            parts.append({"type": "text", "text": as_text(block)})
        elif block_type in THOUGHTS:
            thoughts.append(_thought(block))
        elif block_type in CALLS:
            number = {"id": block["call_id"]} if "call_id" in block else {}
            fields = {k: block[k] for k in ("id", "name", "args", "input", "arguments", "error") if k in block}
            calls.append(tool_call({**fields, **number}))
        elif block_type == "input_json_delta":
            continue  # a piece of a streamed call, which stands whole in `tool_calls`
        else:
            parts.append(_part(block))
    if all(isinstance(p.get("text"), str) and p.keys() <= {"type", "text", "index", "id"} for p in parts):
        return "\n".join(p["text"] for p in parts), calls, thoughts
    return parts, calls, thoughts


def _thought(block: Message) -> str:
    for key in ("thinking", "reasoning", "reasoning_content", "text"):
        if isinstance(block.get(key), str):
            return block[key]
    if isinstance(inner := block.get("reasoning_content"), dict) and isinstance(inner.get("text"), str):
        return inner["text"]
    return text_of(block.get("summary")) or "[redacted thinking]"


def _part(block: Message) -> Message:
    """Images as the chat API has them; other blocks as they are."""
    if block.get("type") != "image":
        return block
    source = block["source"] if isinstance(block.get("source"), dict) else block
    data, url = source.get("base64", source.get("data")), source.get("url")
    if isinstance(data, str):
        url = f"data:{as_text(source.get('mime_type', source.get('media_type', 'image/png')))};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else block
