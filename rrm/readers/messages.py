"""Read chat messages of OpenAI's, Anthropic's, Bedrock's or Vercel's shape."""

from __future__ import annotations

from typing import Any

from rrm.readers import bedrock, vercel_ai
from rrm.readers.anthropic import content_of, has_blocks, unblock
from rrm.readers.chat import chat_message
from rrm.readers.turns import Turns


def chat_messages(raw: Any, where: str = "messages") -> list[dict[str, Any]]:
    """Normalise messages, keeping their number and indices.

    Where any of them holds Anthropic's or Bedrock's blocks or Vercel's parts, that API's reader reads all: results become own messages.

    Raises:
        ValueError: not a list, an entry that is not an object, an unknown role, or a block that is none.
    """
    if isinstance(raw, dict):
        raw = [raw]
    if not isinstance(raw, list):
        raise ValueError(f"{where} must be a list of messages, got {type(raw).__name__}")
    if any(has_blocks(content_of(message)) for message in raw):
        return [result for i, message in enumerate(raw) for result in unblock(message, f"{where}[{i}]")]
    if any(bedrock.has_blocks(content_of(message)) for message in raw):
        readers = [bedrock.unblock if bedrock.has_blocks(content_of(m)) else unblock for m in raw]
        return [result for i, message in enumerate(raw) for result in readers[i](message, f"{where}[{i}]")]
    if any(vercel_ai.has_parts(content_of(message)) for message in raw):
        return vercel_ai.read_messages(raw, where, Turns())
    return [chat_message(message, f"{where}[{i}]") for i, message in enumerate(raw)]
