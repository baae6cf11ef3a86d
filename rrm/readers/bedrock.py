"""`bedrock`: Amazon Bedrock's Converse API: messages whose content is blocks without a type (`text`, `toolUse`, `toolResult`, …).

A request's body, with the response's `output` and `usage` where they stand in one record, or the list of messages alone. Logs of whole
calls are read by `calls`. Fields: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, first_user_text, make, own_id, text_field, without
from rrm.readers.chat import as_text, is_chat
from rrm.readers.outcomes import find_outcome
from rrm.readers.turns import Turns, picture

NAME = "bedrock"
MARKS = (
    "messages[].role|[].role",
    "messages[].content[].toolUse|messages[].content[].toolResult|[].content[].toolUse|toolConfig",
)
BLOCKS = {"text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "audio", "cachePoint"}
BLOCKS |= {"guardContent", "citationsContent", "searchResult"}
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """Messages in which each part is a block without a type, also as a bare list."""
    listed = value.get("messages") if isinstance(value, dict) else value
    return isinstance(listed, list) and is_chat(listed) and any(has_blocks(m.get("content")) for m in listed)


def has_blocks(content: Any) -> bool:
    """Whether a message's content is in Converse's blocks."""
    return isinstance(content, list) and bool(content) and all(_is_block(block) for block in content)


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and "type" not in block and len(block) == 1 and next(iter(block)) in BLOCKS


def parse(item: SourceItem) -> Trajectory:
    """One conversation."""
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    if not isinstance(record.get("messages"), list):
        raise ValueError("no list of `messages`")
    messages = system_of(record.get("system"))
    for i, message in enumerate(record["messages"]):
        messages += unblock(message, f"messages[{i}]")
    used = ["messages", "system", "id"]
    if (reply := reply_of(record)) is not None and reply not in record["messages"]:
        messages += unblock(reply, "output.message")
        used.append("output")
    tools = tools_of(record.get("toolConfig"))
    return make(
        item,
        NAME,
        messages,
        meta=without(record, *used, *["toolConfig"] * (tools is not None)),
        id=own_id(record),
        task=text_field(record, "question") or first_user_text(messages),
        outcome=find_outcome(record),
        tools=tools,
    )


def reply_of(record: Any) -> Message | None:
    """The message in a response of the API."""
    output = record.get("output") if isinstance(record, dict) else None
    message = output.get("message") if isinstance(output, dict) else None
    return message if isinstance(message, dict) and has_blocks(message.get("content")) else None


def system_of(raw: Any) -> list[Message]:
    """The system prompt's blocks, or its text, as one message."""
    if isinstance(raw, list) and all(isinstance(b, dict) and "type" not in b for b in raw):
        raw = "\n".join(as_text(b["text"]) for b in raw if "text" in b)
    return [{"role": "system", "content": as_text(raw)}] if raw else []


def tools_of(config: Any) -> list[dict[str, Any]] | None:
    """`toolConfig` as function definitions; None where it has none."""
    listed = config.get("tools") if isinstance(config, dict) else None
    specs = [t.get("toolSpec") for t in listed if isinstance(t, dict)] if isinstance(listed, list) else []
    found = list[dict[str, Any]]()
    for spec in specs:
        if isinstance(spec, dict):
            schema = spec.get("inputSchema")
            schema = schema["json"] if isinstance(schema, dict) and "json" in schema else schema
            function = {k: v for k, v in spec.items() if k != "inputSchema"} | {"parameters": schema}
            found.append({"type": "function", "function": function})
    return found or None


def unblock(raw: Any, where: str) -> list[Message]:
    """One message of Converse as chat messages: tool results become messages of their own, in the order of the blocks.

    Raises:
        ValueError: not an object with a role that the API has.
    """
    if not isinstance(raw, dict) or raw.get("role") not in ("user", "assistant", "system"):
        raise ValueError(f"{where} must be an object with the role user or assistant")
    turns, blocks, more = Turns(), raw.get("content"), {k: v for k, v in raw.items() if k not in ("role", "content")}
    pending = list[Any]()
    for block in blocks if isinstance(blocks, list) else [{"text": as_text(blocks or "")}]:
        kind, inner = next(iter(block.items()), ("text", "")) if isinstance(block, dict) else ("text", as_text(block))
        if kind == "toolUse" and isinstance(inner, dict):
            turns.called(inner.get("name", ""), inner.get("input"), inner.get("toolUseId"))
        elif kind == "toolResult" and isinstance(inner, dict):
            _said(turns, raw["role"], pending, more)
            failed = inner.get("status") == "error"
            turns.came_back(_result(inner.get("content")), inner.get("toolUseId"), failed=failed)
        elif kind == "reasoningContent":
            turns.thought(_thought(inner))
        elif kind != "cachePoint":
            pending.append(_part(kind, inner))
    _said(turns, raw["role"], pending, more)
    if raw["role"] == "assistant":
        turns.agent(**more)
    return turns.messages or [{"role": raw["role"], "content": "", **more}]


def _said(turns: Turns, role: str, pending: list[Any], more: Message) -> None:
    """Put what was said so far into the messages."""
    if pending and role == "assistant":
        turns.said([*pending])
    elif pending:
        turns.add_text(role, [*pending], **more)
    pending.clear()


def _thought(inner: Any) -> str:
    text = inner.get("reasoningText") if isinstance(inner, dict) else inner
    text = text.get("text") if isinstance(text, dict) else text
    return text if isinstance(text, str) else "[redacted thinking]"


def _result(content: Any) -> Any:
    """A result's blocks: texts, JSON, documents and pictures."""
    if not isinstance(content, list):
        return content
    if len(content) == 1 and isinstance(content[0], dict) and "json" in content[0]:
        return as_text(content[0]["json"])
    return [_part(*next(iter(b.items()), ("text", ""))) if isinstance(b, dict) else _part("text", b) for b in content]


def _part(kind: str, inner: Any) -> Message:
    """A block that is no call, result or thought as a chat part."""
    if kind in ("text", "json"):
        return {"type": "text", "text": as_text(inner)}
    if kind == "citationsContent" and isinstance(inner, dict) and isinstance(inner.get("content"), list):
        return {
            "type": "text",
            "text": "\n".join(as_text(b.get("text", "")) for b in inner["content"] if isinstance(b, dict)),
        }
    if kind == "guardContent" and isinstance(inner, dict) and isinstance(inner.get("text"), dict):
        return {"type": "text", "text": as_text(inner["text"].get("text", ""))}
    source = inner.get("source") if isinstance(inner, dict) else None
    if kind == "image" and isinstance(source, dict) and isinstance(source.get("bytes"), str):
        return picture(source["bytes"], f"image/{inner.get('format', 'png')}")
    return {"type": kind, kind: inner}
