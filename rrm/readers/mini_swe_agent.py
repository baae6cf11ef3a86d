"""`mini_swe_agent`: mini-swe-agent's `.traj.json` files, `trajectory_format: "mini-swe-agent-1…"`.

Commands are tool calls, items of the Responses API, or blocks in the text, as the agent's model was set up; their output is a
message of the tool or of the user. A model's whole reply, kept under `extra`, repeats the message and is left out but for its
`model` and `usage`.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make
from rrm.readers.chat import chat_message, text_of
from rrm.readers.response_items import ItemReader
from rrm.readers.swe_agent import ENVIRONMENT, instance_id, meta_and_outcome, question_of

NAME = "mini_swe_agent"
MARKS = ("trajectory_format", "info.mini_version|info.exit_status")
OUTPUT = ("raw_output", "returncode", "interrupt_type")
"""Fields of `extra` that mark the environment's words; version 1 has only its template's tag."""


def sniff(value: Any) -> bool:
    """The name of the format, beside messages."""
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    named = value.get("trajectory_format")
    return isinstance(named, str) and named.startswith("mini-swe-agent")


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    if not isinstance(record, dict) or not isinstance(record.get("messages"), list):
        raise ValueError("no list of `messages`")
    messages, spoken = list[dict[str, Any]](), False
    for i, raw in enumerate(record["messages"]):
        for message in _messages(raw, f"messages[{i}]"):
            spoken = spoken or message["role"] == "assistant"
            extra, text = message.get("extra"), text_of(message["content"])
            marked = any(k in extra for k in OUTPUT) if isinstance(extra, dict) and extra else False
            is_output = marked if isinstance(extra, dict) and extra else text.startswith("<returncode>")
            if message["role"] == "user" and spoken and is_output:
                message |= {"role": "tool", "name": ENVIRONMENT}
            messages.append(message)
    meta, outcome = meta_and_outcome(record, "messages", "instance_id")
    name = instance_id(item, record, meta)
    return make(item, NAME, messages, meta=meta, id=name, question_id=question_of(name), outcome=outcome)


def _messages(raw: Any, where: str) -> list[dict[str, Any]]:
    """Read one entry; the run's end (`exit`: the submission, or which limit) is the environment's."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object with a role, got {type(raw).__name__}")
    if raw.get("object") == "response" and isinstance(raw.get("output"), list):
        reader = ItemReader().read(raw["output"])
        messages = reader.messages or [{"role": "assistant", "content": None}]
        messages[0] |= {k: raw[k] for k in ("id", "model", "usage", "extra") if raw.get(k) is not None}
        messages[0] |= {"items": reader.others} if reader.others else {}
    else:
        if raw.get("type") == "function_call_output":
            rest = {k: v for k, v in raw.items() if k not in ("type", "call_id", "output")}
            raw = {**rest, "role": "tool", "tool_call_id": raw.get("call_id"), "content": raw.get("output")}
        elif raw.get("role") == "exit":
            raw = {**raw, "role": "tool", "name": "exit"}
        messages = [chat_message(raw, where)]
    content = messages[0]["content"]
    if isinstance(content, list) and all(set(p) == {"type", "text"} for p in content):
        messages[0]["content"] = text_of(content)
    if isinstance(extra := messages[0].get("extra"), dict):
        _tidy(messages[0], dict(extra))
    return messages


def _tidy(message: dict[str, Any], extra: dict[str, Any]) -> None:
    """Move fields of `extra` to their own places, and drop repetitions."""
    stamp = extra.get("timestamp")
    if "timestamp" not in message and isinstance(stamp, str | int | float) and not isinstance(stamp, bool):
        message["timestamp"] = extra.pop("timestamp")
    if isinstance(reply := extra.get("response"), dict):
        del extra["response"]
        extra |= {k: reply[k] for k in ("model", "usage") if reply.get(k) is not None}
    if isinstance(output := extra.get("raw_output"), str) and output in text_of(message["content"]):
        del extra["raw_output"]
    message["extra"] = extra
