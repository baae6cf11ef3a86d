"""`atif`: Harbor's Agent Trajectory Interchange Format, ATIF v1.0 to v1.8 (https://harborframework.com/docs/trajectory-format).

A step of the agent's is one message and the results of its observation; what a step says beside (`metrics`, `model_name`, …) stays
on its message under the same name, so that `rrm convert --to atif` gives it back. An embedded subagent's trajectory is a run of its own.
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
    """A document and the subagents' trajectories embedded in it, at any depth; None where it embeds none."""
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
    found = document.get("subagent_trajectories")
    return found if isinstance(found, list) and all(map(sniff, found)) else []


def parse(item: SourceItem) -> Trajectory:
    """One trajectory."""
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
        known = ("task", "question_id", "outcome", "meta", "messages", "extra")
        rest = {k: v for k, v in written.items() if k not in known}
        if "messages" in written:
            messages = as_they_were(messages, written["messages"])
            meta |= _with_findings(meta, record["steps"])
        extra |= {OURS: written["extra"]} if "extra" in written else {}
        held = written["meta"] if isinstance(written.get("meta"), dict) else {}
        meta = {**held, **meta, **({"extra": extra} if extra else {}), **({OURS: rest} if rest else {})}
        if not extra:
            del meta["extra"]
    told = {k: v for k, v in (("task", task), ("question_id", question)) if isinstance(v, str)}
    return make(item, NAME, messages, meta=meta, id=id, outcome=_outcome(record), tools=tools, **told)


def _outcome(record: dict[str, Any]) -> RunOutcome | None:
    """The format has no place for it; producers say it under an `extra`."""
    metrics = record.get("final_metrics")
    own = record.get("extra")
    for place, extra in (
        (f"extra.{OURS}", own.get(OURS) if isinstance(own, dict) else None),
        ("extra", own),
        ("final_metrics.extra", metrics.get("extra") if isinstance(metrics, dict) else None),
    ):
        if isinstance(extra, dict) and (said := find_outcome(extra)) is not None:
            return RunOutcome(said.value, f"{place}.{said.field}")
    return None


def messages_of(steps: list[Any]) -> list[dict[str, Any]]:
    """The messages of a document's steps, each followed by what came back; as `Message` dumps them."""
    made = [m for k, step in enumerate(steps) for m in _messages(step, f"steps[{k}]")]
    return [Message.model_validate(m).model_dump(exclude_none=True) for m in made]


def fingerprint(messages: list[dict[str, Any]]) -> str:
    """16 hex digits over messages, by which the writer's changes know those that they are of."""
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
    if len(set(map(str, order))) != len(order) or not all(type(at) is int and at in places for at in order):
        raise ValueError(f"{where}.order must name each message once at most")
    roles = [m["role"] for m in messages]
    for change in changes:
        try:
            edit(messages, change)
        except ValueError as error:
            raise ValueError(f"{where}.edits: {error}") from error
    if [m.get("role") if isinstance(m, dict) else None for m in messages] != roles:
        raise ValueError(f"{where}.edits may not change who spoke")
    return [messages[at] for at in order]


def _with_findings(meta: dict[str, Any], steps: list[Any]) -> dict[str, Any]:
    """The final metrics with what a judge found of the steps, where a judge's figures stand in them; no message says it."""
    metrics = meta.get("final_metrics")
    extra = metrics.get("extra") if isinstance(metrics, dict) else None
    if not isinstance(metrics, dict) or not isinstance(extra, dict) or not isinstance(judged := extra.get(OURS), dict):
        return {}
    found = list[Any]()
    agents = [step for step in steps if step["source"] == "agent"]
    for k, step in enumerate(agents, 1):
        place = step if step.get("llm_call_count") == 0 else step.get("metrics")
        own = place.get("extra") if isinstance(place, dict) else None
        said = under_our_name(own).get("findings") if isinstance(own, dict) else None
        found += [{"step": k, **one} for one in said if isinstance(one, dict)] if isinstance(said, list) else []
    apart = judged.get("findings", [])
    found += apart if isinstance(apart, list) else []
    return {"final_metrics": {**metrics, "extra": {**extra, OURS: {**judged, "findings": found}}}} if found else {}


def _messages(step: Any, where: str) -> list[dict[str, Any]]:
    """A step's message, then what came back."""
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
    call |= {k: v for k, v in _held(call).items() if k not in ("name", "arguments", "id")}
    return call


def _put_back(message: dict[str, Any], where: str) -> None:
    """Give a message what `rrm.readers.atif_export` found no place for: a result's times, that it is an error, …"""
    held = _held(message)
    if "content" in held:
        held["content"] = chat_content(held["content"])
    if isinstance(calls := held.get("tool_calls"), list):
        held["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    if message["role"] != "system" or held.get("role") != "developer":
        held.pop("role", None)  # the format says who spoke
    message |= held


def _held(place: dict[str, Any]) -> dict[str, Any]:
    """What the writer put under a place's `extra`, which is taken from there; what a judge found of the step stays."""
    extra = place.get("extra")
    ours = extra.get(OURS) if isinstance(extra, dict) else None
    if not isinstance(extra, dict) or not isinstance(ours, dict):
        return {}
    rest = {k: v for k, v in extra.items() if k != OURS}
    rest |= {OURS: {"findings": ours["findings"]}} if "findings" in ours else {}
    place["extra"] = rest
    if not rest:
        del place["extra"]
    return {k: v for k, v in ours.items() if k != "findings"}


def _results(raw: Any, names: dict[Any, str], where: str) -> list[dict[str, Any]]:
    """The results of an observation, in order, each for the call that it names."""
    if raw is None:
        return []
    if not isinstance(raw, dict) or not isinstance(raw.get("results"), list):
        raise ValueError(f"{where} must be an object with a list of `results`")
    made = list[dict[str, Any]]()
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
        made.append(message)
    return made


def content_in(content: Any) -> str | list[dict[str, Any]] | None:
    """Text as it is; of parts, images in the chat API's form (with their media type), others as they are."""
    content = chat_content(content)
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: dict[str, Any]) -> dict[str, Any]:
    source = part.get("source")
    if part.get("type") != "image" or not isinstance(source, dict) or not isinstance(source.get("path"), str):
        return {k: v for k, v in part.items() if v is not None}
    rest = {k: v for k, v in source.items() if k != "path"}
    return {"type": "image_url", "image_url": {"url": source["path"]}, **rest}
