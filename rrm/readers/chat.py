"""A chat message from whatever wrote it: role, content and tool calls brought to the OpenAI shape."""

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
    """A value that should have been text: itself, or its JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def chat_message(raw: Any, where: str = "message") -> dict[str, Any]:
    """One message in the OpenAI shape; keys nobody knows are kept, None is dropped. A refusal without content is what was said."""
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
    """The message of what an agent said, thought and called; none where it did nothing."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    message |= ({"reasoning_content": thought} if thought else {}) | ({"tool_calls": calls} if calls else {})
    return [message] if text or thought or calls else []


def _audit_trail(message: dict[str, Any]) -> None:
    """Keep `timestamp` and `duration_s` where they have the right type; otherwise keep them under another name."""
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
"""Words of which one stands in the type of every part that is no text."""
HOLDERS = ("data", "file_data", "file_id", "image_url", "base64")
"""Fields in one of which such a part holds its bytes, or names them; others hold them in an object: `source`, or their type's name."""


def result_content(content: Any) -> Any:
    """A tool's result: a list of typed objects of which one is no part of a message (`{"type": "file", "path": …}`) as its JSON."""
    typed = isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("type"), str) for p in content)
    return as_text(content) if typed and content and not all(map(is_part, content)) else content


def is_part(part: dict[str, Any]) -> bool:
    """Whether an object with a type is a message's part, of any API: a text, or a picture, sound or file that it holds or names."""
    kind = part["type"]
    if kind in TEXTS:
        return isinstance(part.get("refusal" if kind == "refusal" else "text"), str)
    held = any(isinstance(part.get(key), dict) for key in ("source", kind)) or any(key in part for key in HOLDERS)
    return any(word in kind for word in MEDIA) and (held or ("image" in kind and "url" in part))


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A refusal as text, which it is; other parts as they are."""
    said = part.get("refusal")
    return {**part, "type": "text", "text": said} if part.get("type") == "refusal" and isinstance(said, str) else part


def tool_call(raw: Any) -> dict[str, Any]:
    """A flat `{name, arguments, id}`; arguments that are no object stay text, for a malformed call is evidence."""
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
    """Tool definitions given as a list or as its JSON text; bare names become definitions; None where unreadable."""
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
