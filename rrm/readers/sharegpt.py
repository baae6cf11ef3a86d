"""`sharegpt`: LLaMA-Factory's ShareGPT with tools: `function_call` turns (JSON) and `observation`s."""

from __future__ import annotations

from typing import Any

from rrm.data.jsonl import DECODER
from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, text_field, without
from rrm.readers.chat import chat_message, is_chat, tool_call, tool_list
from rrm.readers.outcomes import find_outcome

NAME = "sharegpt"
MARKS = ("conversations[].from=function_call",)


def sniff(value: Any) -> bool:
    """Match `conversations` with a call; those without one are `openai`'s."""
    turns = value.get("conversations") if isinstance(value, dict) else None
    return isinstance(turns, list) and is_chat(turns) and any(turn.get("from") == "function_call" for turn in turns)


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    if not isinstance(record, dict) or not isinstance(record.get("conversations"), list):
        raise ValueError("no list of turns under `conversations`")
    messages = [_message(turn, f"conversations[{i}]") for i, turn in enumerate(record["conversations"])]
    if system := text_field(record, "system"):
        messages.insert(0, {"role": "system", "content": system})
    tools = tool_list(record.get("tools"))
    meta = without(record, "id", "conversations", *["system"] * bool(system), *["tools"] * (tools is not None))
    return make(item, NAME, messages, meta=meta, id=own_id(record), outcome=find_outcome(record), tools=tools)


def _message(turn: Any, where: str) -> dict[str, Any]:
    """Read one turn; a call that is no JSON stays text, as evidence."""
    if not isinstance(turn, dict) or turn.get("from") != "function_call" or not isinstance(turn.get("value"), str):
        return chat_message(turn, where)
    written, thought = turn["value"].strip(), ""
    if written.startswith("<think>"):
        thought, _, written = written.removeprefix("<think>").partition("</think>")
    try:
        decoded = DECODER.decode(written)
    except (ValueError, RecursionError):
        decoded = written
    calls = [tool_call(call) for call in (decoded if isinstance(decoded, list) else [decoded])]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return message | ({"reasoning_content": thought.strip()} if thought else {})
