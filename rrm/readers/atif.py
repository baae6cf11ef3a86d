"""`atif`: Harbor's Agent Trajectory Interchange Format, v1.0 to v1.8.

A step of the agent is one message and its observation's results; other fields of a step (`metrics`, `model_name`, …) stay on its
message under their names, so that `rrm convert --to atif` gives them back. An embedded subagent's trajectory is a run of its own.
Format: https://harborframework.com/docs/trajectory-format.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from rrm.data.own_entries import OURS, under_our_name
from rrm.data.trajectory import Message, Trajectory
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.chat import as_text, chat_content, tool_list
from rrm.readers.json_patch import edit
from rrm.readers.outcomes import RunOutcome, find_outcome

NAME = "atif"
MARKS = ("schema_version", "steps[].source")
VERSION = re.compile(r"ATIF-v\d+(\.\d+)*")
ROLES = {"system": "system", "user": "user", "agent": "assistant"}
ENVIRONMENT = "environment"
"""The name of a result that answers no call."""


def sniff(value: Any) -> bool:
    """`schema_version: "ATIF-v…"` beside a list of steps."""
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    return isinstance(version, str) and VERSION.fullmatch(version) is not None


def explode(value: Any) -> Iterator[tuple[Any, dict[str, Any]]] | None:
    """Yield a document and the subagents' trajectories embedded in it, at any depth; None without any."""
    if not sniff(value) or not _embedded(value):
        return None
    return _runs(value)


def _runs(document: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    waiting: list[tuple[dict[str, Any], dict[str, Any]]] = [(document, {})]
    while waiting:
        run, context = waiting.pop(0)
        yield run, context | {"elsewhere": _embedded(run)}
        parent = {k: run[k] for k in ("trajectory_id", "session_id") if run.get(k) is not None}
        waiting += [(sub, {"parent": parent}) for sub in _embedded(run)]


def _embedded(document: dict[str, Any]) -> list[dict[str, Any]]:
    subagents = document.get("subagent_trajectories")
    return subagents if isinstance(subagents, list) and all(map(sniff, subagents)) else []


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    if not isinstance(record, dict) or not isinstance(record.get("steps"), list):
        raise ValueError("no list of `steps`")
    messages = messages_of(record["steps"])
    agent = record["agent"] if isinstance(record.get("agent"), dict) else {}
    tools = tool_list(agent.get("tool_definitions"))
    used = ["steps", "subagent_trajectories"] if _embedded(record) else ["steps"]
    meta = {k: v for k, v in record.items() if k not in used and v is not None}
    if tools is not None:
        meta["agent"] = {k: v for k, v in agent.items() if k != "tool_definitions"}
    if isinstance(parent := item.context.get("parent"), dict):
        meta["parent"] = parent
    if _embedded(record):
        meta["subagents"] = [own_id(sub, "trajectory_id", "session_id") or "" for sub in _embedded(record)]
    id = own_id(record, "trajectory_id", "session_id")
    extra = dict(record["extra"]) if isinstance(record.get("extra"), dict) else {}
    written = extra.pop(OURS) if isinstance(extra.get(OURS), dict) else {}
    task, question = written.get("task"), written.get("question_id")
    if written:  # by `rrm.readers.atif_export`: what it put there goes back
        reserved = ("task", "question_id", "outcome", "meta", "messages", "extra")
        rest = {k: v for k, v in written.items() if k not in reserved}
        if "messages" in written:
            messages = as_they_were(messages, written["messages"])
            meta |= _with_findings(meta, record["steps"])
        extra |= {OURS: written["extra"]} if "extra" in written else {}
        written_meta = written["meta"] if isinstance(written.get("meta"), dict) else {}
        meta = {**written_meta, **meta, **({"extra": extra} if extra else {}), **({OURS: rest} if rest else {})}
        if not extra:
            del meta["extra"]
    task_fields = {k: v for k, v in (("task", task), ("question_id", question)) if isinstance(v, str)}
    return make(item, NAME, messages, meta=meta, id=id, outcome=_outcome(record), tools=tools, **task_fields)


def _outcome(record: dict[str, Any]) -> RunOutcome | None:
    """The format has no place for it; producers say it under an `extra`."""
    metrics = record.get("final_metrics")
    own = record.get("extra")
    for path, extra in (
        (f"extra.{OURS}", own.get(OURS) if isinstance(own, dict) else None),
        ("extra", own),
        ("final_metrics.extra", metrics.get("extra") if isinstance(metrics, dict) else None),
    ):
        if isinstance(extra, dict) and (outcome := find_outcome(extra)) is not None:
            return RunOutcome(outcome.value, f"{path}.{outcome.field}")
    return None


def messages_of(steps: list[Any]) -> list[dict[str, Any]]:
    """Return the messages of a document's steps, each followed by its results, as `Message` dumps them."""
    messages = [m for k, step in enumerate(steps) for m in _messages(step, f"steps[{k}]")]
    return [Message.model_validate(m).model_dump(exclude_none=True) for m in messages]


def fingerprint(messages: list[dict[str, Any]]) -> str:
    """Hash messages to 16 hex digits, by which the writer's changes know theirs."""
    return hashlib.sha256(json.dumps(messages, sort_keys=True).encode("ascii")).hexdigest()[:16]


def as_they_were(messages: list[dict[str, Any]], written: Any) -> list[dict[str, Any]]:
    """The messages that `rrm.readers.atif_export` made the document of, given those that its steps say.

    Args:
        written: `of`, the fingerprint of what the steps said (a document that others have changed is read as it stands); `edits`; and
            `order`, the place of each message among those of the steps, where it is another.

    Raises:
        ValueError: not what the writer writes.
    """
    if not isinstance(written, dict) or written.get("of") != fingerprint(messages):
        return messages
    where = f"extra.{OURS}.messages"
    changes, order = written.get("edits", []), written.get("order", list(range(len(messages))))
    if not isinstance(changes, list) or not isinstance(order, list):
        raise ValueError(f"{where} must hold lists")
    places = range(len(messages))
    if len(set(map(str, order))) != len(order) or not all(type(index) is int and index in places for index in order):
        raise ValueError(f"{where}.order must name each message once at most")
    roles = [m["role"] for m in messages]
    for change in changes:
        try:
            edit(messages, change)
        except ValueError as error:
            raise ValueError(f"{where}.edits: {error}") from error
    if [m.get("role") if isinstance(m, dict) else None for m in messages] != roles:
        raise ValueError(f"{where}.edits may not change who spoke")
    return [messages[index] for index in order]


def _with_findings(meta: dict[str, Any], steps: list[Any]) -> dict[str, Any]:
    """Return the final metrics with a judge's findings of the steps, which no message holds; {} for none."""
    metrics = meta.get("final_metrics")
    extra = metrics.get("extra") if isinstance(metrics, dict) else None
    if not isinstance(metrics, dict) or not isinstance(extra, dict) or not isinstance(judged := extra.get(OURS), dict):
        return {}
    findings = list[Any]()
    agents = [step for step in steps if step["source"] == "agent"]
    for k, step in enumerate(agents, 1):
        holder = step if step.get("llm_call_count") == 0 else step.get("metrics")
        own = holder.get("extra") if isinstance(holder, dict) else None
        listed = under_our_name(own).get("findings") if isinstance(own, dict) else None
        findings += [{"step": k, **f} for f in listed if isinstance(f, dict)] if isinstance(listed, list) else []
    apart = judged.get("findings", [])
    findings += apart if isinstance(apart, list) else []
    return (
        {"final_metrics": {**metrics, "extra": {**extra, OURS: {**judged, "findings": findings}}}} if findings else {}
    )


def _messages(step: Any, where: str) -> list[dict[str, Any]]:
    """Return a step's message and its results."""
    if not isinstance(step, dict):
        raise ValueError(f"{where} must be an object with source and message, got {type(step).__name__}")
    source = step.get("source")
    if not isinstance(source, str) or source not in ROLES:
        raise ValueError(f"{where}.source is {as_text(source)[:40]!r}; known: {', '.join(ROLES)}")
    used = ("source", "message", "tool_calls", "observation", "reasoning_content")
    message = {k: v for k, v in step.items() if k not in used and v is not None}
    message |= {"role": ROLES[source], "content": content_in(step.get("message"))}
    if step.get("reasoning_content") is not None:
        message["reasoning_content"] = as_text(step["reasoning_content"])
    if "timestamp" in message and not isinstance(message["timestamp"], str):
        message["timestamp"] = as_text(message["timestamp"])
    calls = step.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise ValueError(f"{where}.tool_calls must be a list, got {type(calls).__name__}")
        message["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
        if not calls:
            del message["tool_calls"]
    names = {call.get("id"): call["name"] for call in message.get("tool_calls", ())}
    _put_back(message, where)
    return [message, *_results(step.get("observation"), names, f"{where}.observation")]


def _call(raw: Any, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object, got {type(raw).__name__}")
    call = {k: v for k, v in raw.items() if k not in ("tool_call_id", "function_name") and v is not None}
    arguments = raw.get("arguments")
    if arguments == {} and isinstance(extra := raw.get("extra"), dict) and isinstance(extra.get(OURS), dict):
        arguments = extra[OURS].get("arguments", arguments)  # the agent's were no object, which the format asks for
    call["name"] = as_text(raw.get("function_name", ""))
    call["arguments"] = (
        arguments if isinstance(arguments, dict | str) else {} if arguments is None else as_text(arguments)
    )
    if raw.get("tool_call_id") is not None:
        call["id"] = as_text(raw["tool_call_id"])
    call |= {k: v for k, v in _take_stored(call).items() if k not in ("name", "arguments", "id")}
    return call


def _put_back(message: dict[str, Any], where: str) -> None:
    """Restore what `rrm.readers.atif_export` found no place for: a result's times, that it is an error, …"""
    stored = _take_stored(message)
    if "content" in stored:
        stored["content"] = chat_content(stored["content"])
    if isinstance(calls := stored.get("tool_calls"), list):
        stored["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    if message["role"] != "system" or stored.get("role") != "developer":
        stored.pop("role", None)  # the format says who spoke
    message |= stored


def _take_stored(holder: dict[str, Any]) -> dict[str, Any]:
    """Remove and return the writer's fields under `extra`; a judge's findings of the step stay there."""
    extra = holder.get("extra")
    ours = extra.get(OURS) if isinstance(extra, dict) else None
    if not isinstance(extra, dict) or not isinstance(ours, dict):
        return {}
    rest = {k: v for k, v in extra.items() if k != OURS}
    rest |= {OURS: {"findings": ours["findings"]}} if "findings" in ours else {}
    holder["extra"] = rest
    if not rest:
        del holder["extra"]
    return {k: v for k, v in ours.items() if k != "findings"}


def _results(raw: Any, names: dict[Any, str], where: str) -> list[dict[str, Any]]:
    """The results of an observation, in order, each for the call that it names."""
    if raw is None:
        return []
    if not isinstance(raw, dict) or not isinstance(raw.get("results"), list):
        raise ValueError(f"{where} must be an object with a list of `results`")
    messages = list[dict[str, Any]]()
    for i, result in enumerate(raw["results"]):
        if not isinstance(result, dict):
            raise ValueError(f"{where}.results[{i}] must be an object, got {type(result).__name__}")
        message = {k: v for k, v in result.items() if k not in ("source_call_id", "content") and v is not None}
        message |= {"role": "tool", "content": content_in(result.get("content"))}
        call = result.get("source_call_id")
        if call is None:
            message["name"] = ENVIRONMENT
        else:
            message["tool_call_id"] = as_text(call)
            if as_text(call) in names:
                message["name"] = names[as_text(call)]
        _put_back(message, f"{where}.results[{i}]")
        messages.append(message)
    return messages


def content_in(content: Any) -> str | list[dict[str, Any]] | None:
    """Return text as it is; of parts, images in the chat API's form with their media type."""
    content = chat_content(content)
    return [_part(content_part) for content_part in content] if isinstance(content, list) else content


def _part(content_part: dict[str, Any]) -> dict[str, Any]:
    source = content_part.get("source")
    if content_part.get("type") != "image" or not isinstance(source, dict) or not isinstance(source.get("path"), str):
        return {k: v for k, v in content_part.items() if v is not None}
    rest = {k: v for k, v in source.items() if k != "path"}
    return {"type": "image_url", "image_url": {"url": source["path"]}, **rest}
