"""A judged transcript as plain JSON for the page: a light index entry, and the detail it opens."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import ValidationError

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback
from rrm.data.questions import question_of
from rrm.data.trajectory import Message, Step, ToolCall, Trajectory
from rrm.errors import RRMError
from rrm.prompt.rendering import answers
from rrm.report.images import Room, images
from rrm.report.timeline import timeline

LABEL_CHARS = 240
MISSING: dict[str, Any] = {"role": "tool", "missing": True}
"""Placeholder for a result that the log lacks, beside results of parallel calls."""


def to_feedback(row: dict[str, Any]) -> Feedback:
    """Check one output row of `rrm score`; a row that is not `scored` gets the score None.
    Raises RRMError naming the row's id and the fields that are missing or wrong."""
    try:
        feedback = Feedback.model_validate(row)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'row'}: {e['msg']}" for e in error.errors())
        raise RRMError(f"row {row.get('id', '(no id)')!r} is not an output row of `rrm score`: {problems}") from error
    if feedback.status != "scored":
        feedback = feedback.model_copy(update={"score": None, "raw_score": None})
    return feedback


def index_entry(trajectory: Trajectory, feedback: Feedback, chars: int) -> dict[str, Any]:
    """Return the fields by which the list shows, sorts and filters a row; `chars`: transcript length."""
    verdicts = [finding.verdict for finding in feedback.findings]
    note = "" if feedback.status == "scored" else feedback.reason or ""
    return {
        "id": feedback.id,
        "task": _one_line(question(trajectory)),
        "status": feedback.status,
        "score": feedback.score,
        "raw": feedback.raw_score,
        "steps": len(trajectory.steps),
        "chars": chars,
        "seconds": timeline(trajectory).seconds,
        "outcome": trajectory.outcome,
        "group": question_of(trajectory),
        "lowest": min(
            (f.p_good for f in feedback.findings if f.p_good is not None and f.verdict != "unsure"), default=None
        ),
        "good": verdicts.count("good"),
        "bad": verdicts.count("bad"),
        "weak": sum(f.verdict == "good" and f.p_good is not None and f.p_good < 0.5 for f in feedback.findings),
        "unsure": verdicts.count("unsure"),
        "verdict": feedback.verdict,
        "coverage": None if feedback.coverage is None else round(feedback.coverage, 3),
        "outside": feedback.out_of_domain,
        "criteria": criteria_of(feedback),
        "note": _one_line(note),
    }


def detail(
    trajectory: Trajectory,
    feedback: Feedback,
    source: dict[str, Any] | None,
    room: Room,
    second: Feedback | None = None,
    guard: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of a transcript's screen without empty parts, results in the order of calls."""
    return _without_empty(
        {
            **transcript(trajectory, room),
            "question_id": trajectory.question_id,
            **_said(feedback),
            "second": None if second is None else _second(second),
            "spans": timeline(trajectory).rows,
            "guard": guard,
            "source": _finite(source)
            or (trajectory.source.model_dump(exclude_none=True) if trajectory.source else None),
        }
    )


def transcript(trajectory: Trajectory, room: Room) -> dict[str, Any]:
    """Return `{task, tools, prelude, steps}`, without outcome or judgement."""
    return {
        "task": question(trajectory),
        "tools": [_tool(tool) for tool in trajectory.tools or []],
        "prelude": [_message(message, room) for message in trajectory.prelude],
        "steps": [
            {
                "message": _message(step.message, room),
                "observations": [_observation(step, call, m, room) for call, m in answers(step)],
            }
            for step in trajectory.steps
        ],
    }


def criteria_of(feedback: Feedback) -> dict[str, list[Any]] | None:
    """Return `[value, label]` of each answer to criteria; None where there is none."""
    return {name: [a.value, a.label] for name, a in (feedback.criteria or {}).items()} or None


def _said(feedback: Feedback) -> dict[str, Any]:
    return {
        "trace": feedback.trace,
        "critique": feedback.critique,
        "findings": [[f.step, f.verdict, f.text, *_probability(f)] for f in feedback.findings],
        "criteria": [[n, a.label, a.value, a.why or "", a.steps] for n, a in (feedback.criteria or {}).items()],
        "reason": feedback.reason,
        "truncated_tokens": feedback.truncated_tokens,
        "distance": _finite(feedback.domain_distance),
        "rank": None if feedback.rank is None else feedback.rank.model_dump(),
        "usage": None if feedback.usage is None else feedback.usage.model_dump(),
        "judge": _finite(feedback.judge.model_dump(exclude_none=True)),
    }


def _second(feedback: Feedback) -> dict[str, Any]:
    """Return a second judge's words, and its fields of the index entry."""
    own = {
        "status": feedback.status,
        "score": feedback.score,
        "raw": feedback.raw_score,
        "outside": feedback.out_of_domain,
    }
    return {**own, **_without_empty(_said(feedback))}


def _probability(finding: Finding) -> list[float]:
    return [] if finding.p_good is None else [finding.p_good]


def question(trajectory: Trajectory) -> str:
    """Return `task`, or the first user message where `task` is a bare label like `hotpotqa`."""
    task = trajectory.task.strip()
    if len(task.split()) > 1:
        return task
    first = next((m.text().strip() for m in trajectory.prelude if m.role == "user"), "")
    return first or task


def text_length(trajectory: Trajectory) -> int:
    """Count the characters of all messages: text, reasoning and tool-call arguments."""
    return sum(
        len(m.text()) + len(m.reasoning_content or "") + sum(len(c.arguments_text()) for c in m.tool_calls or [])
        for m in trajectory.messages
    )


def _message(message: Message, room: Room) -> dict[str, Any]:
    return _without_empty(
        {
            "role": message.role,
            "name": message.name,
            "text": message.text(),
            "reasoning": message.reasoning_content,
            "images": images(message, room),
            "calls": [_call(call) for call in message.tool_calls or []],
            "at": str(message.timestamp) if message.timestamp is not None else None,
            "seconds": _finite(message.duration_s),
        }
    )


def _observation(step: Step, call: int | None, message: Message | None, room: Room) -> dict[str, Any]:
    """Return a result; of parallel calls with the number, from 1, and the name of its call."""
    fields = MISSING if message is None else _message(message, room)
    if call is None:
        return fields
    return {"name": (step.message.tool_calls or [])[call].name, **fields, "call": call + 1}


def _call(call: ToolCall) -> list[Any]:
    """Return `[name, [[argument, text], …]]`, or `[name, raw text]` for arguments that are no object."""
    if isinstance(call.arguments, str):
        return [call.name, call.arguments]
    return [call.name, [[key, _as_text(value)] for key, value in call.arguments.items()]]


def _tool(tool: dict[str, Any]) -> list[str]:
    """Return `[name, description, definition]` of a tool in OpenAI's nested form or a flat one."""
    inner = tool.get("function")
    body: dict[str, Any] = inner if isinstance(inner, dict) else tool
    return [str(body.get("name", "(unnamed)")), str(body.get("description") or ""), _as_text(body)]


def _as_text(value: Any) -> str:
    """Return strings as they are, anything else as JSON (NaN must not reach the page bare)."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, as JSON has none."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one_line(text: str) -> str:
    """Return the first LABEL_CHARS characters on one line."""
    line = " ".join(text[: LABEL_CHARS * 4].split())
    return line if len(line) <= LABEL_CHARS else line[: LABEL_CHARS - 1] + "…"


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}
