"""`anthropic`: Messages API conversations (blocks: text, thinking, tool_use, tool_result, image)."""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation, own_id, record_of
from rrm.readers.chat import as_text, chat_content, chat_message, is_chat, text_of, tool_call
from rrm.readers.turns import joined

NAME = "anthropic"
MARKS = ("messages[].role", "system|tools[].input_schema|messages[].content[].type")
BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}


def sniff(value: Any) -> bool:
    """Match Anthropic's blocks (also in a bare list), a top-level `system`, or tools with `input_schema`."""
    if isinstance(value, list):
        return is_chat(value) and any(has_blocks(m.get("content")) for m in value)
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    messages, tools = value["messages"], value.get("tools")
    if isinstance(tools, list) and any(isinstance(t, dict) and "input_schema" in t for t in tools):
        return True
    if "system" in value and all(isinstance(m, dict) and m.get("role") in ("user", "assistant") for m in messages):
        return bool(messages)
    return any(has_blocks(m.get("content")) for m in messages if isinstance(m, dict))


def has_blocks(content: Any) -> bool:
    """Return whether a content holds blocks that only Anthropic has."""
    types = [b.get("type") for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    return any(isinstance(t, str) and is_block(t) for t in types)


def content_of(message: Any) -> Any:
    """Return a message's content (ShareGPT: `value`); None where it is no message."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    return message.get("value") if content is None else content


def is_block(block_type: str) -> bool:
    """Return whether a part's type is Anthropic's alone: a call, a tool's result, a thought."""
    return block_type in BLOCKS or block_type.endswith(("_tool_use", "_tool_result"))


def parse(item: SourceItem) -> Trajectory:
    """One conversation: an object with `messages`, or the list alone."""
    record = record_of(item, "messages")
    messages = list[dict[str, Any]]()
    if record.get("system"):
        messages.append({"role": "system", "content": text_of(record["system"]) or as_text(record["system"])})
    for i, message in enumerate(record["messages"]):
        messages += unblock(message, f"messages[{i}]")
    tools = anthropic_tools(record.get("tools"))
    question_id = own_id(record, "question_id")
    used = ["id", "messages", "system"] + ["tools"] * (tools is not None) + ["question_id"] * (question_id is not None)
    return conversation(item, NAME, record, messages, used, question_id=question_id, tools=tools)


def anthropic_tools(raw: Any) -> list[dict[str, Any]] | None:
    """Turn `{name, description, input_schema}` into OpenAI function definitions; None where unreadable."""
    if not isinstance(raw, list) or not all(isinstance(t, dict) for t in raw):
        return None
    named = [(t, {k: v for k, v in t.items() if k not in ("input_schema", "type")}) for t in raw]
    return [
        {"type": "function", "function": {**f, "parameters": t["input_schema"]}} if "input_schema" in t else t
        for t, f in named
    ]


def unblock(raw: Any, where: str) -> list[dict[str, Any]]:
    """Split an Anthropic message into chat messages: tool results become their own, in the blocks' order.

    Raises:
        ValueError: not an object with a known role, or a block that is neither an object nor text.
    """
    content = content_of(raw)
    if not isinstance(content, list):
        return [chat_message(raw, where)]
    shell = chat_message({**raw, "content": None}, where)
    out = list[dict[str, Any]]()
    current: dict[str, Any] | None = None
    if calls := shell.pop("tool_calls", None):  # of a log that writes them in both ways
        current = {**shell, "content": None, "tool_calls": calls}
        out.append(current)
    for i, block in enumerate(content):
        block = {"type": "text", "text": block} if isinstance(block, str) else block
        if not isinstance(block, dict):
            raise ValueError(f"{where}.content[{i}] must be a block (an object), got {type(block).__name__}")
        block_type = str(block.get("type"))
        if block_type.endswith("tool_result"):
            out.append(_result(block, shell))
            current = None
            continue
        if current is None:
            current = {**shell, "content": None}
            out.append(current)
        _add(current, block_type, block)
    return out or [{**shell, "content": ""}]


def _add(message: dict[str, Any], block_type: str, block: dict[str, Any]) -> None:
    if block_type.endswith("tool_use"):  # one's own, the server's, an MCP server's
        calls = message.setdefault("tool_calls", [])
        if block.get("id") is not None and any(call.get("id") == as_text(block["id"]) for call in calls):
            return
        call = {k: v for k, v in block.items() if k not in ("type", "input", "caller")}
        call |= {
            "name": as_text(block.get("name", "")),
            "arguments": {} if block.get("input") is None else block["input"],
        }
        calls.append(tool_call(call))
    elif block_type in ("thinking", "redacted_thinking"):
        thought = "[redacted thinking]" if block.get("thinking") is None else block["thinking"]
        # Mistral's are of the same type, and lists of parts
        text = text_of(thought) or as_text(thought)
        message["reasoning_content"] = joined(message.get("reasoning_content"), text)
    elif block_type == "text" and not isinstance(message["content"], list):
        message["content"] = joined(message["content"], as_text(block.get("text", "")))
    else:  # an image or document: from here on the content is a list of parts
        before = message["content"]
        parts = before if isinstance(before, list) else [{"type": "text", "text": before}] if before else []
        message["content"] = [*parts, block]


def _result(block: dict[str, Any], shell: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        content = text_of(content)
    result: dict[str, Any] = {"role": "tool", "content": chat_content("" if content is None else content)}
    id = shell.get("tool_call_id") if block.get("tool_use_id") is None else block["tool_use_id"]
    if id is not None:
        result["tool_call_id"] = as_text(id)
    if block.get("is_error"):
        result["is_error"] = True
    if "timestamp" in shell:
        result["timestamp"] = shell["timestamp"]
    return result
