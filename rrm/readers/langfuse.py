"""`langfuse`: traces exported from Langfuse with their observations, observations a line each, or pages of the API. One trace is one run.

Generations give the messages, put together as in `otel` (those that were each given only what was new: in their order); tools' observations
(and spans that bear a called tool's name) the results. A score is the outcome where the trace has one alone and its name says success; others
are named in `meta["outcome_fields"]` for `--outcome`. Fields: https://api.reference.langfuse.com (traces, observations, scores).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import vercel_ai
from rrm.readers.anthropic import has_blocks
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.chat import as_text, is_chat, tool_list
from rrm.readers.google import field as _get
from rrm.readers.langchain import is_messages, message_of
from rrm.readers.langsmith import is_off, says_success
from rrm.readers.messages import chat_messages
from rrm.readers.otel_messages import from_json
from rrm.readers.outcomes import RunOutcome, as_outcome
from rrm.readers.spans import Conversation, ModelSpan, ToolRun, assemble, placed, seconds, subagent, with_subagents

NAME = "langfuse"
MARKS = (
    "observations[].type|traceId|trace_id",
    "observations[].traceId|observations[].id|input|output",
    "type=GENERATION|observations",
)
OVER_FOLDER = False
TYPES = {"GENERATION", "SPAN", "EVENT", "TOOL", "AGENT", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
OF_A_TRACE = ("projectId", "htmlPath", "totalCost")
ASKED = ("messages", "input", "prompt", "question", "query")
SAID = ("output", "answer", "result", "response", "completion", "content", "text")
Record = dict[str, Any]
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A trace that lists its observations, one observation, or a page of either (`data`), as the API gives them."""
    if not isinstance(value, dict):
        return False
    page = value.get("data")
    return (isinstance(page, list) and bool(page) and all(map(_is_one, page))) or _is_one(value)


def _is_one(value: Any) -> bool:
    """Whether it is a trace or an observation."""
    if not isinstance(value, dict):
        return False
    listed = value.get("observations")
    if isinstance(listed, list) and "messages" not in value:
        # a list of traces holds observations by their ids, and other data sets have texts of this name
        whole = any(isinstance(o, dict) for o in listed) or any(key in value for key in OF_A_TRACE)
        return whole and all(isinstance(o, str) or (isinstance(o, dict) and _kind(o) in TYPES) for o in listed)
    return _kind(value) in TYPES and _get(value, "traceId") is not None and "id" in value


def _kind(observation: Record) -> str:
    """An observation's type; '' where it says none."""
    kind = observation.get("type")
    return kind if isinstance(kind, str) else ""


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """The traces of one file, in order of appearance: the trace's fields, and all its `observations`."""
    traces: dict[str, tuple[Record, SourceItem, list[int | None]]] = {}
    for item in (one for held in items for one in _listed(held)):
        if not isinstance(item.value, dict):
            yield ReadError(
                item.path, item.line, f"a trace is an object, got {type(item.value).__name__} (format {NAME})"
            )
            continue
        whole = isinstance(item.value.get("observations"), list)
        name = own_id(item.value) if whole else as_text(_get(item.value, "traceId"))
        record, _, lines = traces.setdefault(name or f"{item.default_id()}", ({"observations": []}, item, []))
        lines.append(item.line)
        if whole:
            listed = item.value["observations"]
            known = {own_id(o) for o in record["observations"] if isinstance(o, dict)}
            fresh = [o for o in listed if not isinstance(o, dict) or own_id(o) is None or own_id(o) not in known]
            record |= {**item.value, "observations": [*record["observations"], *fresh]}
        else:
            record["observations"].append(item.value)
    for name, (record, item, lines) in traces.items():
        made = SourceItem(record, item.path, item.line, context={"trace": name, "lines": len(lines)})
        yield from with_subagents(made, name, _assembled)


def _listed(item: SourceItem) -> list[SourceItem]:
    """The traces or observations of a page; anything else as it is."""
    page = item.value.get("data") if isinstance(item.value, dict) and not _is_one(item.value) else None
    return [replace(item, value=one) for one in page] if isinstance(page, list) else [item]


def parse(item: SourceItem) -> Trajectory:
    """One trace, or an agent below its root, as `gather` gives it."""
    record, found = item.value, item.context.get("found") or _assembled(item)
    observations = _objects(record)
    named = len(record["observations"]) - len(observations)
    messages = found.messages or _messages(record.get("input"), "user", "input")
    if not found.messages and messages:  # a trace without a generation: what it was asked, and what it said
        messages = messages + _messages(record.get("output"), "assistant", "output")
    if not messages:
        only = f"; {named} are only named by id: export them too" if named else ""
        raise ValueError(f"no messages in {len(observations)} observations{only}")
    behind, more = subagent(item, found)
    outcome, fields = (None, {}) if behind else _outcome(record)
    meta = _meta(item, observations) | more | fields | ({"observations_not_exported": named} if named else {})
    offered = (tool_list(found) for o in observations if (found := _tools(o)))
    tools, id = max((t for t in offered if t), key=len, default=None), item.context["trace"] + behind
    return make(item, NAME, messages, meta=meta, id=id, outcome=outcome, tools=tools)


def _objects(record: Record) -> list[Record]:
    found = [o for o in record["observations"] if isinstance(o, dict)]
    return sorted(found, key=_start)


def _start(observation: Record) -> float:
    return seconds(_get(observation, "startTime")) or 0.0


def _assembled(item: SourceItem) -> Conversation:
    """The conversations of a trace."""
    observations = _objects(item.value)
    ids = [own_id(o) or f"{k}" for k, o in enumerate(observations)]
    parents = {
        id: own_id(o, "parentObservationId", "parent_observation_id") for id, o in zip(ids, observations, strict=True)
    }
    agents = {
        id: as_text(_get(o, "name") or "") for id, o in zip(ids, observations, strict=True) if _kind(o) == "AGENT"
    }
    calls = dict[str, ModelSpan]()
    for id, one in zip(ids, observations, strict=True):
        if _kind(one) == "GENERATION":
            calls[id] = _call(one)
    asked = {call["name"] for c in calls.values() for m in c.wrote for call in m.get("tool_calls") or []}
    held = set(parents.values())
    tools = {
        id: one
        for id, one in zip(ids, observations, strict=True)
        if _kind(one) == "TOOL" or (_kind(one) == "SPAN" and id not in held and as_text(_get(one, "name")) in asked)
    }
    return assemble(
        placed(calls.items(), parents, tools, agents), [_tool_run(one) for one in tools.values()], join=True
    )


def _call(one: Record) -> ModelSpan:
    read = _messages(one.get("input"), "user", f"observation {own_id(one)} input")
    wrote = _messages(one.get("output"), "assistant", f"observation {own_id(one)} output")
    usage = next((u for k in ("usageDetails", "usage") if isinstance(u := _get(one, k), dict) and u), None)
    for message in wrote:
        for key, value in (("timestamp", _get(one, "endTime")), ("usage", usage), ("model", _model(one))):
            if value is not None:
                message.setdefault(key, value)
    return ModelSpan(read, wrote, _start(one))


def _model(one: Record) -> Any:
    """The model's name, as it was given where the record knows no model of its own."""
    return _get(one, "model") or _get(one, "providedModelName")


def _tool_run(one: Record) -> ToolRun:
    start, end = seconds(_get(one, "startTime")), seconds(_get(one, "endTime"))
    failed, said = one.get("level") == "ERROR", _get(one, "statusMessage")
    result, number = from_json(one.get("output")), None
    if isinstance(result, dict) and "content" in result and isinstance(result.get("tool_call_id"), str):
        number, failed = result["tool_call_id"], failed or result.get("status") == "error"  # LangChain's message
        result = result["content"]
    return ToolRun(
        as_text(_get(one, "name") or ""),
        number,
        from_json(one.get("input")),
        said if failed and result is None else result,
        failed,
        _start(one),
        round(end - start, 6) if start is not None and end is not None else None,
        _get(one, "endTime"),
    )


def _messages(raw: Any, role: str, where: str) -> list[Message]:
    """What an observation read or wrote, as chat messages: of any API, a text, or (of anything else) its JSON."""
    raw = from_json(raw)
    if raw is None or raw in ("", [], {}):
        return []
    if isinstance(raw, list) and is_messages(raw):
        return [message_of(m, where) for m in raw]
    if is_chat(raw):
        return chat_messages(raw, where)
    if isinstance(raw, list) and (vercel_ai.has_parts(raw) or has_blocks(raw)):
        return chat_messages([{"role": role, "content": raw}], where)
    if isinstance(raw, list) and all(map(_is_call, raw)):
        return chat_messages([{"role": role, "tool_calls": list(map(_called, raw))}], where)
    if isinstance(raw, dict) and isinstance(called := raw.get("toolCalls"), list) and any(map(_is_call, called)):
        calls = [_called(call) for call in called if _is_call(call)]
        said = next((raw[key] for key in SAID if isinstance(raw.get(key), str)), None)
        return chat_messages([{"role": role, "content": said, "tool_calls": calls}], where)
    if isinstance(raw, dict):
        choices = raw.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            return _messages(choices[0].get("message", choices[0].get("text")), role, where)
        if isinstance(raw.get("role"), str) or "tool_calls" in raw:
            return chat_messages([{"role": role, **raw}], where)
        if is_messages([raw]):
            return [message_of(raw, where)]
        for key in ASKED if role == "user" else SAID:
            if isinstance(raw.get(key), str | list) and raw[key]:
                return _messages(raw[key], role, where)
    if isinstance(raw, list) and all(isinstance(one, str) for one in raw):
        return [{"role": role, "content": one} for one in raw]
    return [{"role": role, "content": as_text(raw)}]


def _is_call(value: Any) -> bool:
    """Whether it is a call as Vercel's AI SDK reports those of a reply."""
    return isinstance(value, dict) and isinstance(value.get("toolName"), str) and "toolCallId" in value


def _called(call: Record) -> Message:
    given = call.get("input", call.get("args"))
    return {"id": call["toolCallId"], "name": call["toolName"], "arguments": {} if given is None else given}


def _tools(one: Record) -> Any:
    """The tools that a generation was offered."""
    given, settings = from_json(one.get("input")), _get(one, "modelParameters")
    for place in (given, settings):
        if isinstance(place, dict) and place.get("tools"):
            return place["tools"]
    return None


def _outcome(record: Record) -> tuple[RunOutcome | None, dict[str, Any]]:
    """The trace's score where it is the only one and names success; the paths of all that may be meant."""
    scores = record["scores"] if isinstance(record.get("scores"), list) else []
    scores = [(k, s) for k, s in enumerate(scores) if isinstance(s, dict) and s.get("value") is not None]
    labels = {f"scores[{k}].value": (s, v) for k, s in scores if (v := as_outcome(s["value"])) is not None}
    if len(scores) == 1 and not is_off(scores[0][1]["value"]):
        for path, (score, value) in labels.items():
            if says_success(as_text(score.get("name", ""))):
                return RunOutcome(value, path), {}
    return None, {"outcome_fields": list(labels)} if labels else {}


def _meta(item: SourceItem, observations: list[Record]) -> dict[str, Any]:
    record = item.value
    kept = {
        k: v
        for k, v in record.items()
        if k not in ("observations", "input", "output", "id") and v not in (None, {}, [], "")
    }
    counts = dict(Counter(_kind(o) for o in observations))
    errors = [as_text(_get(o, "statusMessage") or _get(o, "name")) for o in observations if o.get("level") == "ERROR"]
    model = next((m for o in observations if (m := _model(o))), None)
    more = {"model": model, "errors": errors, "runs": counts}
    return kept | {"lines": item.context["lines"]} | {k: v for k, v in more.items() if v}
