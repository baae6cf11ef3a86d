"""Write trajectories and judgements in other frameworks' formats; the reverse of `rrm.readers`.

`to_atif` writes documents; `to_inspect` the fields of Inspect's own `Score`, for the sample's log (`examples/inspect_scores.py` puts
them there); `to_otel` a trace's `gen_ai.evaluation.result` events, log records (OTLP JSON, `resourceLogs`) beside its root span, which
the `otel` reader reads back as `meta["evaluations"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rrm.data.feedback import Feedback
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Trajectory
from rrm.readers.atif_export import to_atif
from rrm.readers.chat import as_text
from rrm.readers.otel import EVALUATION

__all__ = ["to_atif", "to_inspect", "to_otel"]
TRACE_ID, SPAN_ID = re.compile(r"[0-9a-fA-F]{32}"), re.compile(r"[0-9a-fA-F]{16}")
Object = dict[str, Any]


def _name(feedback: Feedback) -> str:
    """Name a score: `agent_rrm`, a relative one `agent_rrm.rank`, so that no mean mixes the two."""
    return OURS if feedback.rank is None else f"{OURS}.rank"


def _named(trajectory: Trajectory) -> str:
    format = trajectory.source.format if trajectory.source else None
    return f"transcript {trajectory.id!r} (format {format or 'unknown'})"


def to_inspect(trajectory: Trajectory, feedback: Feedback) -> Object:
    """Return one line: log, sample, epoch and scores, `agent_rrm` and `agent_rrm.CRITERION` of each.

    A relative score is named `agent_rrm.rank`.

    Raises:
        ValueError: the transcript is of no Inspect sample, or the row has no score (a failure is never a number).
    """
    meta, source = trajectory.meta, trajectory.source
    sample, epoch = meta.get("sample_id"), meta.get("epoch")
    missing = [
        f"meta.{name}"
        for name, value in (("sample_id", sample), ("epoch", epoch))
        if not isinstance(value, str | int if name == "sample_id" else int) or isinstance(value, bool)
    ]
    if missing:
        raise ValueError(f"{_named(trajectory)} has no {' and no '.join(missing)}: it is no Inspect sample")
    if feedback.score is None:
        raise ValueError(f"transcript {trajectory.id!r} has no score: {feedback.status}")
    ids = {"log": source.file if source else None, "eval_id": meta.get("eval_id")}
    return {
        **{key: value for key, value in ids.items() if isinstance(value, str)},
        "sample_id": sample,
        "epoch": epoch,
        "scores": _scores(feedback),
    }


def said(feedback: Feedback) -> Object:
    """Return the fields of a judgement that go into a score's metadata."""
    fields = {"status", "raw_score", "coverage", "judge", "findings", "criteria", "rank"}
    return feedback.model_dump(mode="json", exclude_none=True, include=fields)


def _scores(feedback: Feedback) -> dict[str, Object]:
    scores = {_name(feedback): _score(feedback.score, None, feedback.critique, said(feedback))}
    for name, answer in (feedback.criteria or {}).items():
        if answer.value is not None:  # one that does not apply has none: Inspect would count a word as 0
            scores[f"{OURS}.{name}"] = _score(answer.value, answer.label, answer.why, {"steps": answer.steps})
    return scores


def _score(value: float | None, answer: str | None, explanation: str | None, metadata: Object) -> Object:
    return {"value": value, "answer": answer, "explanation": explanation, "metadata": metadata}


def to_otel(trajectory: Trajectory, feedback: Feedback, time_ns: int) -> Object:
    """Return one OTLP document: an event for the score (named as in `to_inspect`) and one per criterion.

    A row without a score has no number: its event says the status as `error.type`.

    Args:
        time_ns: time of the judgement, in nanoseconds since 1970.

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
    event = {"timeUnixNano": str(time_ns), "observedTimeUnixNano": str(time_ns), "eventName": EVALUATION}
    event |= {"traceId": trace.lower(), "spanId": span.lower()}
    records = [{**event, "attributes": _attributes(attributes)} for attributes in _events(feedback)]
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes({"service.name": "agent-rrm"})},
                "scopeLogs": [{"scope": {"name": OURS}, "logRecords": records}],
            }
        ]
    }


def _events(feedback: Feedback) -> Iterator[Object]:
    """Yield the attributes of each event; those without a value are None."""
    judge = feedback.judge
    about = {
        f"{OURS}.judge.model": judge.model,
        f"{OURS}.judge.prompt_version": judge.prompt_version,
        f"{OURS}.judge.mode": judge.mode,
        f"{OURS}.judge.criteria": judge.criteria,
    }
    yield {
        "gen_ai.evaluation.name": _name(feedback),
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


def _attributes(attributes: Object) -> list[Object]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items() if value not in (None, [])]


def _value(value: Any) -> Object:
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"intValue": str(value)}  # 64 bits are text in protobuf's JSON
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(v) for v in value]}}
    return {"stringValue": as_text(value).encode("utf-8", "replace").decode()}  # protobuf takes no lone surrogate
