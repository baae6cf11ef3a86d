"""`bedrock`: Amazon Bedrock's Converse API, whose blocks have no type (`text`, `toolUse`, …).

A request's body, with the response's `output` and `usage` where they stand in one record, or the list of messages alone. Logs of whole
calls are read by `calls`. Fields: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation, record_of
from rrm.readers.chat import as_text, is_chat
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
    """Return whether a content is in Converse's blocks."""
    blocks = content if isinstance(content, list) else []
    return bool(blocks) and all(isinstance(b, dict) and len(b) == 1 and next(iter(b)) in BLOCKS for b in blocks)


def parse(item: SourceItem) -> Trajectory:
    record = record_of(item, "messages")
    messages = system_of(record.get("system"))
    for i, message in enumerate(record["messages"]):
        messages += unblock(message, f"messages[{i}]")
    used = ["messages", "system", "id"]
    if (reply := reply_of(record)) is not None and reply not in record["messages"]:
        messages += unblock(reply, "output.message")
        used.append("output")
    tools = tools_of(record.get("toolConfig"))
    used += ["toolConfig"] * (tools is not None)
    return conversation(item, NAME, record, messages, used, tools=tools)


def reply_of(record: Any) -> Message | None:
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
    tools = list[dict[str, Any]]()
    for spec in specs:
        if isinstance(spec, dict):
            schema = spec.get("inputSchema")
            schema = schema["json"] if isinstance(schema, dict) and "json" in schema else schema
            function = {k: v for k, v in spec.items() if k != "inputSchema"} | {"parameters": schema}
            tools.append({"type": "function", "function": function})
    return tools or None


def unblock(raw: Any, where: str) -> list[Message]:
    """Split a Converse message into chat messages: tool results become their own, in the blocks' order.

    Raises:
        ValueError: not an object with a role that the API has.
    """
    if not isinstance(raw, dict) or raw.get("role") not in ("user", "assistant", "system"):
        raise ValueError(f"{where} must be an object with the role user or assistant")
    turns, blocks, more = Turns(), raw.get("content"), {k: v for k, v in raw.items() if k not in ("role", "content")}
    pending = list[Any]()
    for block in blocks if isinstance(blocks, list) else [{"text": as_text(blocks or "")}]:
        name, inner = next(iter(block.items()), ("text", "")) if isinstance(block, dict) else ("text", as_text(block))
        if name == "toolUse" and isinstance(inner, dict):
            turns.called(inner.get("name", ""), inner.get("input"), inner.get("toolUseId"))
        elif name == "toolResult" and isinstance(inner, dict):
            _flush(turns, raw["role"], pending, more)
            failed = inner.get("status") == "error"
            turns.came_back(_result(inner.get("content")), inner.get("toolUseId"), failed=failed)
        elif name == "reasoningContent":
            text = inner.get("reasoningText") if isinstance(inner, dict) else inner
            text = text.get("text") if isinstance(text, dict) else text
            turns.thought(text if isinstance(text, str) else "[redacted thinking]")
        elif name != "cachePoint":
            pending.append(_part(name, inner))
    _flush(turns, raw["role"], pending, more)
    if raw["role"] == "assistant":
        turns.agent(**more)
    return turns.messages or [{"role": raw["role"], "content": "", **more}]


def _flush(turns: Turns, role: str, pending: list[Any], more: Message) -> None:
    """Move pending parts into the messages."""
    if pending and role == "assistant":
        turns.said([*pending])
    elif pending:
        turns.add_text(role, [*pending], **more)
    pending.clear()


def _result(content: Any) -> Any:
    """A result's blocks: texts, JSON, documents and pictures."""
    if not isinstance(content, list):
        return content
    if len(content) == 1 and isinstance(content[0], dict) and "json" in content[0]:
        return as_text(content[0]["json"])
    return [_part(*next(iter(b.items()), ("text", ""))) if isinstance(b, dict) else _part("text", b) for b in content]


def _part(name: str, inner: Any) -> Message:
    """A block that is no call, result or thought as a chat part."""
    if name in ("text", "json"):
        return {"type": "text", "text": as_text(inner)}
    if name == "citationsContent" and isinstance(inner, dict) and isinstance(inner.get("content"), list):
        return {
            "type": "text",
            "text": "\n".join(as_text(b.get("text", "")) for b in inner["content"] if isinstance(b, dict)),
        }
    if name == "guardContent" and isinstance(inner, dict) and isinstance(inner.get("text"), dict):
        return {"type": "text", "text": as_text(inner["text"].get("text", ""))}
    source = inner.get("source") if isinstance(inner, dict) else None
    if name == "image" and isinstance(source, dict) and isinstance(source.get("bytes"), str):
        return picture(source["bytes"], f"image/{inner.get('format', 'png')}")
    return {"type": name, name: inner}
