"""`mapping`: any other JSON, by `--map field=path`.

Paths are dotted, with indices: `data.turns`, `choices[0].text`, `log.0.q`; `.` is the whole item; a trailing `?` makes a
field optional (`outcome=meta.reward?`), otherwise an item without it is an error, never a silent None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rrm.data.printing import nearest
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError
from rrm.readers import react, search_tags
from rrm.readers.base import SourceItem, key_list, make, without
from rrm.readers.chat import as_text, is_chat, tool_list
from rrm.readers.messages import chat_messages
from rrm.readers.outcomes import MISSING, get, outcome_at, split_path

NAME = "mapping"
FIELDS = (
    "id",
    "task",
    "question_id",
    "messages",
    "message.role",
    "message.content",
    "response",
    "tools",
    "outcome",
    "reference",
)
"""Mappable fields, beside `meta.<name>`. `message.*`: paths in each message; `response`: a final text."""


def sniff(value: Any) -> bool:
    """Never match: a mapping is asked for."""
    return False


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`["messages=log.turns", …]` as a mapping; `ConfigError` names what is wrong and the nearest field."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        field, separator, path = pair.partition("=")
        if not (field and separator and path):
            raise ConfigError(f"--map {pair!r}: write it as field=path, for example messages=log.turns")
        mapping[field.strip()] = path.strip()
    check(mapping)
    return mapping


def check(mapping: dict[str, str]) -> None:
    """Refuse unknown fields, and a mapping from which no message can come."""
    for field in mapping:
        if field not in FIELDS and not re.fullmatch(r"meta\.\w+", field):
            near = nearest(field, FIELDS)
            hint = f"did you mean {near!r}?" if near else f"fields: {', '.join(FIELDS)}, meta.<name>"
            raise ConfigError(f"--map {field}={mapping[field]}: unknown field {field!r}; {hint}")
    if "messages" not in mapping and "response" not in mapping:
        raise ConfigError("--map needs messages=PATH (a list, or one text), or task=PATH with response=PATH")


def _pruned(value: Any, parts: list[str]) -> Any:
    """Copy without the value at the path (through objects only): meta need not repeat the transcript."""
    if not parts or not isinstance(value, dict) or parts[0] not in value:
        return value
    inner = _pruned(value[parts[0]], parts[1:]) if len(parts) > 1 else {}
    return {k: inner if k == parts[0] else v for k, v in value.items() if k != parts[0] or inner not in ({}, None)}


def fits(value: Any, mapping: dict[str, str]) -> bool:
    """Return whether the mapping's messages (or response) are there: a run, not a container of runs."""
    return get(value, mapping.get("messages", mapping.get("response", ".")).removesuffix("?")) is not MISSING


def parse(item: SourceItem) -> Trajectory:
    mapping = item.mapping
    if not mapping:
        raise ConfigError("the format 'mapping' needs --map field=path, for example --map messages=log.turns")
    fields: dict[str, Any] = {}
    for field, path in mapping.items():
        if field.startswith("message."):
            continue
        value = get(item.value, path.removesuffix("?"))
        if value is MISSING and not path.endswith("?"):
            keys = f"; it has {key_list(item.value)}" if isinstance(item.value, dict) else ""
            raise ValueError(f"nothing at {path!r} (mapped to {field}){keys}")
        if value is not MISSING and value is not None:
            fields[field] = value
    messages = _messages(fields, mapping)
    left = item.value
    for field, path in mapping.items():
        left = left if field.startswith("message.") else _pruned(left, split_path(path.removesuffix("?")))
    meta = without(left) if isinstance(left, dict) else {}
    meta |= {
        k: left[k] for k in ("outcome",) if isinstance(left, dict) and k in left
    }  # only a mapped field is the outcome
    meta |= {field[5:]: value for field, value in fields.items() if field.startswith("meta.")}
    if "reference" in fields:
        meta["reference"] = fields["reference"]
    texts = {name: as_text(fields[name]) for name in ("id", "task", "question_id") if name in fields}
    outcome = outcome_at(item.value, mapping["outcome"]) if "outcome" in mapping else None
    return make(item, NAME, messages, meta=meta, outcome=outcome, tools=tool_list(fields.get("tools")), **texts)


def _messages(fields: dict[str, Any], mapping: dict[str, str]) -> list[dict[str, Any]]:
    """Build messages from a list (with its own key names), a ReAct or tagged text, or a task and response."""
    raw = fields.get("messages")
    task = as_text(fields.get("task", ""))
    if isinstance(raw, str):
        if search_tags.sniff(raw):
            raw = search_tags.turns(raw)
        elif react.sniff(raw):
            raw, _ = react.from_text(raw, task or None)
        else:
            raw = [{"role": "assistant", "content": raw}]
    elif isinstance(raw, list):
        raw = [_renamed(m, mapping) for m in raw]
    elif raw is not None:
        raise ValueError(f"messages at {mapping['messages']!r} must be a list or a text, got {type(raw).__name__}")
    messages = chat_messages(raw or [])
    if "response" in fields:
        answer = fields["response"]
        messages += chat_messages(answer) if is_chat(answer) else [{"role": "assistant", "content": as_text(answer)}]
    if task and not any(m["role"] == "user" for m in messages):
        index = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
        messages.insert(index, {"role": "user", "content": task})
    return messages


def _renamed(message: Any, mapping: dict[str, str]) -> Any:
    """Move `role` and `content` from the mapping's paths to their names."""
    if not isinstance(message, dict):
        return message
    renamed = dict(message)
    for name in ("role", "content"):
        path = mapping.get(f"message.{name}")
        value = MISSING if path is None else get(message, path.removesuffix("?"))
        if value is not MISSING and path is not None:
            renamed.pop(path, None)
            renamed[name] = value
    return renamed
