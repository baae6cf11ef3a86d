"""Chat messages from data-set rows, which may hold arrays, pictures and shapes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrm.readers.anthropic import is_block
from rrm.readers.chat import tool_list
from rrm.readers.messages import chat_messages


def plain(value: Any) -> Any:
    """Convert to plain JSON: arrays as lists, at any depth; anything else as its type's name."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else f"[{type(value).__name__}]"


def messages_of(role: str, value: Any, where: str) -> list[dict[str, Any]]:
    """Convert a text of `role`, or a list or array of messages, to chat messages."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    messages = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(messages, list | tuple):
        raise ValueError(f"{where} must be a text or a list of messages, got {type(value).__name__}")
    try:
        return chat_messages([plain(_without_pictures(message)) for message in messages], where)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None


def tools_of(tools_value: Any, where: str) -> list[dict[str, Any]] | None:
    """Convert schemas or names of tools (list, array or JSON); None without tools. Raises `ValueError`."""
    try:
        value = plain(tools_value)
    except RecursionError:
        value = "?"
    if value is None or value == "" or value == []:
        return None
    tools = tool_list(value)
    if tools is None:
        raise ValueError(f"{where} must be schemas or names of tools, in a list or as JSON, got {str(value)[:60]!r}")
    return tools


def _without_pictures(message: Any) -> Any:
    """Reduce the parts of a message, or of a tool's result, to text, calls and results."""
    if not isinstance(message, Mapping):
        return message
    content: Any = message.get("content")
    content = content.tolist() if hasattr(content, "tolist") else content
    if not isinstance(content, list | tuple):
        return message
    return {**message, "content": [_shown(content_part) for content_part in content]}


def _shown(content_part: Any) -> Any:
    if not isinstance(content_part, Mapping):
        return content_part
    part_type = str(content_part.get("type", "part"))
    if is_block(part_type):
        return _without_pictures(content_part)
    return content_part if part_type in ("text", "refusal") else {"type": part_type}
