"""Chat messages as frameworks hand them over: rows of data sets, which hold arrays, pictures and shapes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrm.readers.anthropic import is_block
from rrm.readers.chat import tool_list
from rrm.readers.messages import chat_messages


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays, and numbers of arrays, as lists and numbers, at any depth; of what is no JSON its type's name."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float) else f"[{type(value).__name__}]"


def messages_of(role: str, said: Any, where: str) -> list[dict[str, Any]]:
    """A prompt or a reply (a text, or a list or array of messages) as chat messages. Of a part that is no text, say a picture, a judge
    reads that there was one.

    Args:
        role: whose a text is.
        where: for errors.

    Raises:
        ValueError: it cannot be read.
    """
    if isinstance(said, str):
        return [{"role": role, "content": said}]
    given = said.tolist() if hasattr(said, "tolist") else said
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where} must be a text or a list of messages, got {type(said).__name__}")
    try:
        return chat_messages([plain(_without_pictures(message)) for message in given], where)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None


def tools_of(given: Any, where: str) -> list[dict[str, Any]] | None:
    """The tools of a row: schemas or names, in a list, an array or JSON; None where there are none.

    Raises:
        ValueError: they cannot be read.
    """
    try:
        value = plain(given)
    except RecursionError:
        value = "?"
    if value is None or value == "" or value == []:
        return None
    tools = tool_list(value)
    if tools is None:
        raise ValueError(f"{where} must be schemas or names of tools, in a list or as JSON, got {str(value)[:60]!r}")
    return tools


def _without_pictures(message: Any) -> Any:
    """A message, or a tool's result, without what its parts hold beside text, calls and results."""
    if not isinstance(message, Mapping):
        return message
    content: Any = message.get("content")
    content = content.tolist() if hasattr(content, "tolist") else content
    if not isinstance(content, list | tuple):
        return message
    return {**message, "content": [_shown(part) for part in content]}


def _shown(part: Any) -> Any:
    """A part that a judge reads as it is (of a tool's result its parts likewise), of another its type."""
    if not isinstance(part, Mapping):
        return part
    kind = str(part.get("type", "part"))
    if is_block(kind):
        return _without_pictures(part)
    return part if kind in ("text", "refusal") else {"type": kind}
