"""A list of chat messages from whatever wrote it, OpenAI's shape, Anthropic's, Bedrock's or Vercel's."""

from __future__ import annotations

from typing import Any

from rrm.readers import bedrock, vercel_ai
from rrm.readers.anthropic import content_of, has_blocks, unblock
from rrm.readers.chat import chat_message
from rrm.readers.turns import Turns


def chat_messages(raw: Any, where: str = "messages") -> list[dict[str, Any]]:
    """Normalised messages, one for each of the input's (so indices into them keep their meaning); where any of them holds Anthropic's
    or Bedrock's blocks, or Vercel's parts, what the reader of that name makes of them all: a result among a message's blocks becomes a message of its own.

    Raises:
        ValueError: not a list, an entry that is not an object, a role nobody knows, or blocks of which one is none.
    """
    if isinstance(raw, dict):
        raw = [raw]
    if not isinstance(raw, list):
        raise ValueError(f"{where} must be a list of messages, got {type(raw).__name__}")
    if any(has_blocks(content_of(message)) for message in raw):
        return [made for i, message in enumerate(raw) for made in unblock(message, f"{where}[{i}]")]
    if any(bedrock.has_blocks(content_of(message)) for message in raw):
        read = [bedrock.unblock if bedrock.has_blocks(content_of(m)) else unblock for m in raw]
        return [made for i, message in enumerate(raw) for made in read[i](message, f"{where}[{i}]")]
    if any(vercel_ai.has_parts(content_of(message)) for message in raw):
        return vercel_ai.read_messages(raw, where, Turns())
    return [chat_message(message, f"{where}[{i}]") for i, message in enumerate(raw)]
