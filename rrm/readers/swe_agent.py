"""`swe_agent`: SWE-agent's `.traj` files (`trajectory, history, info`); a retrying agent's `attempts`.

The messages are the history's, followed by what only the trajectory holds (the last observation, steps after the history's end);
where the two disagree, the trajectory's steps are the run. A step's model input (`query`, or `messages` in older files) repeats the
history and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, stem, text_field, without
from rrm.readers.chat import as_text, chat_message, text_of
from rrm.readers.outcomes import NUMERIC, RunOutcome, find_outcome

NAME = "swe_agent"
MARKS = (
    "trajectory|history|attempts",
    "trajectory[].observation|history[].agent|history[].message_type|attempts[].history",
)
INSTANCE = re.compile(r"[\w.-]+__[\w.-]+-\d+")
"""SWE-bench instance (`owner__repo-123`): runs on it are attempts at one question."""
ENVIRONMENT = "environment"
"""The name of an observation that answers no tool call."""


def sniff(value: Any) -> bool:
    """Steps of action and observation under `trajectory`, or a `history` whose messages name their agent."""
    return isinstance(value, dict) and (_is_run(value) or _attempts(value) is not None)


def _is_run(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    steps, history = value.get("trajectory"), value.get("history")
    if isinstance(steps, list) and isinstance(history, list) and isinstance(value.get("info"), dict):
        return _is_step(steps[0]) if steps else not history or _is_entry(history[0])
    return (isinstance(steps, list) and bool(steps) and _is_step(steps[0])) or (
        isinstance(history, list) and bool(history) and _is_entry(history[0])
    )


def _is_step(value: Any) -> bool:
    marks = ("response", "thought", "state", "execution_time")
    return isinstance(value, dict) and {"action", "observation"} <= value.keys() and any(m in value for m in marks)


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "role" in value
        and "content" in value
        and bool({"agent", "message_type"} & set(value))
    )


def _attempts(value: Any) -> list[dict[str, Any]] | None:
    attempts = value.get("attempts") if isinstance(value, dict) else None
    return attempts if isinstance(attempts, list) and attempts and all(map(_is_run, attempts)) else None


def explode(value: Any) -> Iterator[tuple[Any, dict[str, Any]]] | None:
    """Yield a retrying agent's attempts (the file repeats the best one); None for a file of one run."""
    attempts = _attempts(value)
    if attempts is None:
        return None
    rest = {k: v for k, v in value.items() if k not in ("attempts", "trajectory", "history")}
    return ((attempt, {"attempt": k, "of": rest}) for k, attempt in enumerate(attempts, 1))


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    if not isinstance(record, dict) or not (_is_run(record) or isinstance(record.get("trajectory"), list)):
        raise ValueError("no `trajectory` of steps (action, observation) and no `history` of messages")
    messages = _messages(record)
    if not messages:
        info = record["info"] if isinstance(record.get("info"), dict) else {}
        raise ValueError(f"the run has no messages (exit status {str(info.get('exit_status'))[:80]!r})")
    meta, outcome = meta_and_outcome(record, "trajectory", "history")
    name, attempt = instance_id(item, record, meta), item.context.get("attempt")
    if attempt is not None:
        meta |= {"attempt": attempt, "attempts_of": item.context.get("of")}
    id = f"{name}:attempt{attempt}" if name is not None and attempt is not None else name
    task = next((text_of(m["content"]) for m in messages if m["role"] == "user" and not m.get("is_demo")), "")
    return make(item, NAME, messages, meta=meta, id=id, task=task, question_id=question_of(name), outcome=outcome)


def question_of(name: str | None) -> str | None:
    """Return the instance of SWE-bench as the question of its runs; None for other names."""
    return name if name and INSTANCE.fullmatch(name) else None


def meta_and_outcome(record: dict[str, Any], *used: str) -> tuple[dict[str, Any], RunOutcome | None]:
    """Return meta from a record and its `info` (exit status, submission, cost), and the outcome.

    A score in `info` is a reviewer's or a game's, so only fields that say success are read there.
    """
    info = record["info"] if isinstance(record.get("info"), dict) else {}
    rest = without(record, *used, *(["info"] if isinstance(record.get("info"), dict) else []))
    outcome = find_outcome(record)
    if outcome is None and (label := find_outcome({k: v for k, v in info.items() if k not in NUMERIC})) is not None:
        outcome = RunOutcome(label.value, f"info.{label.field}")
    return {**info, **rest}, outcome


def instance_id(item: SourceItem, record: dict[str, Any], meta: dict[str, Any]) -> str | None:
    """Return the run's instance: its record's, else the file's name where it is one of SWE-bench."""
    recorded = own_id(record, "instance_id", "id") or own_id(meta, "instance_id")
    if recorded is not None:
        return recorded
    name = stem(item.path)
    return name if item.key is None and INSTANCE.fullmatch(name) else None


def _messages(record: dict[str, Any]) -> list[dict[str, Any]]:
    steps = [_step(raw, f"trajectory[{k}]") for k, raw in enumerate(_list(record, "trajectory"))]
    entries = _list(record, "history")
    if not entries and steps:  # what the first step was shown is the task
        entries = next((q for key in ("query", "messages") if isinstance(q := steps[0].get(key), list)), [])
    messages = history(entries)
    if not steps:
        return messages
    spoken = [m for m in messages if m["role"] == "assistant"]
    rest = iter(spoken)  # each step is one of the messages, in their order
    if len(spoken) > len(steps) and all(
        any(_same(m, step) for m in rest) for step in steps
    ):  # what the agent was made to say again stands there alone
        return messages
    if len(spoken) > len(steps) or not all(_same(m, s) for m, s in zip(spoken, steps, strict=False)):
        first = next((i for i, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
        return messages[:first] + [m for k, s in enumerate(steps) for m in _turn(k, s)]
    merged, index = list[dict[str, Any]](), 0
    for message, follows in zip(messages, [*messages[1:], None], strict=True):
        merged.append(message)
        if message["role"] != "assistant":
            continue
        if follows is not None and follows["role"] == "tool":
            follows.update(_audit(steps[index]))
        elif follows is None:
            merged += _observed(steps[index], message)
        index += 1
    return merged + [m for k, s in enumerate(steps[index:], index) for m in _turn(k, s)]


def _list(record: dict[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"`{key}` must be a list, got {type(value).__name__}")
    return value or []


def _step(raw: Any, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object with action and observation, got {type(raw).__name__}")
    return raw


def _same(message: dict[str, Any], step: dict[str, Any]) -> bool:
    """Return whether a message of the history is the agent's in this step."""
    text, action = text_of(message["content"]).strip(), _text(step, "action").strip()
    if action and as_text(message.get("action", "")).strip() == action:
        return True
    return text in (_text(step, "response").strip(), _text(step, "thought").strip()) or bool(action and action in text)


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return "" if value is None else as_text(value)


# ---- the history -----------------------------------------------------------------------------------------------------


def history(raw: list[Any]) -> list[dict[str, Any]]:
    """Read a history; messages after the agent's first that are not its own are observations.

    Demonstrations are the user's: their own roles stay as labels in the text, for they are no steps of this run.
    """
    messages, spoken = list[dict[str, Any]](), False
    for i, entry in enumerate(raw):
        message = _entry(chat_message(entry, f"history[{i}]"))
        if message.get("is_demo"):
            _add_demo(messages, message)
            continue
        spoken = spoken or message["role"] == "assistant"
        if message["role"] == "user" and spoken:
            message |= {"role": "tool", "name": message.get("name", ENVIRONMENT)}
        messages.append(message)
    return messages


def _entry(message: dict[str, Any]) -> dict[str, Any]:
    """Bring a history entry to the OpenAI shape, without SWE-agent's repetitions."""
    content = message["content"]
    if isinstance(content, list) and all(set(p) <= {"type", "text", "cache_control"} and "text" in p for p in content):
        message["content"] = content = text_of(content)
    ids = message.pop("tool_call_ids", None)
    if ids and isinstance(ids, list):
        message["tool_call_id"] = as_text(ids[0])
        if ids[1:]:
            message["tool_call_ids"] = ids
    blocks = message.pop("thinking_blocks", None)
    if blocks and isinstance(blocks, list) and "reasoning_content" not in message:
        texts = [_text(b, "thinking") or "[redacted thinking]" if isinstance(b, dict) else as_text(b) for b in blocks]
        message["reasoning_content"] = "\n".join(texts)
    thought = message.get("thought")
    if isinstance(thought, str) and thought.strip() in text_of(content):
        del message["thought"]
    return message


def _add_demo(messages: list[dict[str, Any]], demo: dict[str, Any]) -> None:
    """Add a demonstration; consecutive messages of it are one of the user's."""
    text = text_of(demo["content"]) or as_text(demo["content"] or "")
    for call in demo.get("tool_calls", ()):
        text += f"\n{call['name']} {as_text(call['arguments'])}"
    last = messages[-1] if messages and messages[-1].get("is_demo") else None
    if last is not None:
        last["content"] += f"\n[{demo['role']}] {text}"
    elif demo["role"] == "user":
        messages.append({**demo, "content": text})
    else:
        messages.append({"role": "user", "content": f"[{demo['role']}] {text}", "is_demo": True})


# ---- the trajectory --------------------------------------------------------------------------------------------------


def _turn(k: int, step: dict[str, Any]) -> list[dict[str, Any]]:
    """Read one step: the agent's text and, where that does not show it, its command as a call."""
    text = text_field(step, "response", "thought") or ""
    action = _text(step, "action").strip()
    if (
        not _text(step, "response").strip() and not action
    ):  # the framework's own: an exit for cost, a submission by itself
        note = "\n".join(line for line in (text, _text(step, "observation")) if line.strip())
        return [{"role": "tool", "name": ENVIRONMENT, "content": note, **_audit(step)}] if note else []
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if action and action not in text:
        message["tool_calls"] = [
            {"id": f"step_{k + 1}", "name": "bash", "arguments": {"command": _text(step, "action")}}
        ]
    return [message, *_observed(step, message)]


def _observed(step: dict[str, Any], message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a step's observation, as the answer to the message's last call; none where it is empty."""
    observation = _text(step, "observation")
    if not observation:
        return []
    calls = message.get("tool_calls")
    answers = {"tool_call_id": calls[-1]["id"]} if calls and calls[-1].get("id") else {"name": ENVIRONMENT}
    return [{"role": "tool", "content": observation, **answers, **_audit(step)}]


def _audit(step: dict[str, Any]) -> dict[str, Any]:
    """Return the command's duration, and the state it left."""
    seconds, state, extra = step.get("execution_time"), step.get("state"), step.get("extra_info")
    timed = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return (
        ({"duration_s": seconds} if timed else {})
        | ({"state": state} if state else {})
        | ({"extra_info": extra} if extra else {})
    )
