"""`otel`: OpenTelemetry traces (GenAI conventions, OpenInference, OpenLLMetry). One trace is one run.

Reads OTLP JSON (`resourceSpans`, `resourceLogs`), one document or one per line, and spans as the SDK's console exporter prints them. The
root agent's conversation is the run, each agent below it a run of its own (`rrm.readers.spans`). Recorded evaluations stay in meta as
`evaluations`; none is the outcome unless `--outcome evaluations.NAME.score` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, describe, make
from rrm.readers.chat import as_text
from rrm.readers.otel_messages import from_json, messages_of, tools_of
from rrm.readers.spans import Conversation, ModelSpan, ToolRun, assemble, placed, seconds, subagent, with_subagents

NAME = "otel"
MARKS = (
    "resourceSpans|resourceLogs|traceId|context.trace_id|trace_id",
    "resourceSpans[].scopeSpans[].spans|resourceLogs[].scopeLogs[].logRecords|spanId|context.span_id|span_id",
)
OVER_FOLDER = False
BATCHES = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "scopeLogs", "scope_logs")
RECORDS = ("spans", "logRecords", "log_records")
EVALUATION = "gen_ai.evaluation.result"
TEXTS = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions")
FLAT = ("llm.input_messages.", "llm.output_messages.", "llm.tools.", "gen_ai.prompt.", "gen_ai.completion.")
MODELS = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
KINDS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind")
INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
Span = dict[str, Any]


def sniff(value: Any) -> bool:
    """An OTLP document, or one span or log record with the ids of its trace."""
    if not isinstance(value, dict):
        return False
    if any(isinstance(value.get(key), list) for key in BATCHES):
        return True
    if "messages" in value:  # a chat that some service logged beside the ids of its trace
        return False
    return _ids(value) is not None and any(
        k in value for k in ("attributes", "events", "startTimeUnixNano", "start_time", "body")
    )


def _ids(raw: Span) -> tuple[str, str, str | None] | None:
    """Return hexadecimal (trace, span, parent) of a span or log record; None where it lacks the first two."""
    holder = raw["context"] if isinstance(raw.get("context"), dict) else raw
    trace = next((v for k in ("traceId", "trace_id") if isinstance(v := holder.get(k), str) and v), None)
    span = next((v for k in ("spanId", "span_id") if isinstance(v := holder.get(k), str) and v), None)
    parent = next(
        (v for k in ("parentSpanId", "parent_span_id", "parent_id") if isinstance(v := raw.get(k), str) and v), None
    )
    if trace is None or span is None:
        return None
    return trace.removeprefix("0x"), span.removeprefix("0x"), parent and parent.removeprefix("0x")


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield a file's traces in order: `{trace_id, attributes (the root's), evaluations, spans}`."""
    traces: dict[str, list[Span]] = {}
    first: dict[str, SourceItem] = {}
    lines: Counter[str] = Counter()
    for item in items:
        own = set[str]()
        try:
            for span in _spans(item.value):
                traces.setdefault(span["trace_id"], []).append(span)
                own.add(span["trace_id"])
        except (ValueError, RecursionError) as error:
            yield ReadError(item.path, item.line, f"{describe(error)} (format {NAME})")
            continue
        if not own:
            yield ReadError(item.path, item.line, f"no span in it that names its trace (format {NAME})")
        for trace in own:
            first.setdefault(trace, item)
            lines[trace] += 1
    for trace, records in traces.items():
        head = first[trace]
        trace_item = SourceItem(_trace(trace, records), head.path, head.line, context={"lines": lines[trace]})
        yield from with_subagents(trace_item, trace, _assembled)


def _spans(value: Any) -> Iterator[Span]:
    """Yield each span and log record of a document, or the value itself, in one shape."""
    if not isinstance(value, dict):
        raise ValueError(f"a span is an object, got {type(value).__name__}")
    if not any(isinstance(value.get(key), list) for key in BATCHES):
        if (span := _span(value, {})) is not None:
            yield span
        return
    for key in BATCHES:
        for batch in _objects(value.get(key)):
            about = batch["resource"] if isinstance(batch.get("resource"), dict) else {}
            resource = _attributes(about.get("attributes"))
            for scope in (s for name in SCOPES for s in _objects(batch.get(name))):
                for raw in (r for name in RECORDS for r in _objects(scope.get(name))):
                    if (span := _span(raw, resource)) is not None:
                        yield span


def _objects(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _span(raw: Span, resource: dict[str, Any]) -> Span | None:
    """One span, or a log record as a span's event (`log`), in one shape; None where it names no trace."""
    if (ids := _ids(raw)) is None:
        return None
    trace, span, parent = ids
    attributes = _attributes(raw.get("attributes"))
    status = raw["status"] if isinstance(raw.get("status"), dict) else {}
    code = as_text(status.get("code", status.get("status_code", "")))
    record: Span = {"trace_id": trace, "span_id": span, "parent_id": parent, "name": as_text(raw.get("name", ""))}
    record |= {"resource": resource or _attributes(get_in(raw, "resource", "attributes")), "attributes": attributes}
    record |= {"failed": code in ("2", "STATUS_CODE_ERROR", "ERROR")}
    record |= {"message": as_text(status.get("message", status.get("description", "")))}
    started = any(k in raw for k in ("startTimeUnixNano", "start_time", "start_time_unix_nano"))
    if not started and any(k in raw for k in ("body", "eventName", "event_name")):
        body = _any(raw.get("body", {}))  # an event of attributes alone has none
        name = raw.get("eventName", raw.get("event_name")) or attributes.get("event.name", "")
        event = {
            "name": as_text(name),
            "attributes": attributes | (body if isinstance(body, dict) else {"content": body}),
        }
        return record | {"log": event, "events": [], "start": _time(raw, "timeUnixNano", "time_unix_nano", "timestamp")}
    record["start"] = _time(raw, "startTimeUnixNano", "start_time_unix_nano", "start_time")
    record["end"] = _time(raw, "endTimeUnixNano", "end_time_unix_nano", "end_time")
    record["events"] = [
        {"name": as_text(e.get("name", "")), "attributes": _attributes(e.get("attributes"))}
        for e in _objects(raw.get("events"))
    ]
    return record


def get_in(raw: Any, *keys: str) -> Any:
    """Return the value under nested keys; None where there is none."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def _time(raw: Span, *keys: str) -> float | None:
    """Return seconds since 1970, from nanoseconds (a number, or its digits) or from ISO text."""
    value = next((raw[k] for k in keys if raw.get(k) is not None), None)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 25:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value / 1e9 if abs(value) < 10**24 else None
    return seconds(value)


def _attributes(raw: Any) -> dict[str, Any]:
    """Return attributes as an object, from OTLP's list of typed values or an exporter's object."""
    if isinstance(raw, dict):
        return raw
    return {as_text(pair["key"]): _any(pair.get("value")) for pair in _objects(raw) if "key" in pair}


def _any(value: Any) -> Any:
    """Return OTLP's typed value as plain JSON; a plain value stays."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((type_name, inner),) = value.items()
    type_name = type_name.replace("_", "").lower()
    if type_name == "intvalue" and isinstance(inner, str) and inner.removeprefix("-").isdecimal() and len(inner) < 25:
        return int(inner)
    if type_name in ("stringvalue", "boolvalue", "doublevalue", "intvalue", "bytesvalue"):
        return inner
    if type_name == "arrayvalue":
        inside = get_in(inner, "values")
        return [_any(v) for v in inside] if isinstance(inside, list) else []
    return _attributes(get_in(inner, "values")) if type_name == "kvlistvalue" else value


def _trace(trace: str, records: list[Span]) -> dict[str, Any]:
    """Sort a trace's spans by start, each with its log records."""
    spans = {s["span_id"]: s for s in records if "log" not in s}
    evaluations, times = dict[str, Any](), Counter[str]()
    for record in sorted((r for r in records if "log" in r), key=_start):
        home = spans.setdefault(record["span_id"], {**record, "name": "", "attributes": {}, "events": [], "end": None})
        home["events"].append(record["log"])
    ordered = sorted(spans.values(), key=_start)
    for span in ordered:
        for event in span["events"]:
            if event["name"] == EVALUATION:
                attributes, name = (
                    event["attributes"],
                    as_text(event["attributes"].get("gen_ai.evaluation.name", "evaluation")),
                )
                parts = (("score", "score.value"), ("label", "score.label"), ("explanation", "explanation"))
                evaluation = {k: attributes.get(f"gen_ai.evaluation.{key}") for k, key in parts}
                evaluations[_free(name, evaluations, times)] = {k: v for k, v in evaluation.items() if v is not None}
    root = next((s for s in ordered if s["parent_id"] not in spans), ordered[0])
    return {
        "trace_id": trace,
        "attributes": root["attributes"],
        "evaluations": evaluations,
        "spans": ordered,
        "root": root,
    }


def _start(span: Span) -> float:
    return span["start"] if span["start"] is not None else 0.0


def _free(name: str, taken: dict[str, Any], times: Counter[str]) -> str:
    """Return the name, or for a repeated one the next free `name#k`; `times` counts requests per name."""
    while True:
        times[name] += 1
        candidate = name if times[name] == 1 else f"{name}#{times[name]}"
        if candidate not in taken:
            return candidate


def parse(item: SourceItem) -> Trajectory:
    record, conversation = item.value, item.context.get("found") or _assembled(item)
    if not conversation.messages:
        raise ValueError(f"no messages in {len(record['spans'])} spans: was recording of message content switched on?")
    behind, more = subagent(item, conversation)
    offered = [tools_of(span["attributes"]) or [] for span in record["spans"]]
    tools = max(offered, key=len, default=[]) or None
    return make(item, NAME, conversation.messages, meta=_meta(item) | more, id=record["trace_id"] + behind, tools=tools)


def _assembled(item: SourceItem) -> Conversation:
    """The conversations of a trace."""
    spans = item.value["spans"]
    calls = list[tuple[str, ModelSpan]]()
    runs = {span["span_id"]: run for span in spans if (run := _tool_run(span)) is not None}
    agents = {span["span_id"]: _agent(span) for span in spans if _kinds(span) & {"invoke_agent", "agent"}}
    parents = {span["span_id"]: span["parent_id"] for span in spans}
    for span in spans:
        if span["span_id"] in runs:
            continue
        history, wrote = messages_of(span)
        for message in wrote:
            if span["end"] is not None:
                message.setdefault("timestamp", span["end"])
        calls.append((span["span_id"], ModelSpan(history, wrote, _start(span))))
    return assemble(placed(calls, parents, runs, agents), list(runs.values()))


def _kinds(span: Span) -> set[str]:
    """Return the operations a span records, one per convention."""
    return {as_text(span["attributes"].get(key, "")).lower() for key in KINDS}


def _agent(span: Span) -> str:
    """The name of a span's agent."""
    name = _first(span["attributes"], "gen_ai.agent.name", "agent.name", "traceloop.entity.name")
    return as_text(name if name is not None else span["name"].removeprefix("invoke_agent "))


def _tool_run(span: Span) -> ToolRun | None:
    """Return the tool's run that a span records; None for another span."""
    data = span["attributes"]
    if not _kinds(span) & {"execute_tool", "tool"}:
        return None
    names = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
    name = next((data[k] for k in names if isinstance(data.get(k), str)), span["name"].removeprefix("execute_tool "))
    result = _first(data, "gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
    number = _first(data, "gen_ai.tool.call.id", "tool_call.id", "tool.id")
    took = span["end"] - span["start"] if span["end"] is not None and span["start"] is not None else None
    return ToolRun(
        name,
        None if number is None else as_text(number),
        from_json(
            _first(data, "gen_ai.tool.call.arguments", "tool.parameters", "input.value", "traceloop.entity.input")
        ),
        span["message"] if result is None and span["failed"] else result,
        span["failed"],
        _start(span),
        None if took is None else round(took, 9),
        span["end"],
    )


def _first(attributes: dict[str, Any], *keys: str) -> Any:
    return next((attributes[k] for k in keys if attributes.get(k) is not None), None)


def _meta(item: SourceItem) -> dict[str, Any]:
    """Return the trace's fields beside its messages."""
    record, spans, root = item.value, item.value["spans"], item.value["root"]
    kinds = Counter(as_text(_first(s["attributes"], *KINDS) or "other")[:40] for s in spans)
    models = [m for s in spans if (m := _first(s["attributes"], *MODELS)) is not None]
    ends = [s["end"] for s in spans if s["end"] is not None]
    starts = [s["start"] for s in spans if s["start"] is not None]
    left = {k: v for k, v in record["attributes"].items() if k not in TEXTS and not k.startswith(FLAT)}
    meta: dict[str, Any] = {"trace_id": record["trace_id"], "span_id": root["span_id"]}
    meta |= {"lines": item.context["lines"], "spans": dict(kinds)}
    optional = {
        "name": root["name"],
        "model": models[0] if models else None,
        "agent": _first(root["attributes"], "gen_ai.agent.name", "agent.name"),
        "conversation_id": next(
            (c for s in spans if (c := _first(s["attributes"], "gen_ai.conversation.id", "session.id"))), None
        ),
        "duration_s": round(max(ends) - min(starts), 9) if ends and starts else None,
        "usage": _usage(spans),
        "errors": [s["message"] or s["name"] for s in spans if s["failed"]],
        "evaluations": record["evaluations"],
        "attributes": left,
        "resource": root["resource"],
    }
    return meta | {k: v for k, v in optional.items() if v not in (None, "", [], {})}


def _usage(spans: list[Span]) -> dict[str, int]:
    """Sum the tokens of the calls alone: an agent's span repeats the sum of its calls."""
    calls = [s for s in spans if not _kinds(s) & {"invoke_agent", "agent", "chain"}]
    usage: dict[str, int] = {}
    for name, keys in (("input_tokens", INPUT_TOKENS), ("output_tokens", OUTPUT_TOKENS)):
        counts = [n for s in calls if isinstance(n := _first(s["attributes"], *keys), int) and not isinstance(n, bool)]
        usage |= {name: sum(counts)} if counts else {}
    return usage
