"""`langfuse`: Langfuse's exported traces, observations or pages of the API. One trace is one run.

Generations give the messages, joined as in `otel` (in their order where each was given only what is new); tool observations (and spans
named like a called tool) the results. A trace's only score is the outcome where its name says success; others are named in
`meta["outcome_fields"]` for `--outcome`. Fields: https://api.reference.langfuse.com (traces, observations, scores).
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
    """Match a trace that lists its observations, one observation, or a page (`data`) of either."""
    if not isinstance(value, dict):
        return False
    page = value.get("data")
    return (isinstance(page, list) and bool(page) and all(map(_is_record, page))) or _is_record(value)


def _is_record(value: Any) -> bool:
    """Match a trace or an observation."""
    if not isinstance(value, dict):
        return False
    listed = value.get("observations")
    if isinstance(listed, list) and "messages" not in value:
        # a list of traces holds observations by their ids, and other data sets have texts of this name
        is_trace = any(isinstance(o, dict) for o in listed) or any(key in value for key in OF_A_TRACE)
        return is_trace and all(isinstance(o, str) or (isinstance(o, dict) and _kind(o) in TYPES) for o in listed)
    return _kind(value) in TYPES and _get(value, "traceId") is not None and "id" in value


def _kind(observation: Record) -> str:
    type_name = observation.get("type")
    return type_name if isinstance(type_name, str) else ""


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield a file's traces in order: the trace's fields, and all its `observations`."""
    traces: dict[str, tuple[Record, SourceItem, list[int | None]]] = {}
    for item in (entry for source in items for entry in _listed(source)):
        if not isinstance(item.value, dict):
            yield ReadError(
                item.path, item.line, f"a trace is an object, got {type(item.value).__name__} (format {NAME})"
            )
            continue
        is_trace = isinstance(item.value.get("observations"), list)
        name = own_id(item.value) if is_trace else as_text(_get(item.value, "traceId"))
        record, _, lines = traces.setdefault(name or f"{item.default_id()}", ({"observations": []}, item, []))
        lines.append(item.line)
        if is_trace:
            listed = item.value["observations"]
            ids = {own_id(o) for o in record["observations"] if isinstance(o, dict)}
            fresh = [o for o in listed if not isinstance(o, dict) or own_id(o) is None or own_id(o) not in ids]
            record |= {**item.value, "observations": [*record["observations"], *fresh]}
        else:
            record["observations"].append(item.value)
    for name, (record, item, lines) in traces.items():
        trace_item = SourceItem(record, item.path, item.line, context={"trace": name, "lines": len(lines)})
        yield from with_subagents(trace_item, name, _assembled)


def _listed(item: SourceItem) -> list[SourceItem]:
    """Return a page's traces or observations; anything else as it is."""
    page = item.value.get("data") if isinstance(item.value, dict) and not _is_record(item.value) else None
    return [replace(item, value=entry) for entry in page] if isinstance(page, list) else [item]


def parse(item: SourceItem) -> Trajectory:
    record, conversation = item.value, item.context.get("found") or _assembled(item)
    observations = _objects(record)
    named = len(record["observations"]) - len(observations)
    messages = conversation.messages or _messages(record.get("input"), "user", "input")
    if not conversation.messages and messages:  # a trace without a generation: what it was asked, and what it said
        messages = messages + _messages(record.get("output"), "assistant", "output")
    if not messages:
        only = f"; {named} are only named by id: export them too" if named else ""
        raise ValueError(f"no messages in {len(observations)} observations{only}")
    behind, more = subagent(item, conversation)
    outcome, fields = (None, {}) if behind else _outcome(record)
    meta = _meta(item, observations) | more | fields | ({"observations_not_exported": named} if named else {})
    offered = (tool_list(raw) for o in observations if (raw := _tools(o)))
    tools, id = max((t for t in offered if t), key=len, default=None), item.context["trace"] + behind
    return make(item, NAME, messages, meta=meta, id=id, outcome=outcome, tools=tools)


def _objects(record: Record) -> list[Record]:
    observations = [o for o in record["observations"] if isinstance(o, dict)]
    return sorted(observations, key=_start)


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
    for id, o in zip(ids, observations, strict=True):
        if _kind(o) == "GENERATION":
            calls[id] = _call(o)
    called_names = {call["name"] for c in calls.values() for m in c.wrote for call in m.get("tool_calls") or []}
    parent_ids = set(parents.values())
    tools = {
        id: o
        for id, o in zip(ids, observations, strict=True)
        if _kind(o) == "TOOL"
        or (_kind(o) == "SPAN" and id not in parent_ids and as_text(_get(o, "name")) in called_names)
    }
    return assemble(placed(calls.items(), parents, tools, agents), [_tool_run(o) for o in tools.values()], join=True)


def _call(observation: Record) -> ModelSpan:
    history = _messages(observation.get("input"), "user", f"observation {own_id(observation)} input")
    wrote = _messages(observation.get("output"), "assistant", f"observation {own_id(observation)} output")
    usage = next((u for k in ("usageDetails", "usage") if isinstance(u := _get(observation, k), dict) and u), None)
    for message in wrote:
        for key, value in (
            ("timestamp", _get(observation, "endTime")),
            ("usage", usage),
            ("model", _model(observation)),
        ):
            if value is not None:
                message.setdefault(key, value)
    return ModelSpan(history, wrote, _start(observation))


def _model(observation: Record) -> Any:
    """Return the model's name, as given where the record knows no model of its own."""
    return _get(observation, "model") or _get(observation, "providedModelName")


def _tool_run(observation: Record) -> ToolRun:
    start, end = seconds(_get(observation, "startTime")), seconds(_get(observation, "endTime"))
    failed, message = observation.get("level") == "ERROR", _get(observation, "statusMessage")
    result, number = from_json(observation.get("output")), None
    if isinstance(result, dict) and "content" in result and isinstance(result.get("tool_call_id"), str):
        number, failed = result["tool_call_id"], failed or result.get("status") == "error"  # LangChain's message
        result = result["content"]
    return ToolRun(
        as_text(_get(observation, "name") or ""),
        number,
        from_json(observation.get("input")),
        message if failed and result is None else result,
        failed,
        _start(observation),
        round(end - start, 6) if start is not None and end is not None else None,
        _get(observation, "endTime"),
    )


def _messages(raw: Any, role: str, where: str) -> list[Message]:
    """Return an observation's input or output as chat messages, of any API; else a text or JSON."""
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
        content = next((raw[key] for key in SAID if isinstance(raw.get(key), str)), None)
        return chat_messages([{"role": role, "content": content, "tool_calls": calls}], where)
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
    if isinstance(raw, list) and all(isinstance(text, str) for text in raw):
        return [{"role": role, "content": text} for text in raw]
    return [{"role": role, "content": as_text(raw)}]


def _is_call(value: Any) -> bool:
    """Match a call as Vercel's AI SDK reports those of a reply."""
    return isinstance(value, dict) and isinstance(value.get("toolName"), str) and "toolCallId" in value


def _called(call: Record) -> Message:
    arguments = call.get("input", call.get("args"))
    return {"id": call["toolCallId"], "name": call["toolName"], "arguments": {} if arguments is None else arguments}


def _tools(observation: Record) -> Any:
    inputs, settings = from_json(observation.get("input")), _get(observation, "modelParameters")
    for holder in (inputs, settings):
        if isinstance(holder, dict) and holder.get("tools"):
            return holder["tools"]
    return None


def _outcome(record: Record) -> tuple[RunOutcome | None, dict[str, Any]]:
    """Return a trace's only score where it names success, and the paths of others."""
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
    fields = {
        k: v
        for k, v in record.items()
        if k not in ("observations", "input", "output", "id") and v not in (None, {}, [], "")
    }
    counts = dict(Counter(_kind(o) for o in observations))
    errors = [as_text(_get(o, "statusMessage") or _get(o, "name")) for o in observations if o.get("level") == "ERROR"]
    model = next((m for o in observations if (m := _model(o))), None)
    more = {"model": model, "errors": errors, "runs": counts}
    return fields | {"lines": item.context["lines"]} | {k: v for k, v in more.items() if v}
