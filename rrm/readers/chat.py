"""Bring chat messages of any source to the OpenAI shape: role, content and tool calls."""

from __future__ import annotations

import json
from typing import Any

from rrm.data.jsonl import DECODER

ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "bot": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "environment": "tool",
}


def is_chat(value: Any) -> bool:
    """A non-empty list of objects with a role (OpenAI: `role`; ShareGPT: `from`)."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, dict) and isinstance(m.get("role", m.get("from")), str) for m in value)
    )


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))


def as_text(value: Any) -> str:
    """Return a value that should be text: itself, or its JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def chat_message(raw: Any, where: str = "message") -> dict[str, Any]:
    """Bring a message to the OpenAI shape; unknown keys stay, None goes, a lone refusal is the content."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object with a role, got {type(raw).__name__}")
    message = {k: v for k, v in raw.items() if v is not None}
    role = message.pop("role", None) or message.pop("from", None)
    if not isinstance(role, str) or role.strip().lower() not in ROLES:
        raise ValueError(f"{where} has role {as_text(role)[:40]!r}; known roles: {', '.join(sorted(ROLES))}")
    content = message.pop("content") if "content" in message else message.pop("value", None)
    calls = message.pop("tool_calls", None)
    more = message.get("additional_kwargs")
    if (
        not calls and isinstance(more, dict) and isinstance(more.get("tool_calls"), list)
    ):  # LangChain's, for OpenAI's models
        calls = more["tool_calls"]
        message["additional_kwargs"] = {k: v for k, v in more.items() if k != "tool_calls"}
    if "function_call" in message and not calls:
        calls = [message.pop("function_call")]
    reasoning = next((message.pop(k) for k in ("reasoning_content", "reasoning", "thinking") if k in message), None)
    message["role"] = ROLES[role.strip().lower()]
    refusal = message.get("refusal")
    if message["role"] == "tool":
        content = result_content(content)
    message["content"] = chat_content(refusal if not content and isinstance(refusal, str) and refusal else content)
    if reasoning is not None:
        message["reasoning_content"] = as_text(reasoning)
    if calls:
        calls = calls if isinstance(calls, list) else [calls]
        message["tool_calls"] = [tool_call(call) for call in calls if call is not None]
    for key in ("tool_call_id", "name"):
        if key in message:
            message[key] = as_text(message[key])
    _audit_trail(message)
    return message


def agent_message(text: str, thought: str = "", calls: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Build an agent's message of text, thought and calls; none where all are empty."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    message |= ({"reasoning_content": thought} if thought else {}) | ({"tool_calls": calls} if calls else {})
    return [message] if text or thought or calls else []


def _audit_trail(message: dict[str, Any]) -> None:
    """Keep `timestamp` and `duration_s` of the right type; store others as text."""
    stamp, duration = message.get("timestamp"), message.get("duration_s")
    if stamp is not None and (isinstance(stamp, bool) or not isinstance(stamp, str | int | float)):
        message["timestamp"] = as_text(stamp)
    if duration is not None and (isinstance(duration, bool) or not isinstance(duration, int | float)):
        message["duration_text"] = as_text(message.pop("duration_s"))


def chat_content(content: Any) -> str | list[dict[str, Any]] | None:
    """Content as text, as a list of part objects, or None; any other JSON becomes its text."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        return [_part(p) if isinstance(p, dict) else {"type": "text", "text": as_text(p)} for p in content]
    return "" if isinstance(content, list) else as_text(content)


TEXTS = ("text", "input_text", "output_text", "refusal")
MEDIA = ("image", "audio", "video", "file", "document", "media", "screenshot")
"""Words in the types of parts that are no text."""
HOLDERS = ("data", "file_data", "file_id", "image_url", "base64")
"""Fields that hold or name a part's bytes; others use an object: `source`, or their type's name."""


def result_content(content: Any) -> Any:
    """Return a tool's result; typed objects that are no message parts (`{"type": "file", …}`) as JSON."""
    typed = isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in content)
    return as_text(content) if typed and content and not all(map(is_part, content)) else content


def is_part(content_part: dict[str, Any]) -> bool:
    """Return whether a typed object is a message part of any API: text, picture, sound or file."""
    part_type = content_part["type"]
    if part_type in TEXTS:
        return isinstance(content_part.get("refusal" if part_type == "refusal" else "text"), str)
    has_data = any(isinstance(content_part.get(key), dict) for key in ("source", part_type)) or any(
        key in content_part for key in HOLDERS
    )
    return any(word in part_type for word in MEDIA) and (has_data or ("image" in part_type and "url" in content_part))


def _part(content_part: dict[str, Any]) -> dict[str, Any]:
    """Turn a refusal into text; other parts stay."""
    refusal = content_part.get("refusal")
    return (
        {**content_part, "type": "text", "text": refusal}
        if content_part.get("type") == "refusal" and isinstance(refusal, str)
        else content_part
    )


def tool_call(raw: Any) -> dict[str, Any]:
    """Return a flat `{name, arguments, id}`; arguments that are no object stay text, as evidence."""
    if not isinstance(raw, dict):
        return {"name": "", "arguments": as_text(raw)}
    call = {k: v for k, v in raw.items() if v is not None}
    if isinstance(call.get("function"), dict):
        inner = call.pop("function")
        call = {k: v for k, v in call.items() if k != "type"} | {k: v for k, v in inner.items() if v is not None}
    arguments = next((call.pop(k) for k in ("arguments", "args", "input", "parameters", "kwargs") if k in call), {})
    call["name"] = as_text(call.get("name", ""))
    call["arguments"] = arguments if isinstance(arguments, dict | str) else as_text(arguments)
    if "id" in call:
        call["id"] = as_text(call["id"])
    return call


def tool_list(raw: Any) -> list[dict[str, Any]] | None:
    """Read tool definitions from a list or its JSON; bare names become definitions; None if unreadable."""
    if isinstance(raw, str):
        try:
            raw = DECODER.decode(raw)
        except (ValueError, RecursionError):
            return None
    if isinstance(raw, dict):
        raw = [raw]
    if not isinstance(raw, list):
        return None
    tools = [{"type": "function", "function": {"name": t}} if isinstance(t, str) else t for t in raw]
    return tools if all(isinstance(t, dict) for t in tools) else None
