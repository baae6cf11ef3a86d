"""What a judge said of an OpenTelemetry trace, as that trace's `gen_ai.evaluation.result` events (GenAI semantic conventions).

An event is a log record beside the trace's root span: a collector takes the lines as they are (OTLP JSON, `resourceLogs`), and the
`otel` reader reads them back as `meta["evaluations"]` where they stand in one file with their spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rrm.data.feedback import Feedback
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Trajectory
from rrm.readers.chat import as_text
from rrm.readers.export_names import name_of
from rrm.readers.otel import EVALUATION

TRACE_ID, SPAN_ID = re.compile(r"[0-9a-fA-F]{32}"), re.compile(r"[0-9a-fA-F]{16}")
Object = dict[str, Any]


def to_otel(trajectory: Trajectory, feedback: Feedback, time_ns: int) -> Object:
    """One OTLP document with an event for the score, named `agent_rrm` (a relative one of `rrm rank`: `agent_rrm.rank`), and one for each
    criterion, `agent_rrm.CRITERION`.

    A row without a score has no number: its event says the status as `error.type`.

    Args:
        time_ns: when the judgement was there, in nanoseconds since 1970.

    Raises:
        ValueError: the transcript names no trace and span in hexadecimal, so an event could belong to none.
    """
    trace, span = trajectory.meta.get("trace_id"), trajectory.meta.get("span_id")
    if not isinstance(trace, str) or not TRACE_ID.fullmatch(trace):
        raise ValueError(
            f"{_named(trajectory)} has no meta.trace_id of 32 hexadecimal digits: it is from no `otel` trace"
        )
    if not isinstance(span, str) or not SPAN_ID.fullmatch(span):
        raise ValueError(
            f"{_named(trajectory)} has no meta.span_id of 16 hexadecimal digits: read the trace's own file again"
        )
    place = {"timeUnixNano": str(time_ns), "observedTimeUnixNano": str(time_ns), "eventName": EVALUATION}
    place |= {"traceId": trace.lower(), "spanId": span.lower()}
    records = [{**place, "attributes": _attributes(said)} for said in _events(feedback)]
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes({"service.name": "agent-rrm"})},
                "scopeLogs": [{"scope": {"name": OURS}, "logRecords": records}],
            }
        ]
    }


def _named(trajectory: Trajectory) -> str:
    format = trajectory.source.format if trajectory.source else None
    return f"transcript {trajectory.id!r} (format {format or 'unknown'})"


def _events(feedback: Feedback) -> Iterator[Object]:
    """The attributes of each event; those without a value are None."""
    judge = feedback.judge
    about = {
        f"{OURS}.judge.model": judge.model,
        f"{OURS}.judge.prompt_version": judge.prompt_version,
        f"{OURS}.judge.mode": judge.mode,
        f"{OURS}.judge.criteria": judge.criteria,
    }
    yield {
        "gen_ai.evaluation.name": name_of(feedback),
        "gen_ai.evaluation.score.value": feedback.score,
        "gen_ai.evaluation.explanation": feedback.critique if feedback.score is not None else feedback.reason,
        "error.type": None if feedback.status == "scored" else feedback.status,
        f"{OURS}.raw_score": feedback.raw_score,
        f"{OURS}.coverage": feedback.coverage,
        f"{OURS}.rank.position": feedback.rank and feedback.rank.position,
        f"{OURS}.rank.n_compared": feedback.rank and feedback.rank.n_compared,
        f"{OURS}.findings": [
            f"[step {f.step}] {f.verdict}: {f.text}" if f.text else f"[step {f.step}] {f.verdict}"
            for f in feedback.findings
        ],
        **about,
    }
    for name, answer in (feedback.criteria or {}).items():
        yield {
            "gen_ai.evaluation.name": f"{OURS}.{name}",
            "gen_ai.evaluation.score.value": answer.value,
            "gen_ai.evaluation.score.label": answer.label,
            "gen_ai.evaluation.explanation": answer.why,
            **about,
        }


def _attributes(said: Object) -> list[Object]:
    """OTLP's list of keys and typed values, of what has a value."""
    return [{"key": key, "value": _value(value)} for key, value in said.items() if value not in (None, [])]


def _value(value: Any) -> Object:
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"intValue": str(value)}  # 64 bits are text in protobuf's JSON
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": as_text(value).encode("utf-8", "replace").decode()}  # protobuf takes no lone surrogate
