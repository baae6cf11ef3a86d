"""A judged transcript as the page's two views of it: a light index entry for the list, and the detail it opens.

Everything here is plain JSON made of strings, finite numbers, lists and objects: the page only ever inserts it as text.
"""

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
"""Characters of the task, and of an unscored row's reason, kept in the list; the whole text is in the detail."""
MISSING: dict[str, Any] = {"role": "tool", "missing": True}
"""In place of a result that the log does not have, where it has those of other calls made at once."""


def to_feedback(row: dict[str, Any]) -> Feedback:
    """Check one output row of `rrm score`; the score of a row that is not `scored` is None whatever the row says.

    Raises:
        RRMError: naming the row's id and the fields that are missing or wrong.
    """
    try:
        feedback = Feedback.model_validate(row)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'row'}: {e['msg']}" for e in error.errors())
        raise RRMError(f"row {row.get('id', '(no id)')!r} is not an output row of `rrm score`: {problems}") from error
    if feedback.status != "scored":
        feedback = feedback.model_copy(update={"score": None, "raw_score": None})
    return feedback


def index_entry(trajectory: Trajectory, feedback: Feedback, chars: int) -> dict[str, Any]:
    """What the list needs to show, sort and filter a row. `chars`: length of the transcript in characters."""
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
        "unsure": verdicts.count("unsure"),
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
    """Everything a transcript's own screen shows; empty parts are left out. Results stand in the order of their calls, as the judge reads them.

    Args:
        second: what another judge says of it.
        guard: what a guard said while it went on (`rrm.report.guarded.watched`).
    """
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
    """What was asked and what was done, without a word of how it ended or was judged: `{task, tools, prelude, steps}`."""
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
    """`[value, label]` of each answer to criteria; None where there is none."""
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
    """A second judge's words, and what the first one's list entry holds of its own."""
    own = {
        "status": feedback.status,
        "score": feedback.score,
        "raw": feedback.raw_score,
        "outside": feedback.out_of_domain,
    }
    return {**own, **_without_empty(_said(feedback))}


def _probability(finding: Finding) -> list[float]:
    """The fourth entry of a finding's row: its p_good, where the judge gave one."""
    return [] if finding.p_good is None else [finding.p_good]


def question(trajectory: Trajectory) -> str:
    """What the agent was asked: `task`, or the first user message where `task` is a bare label like `hotpotqa`."""
    task = trajectory.task.strip()
    if len(task.split()) > 1:
        return task
    first = next((m.text().strip() for m in trajectory.prelude if m.role == "user"), "")
    return first or task


def text_length(trajectory: Trajectory) -> int:
    """Characters of all messages: text, reasoning and tool-call arguments."""
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
    """What came back; of calls made at once with the number, from 1, and the name of the call that it is of."""
    made = MISSING if message is None else _message(message, room)
    if call is None:
        return made
    return {"name": (step.message.tool_calls or [])[call].name, **made, "call": call + 1}


def _call(call: ToolCall) -> list[Any]:
    """`[name, [[argument, text], …]]`, or `[name, raw text]` for arguments that were not a JSON object."""
    if isinstance(call.arguments, str):
        return [call.name, call.arguments]
    return [call.name, [[key, _as_text(value)] for key, value in call.arguments.items()]]


def _tool(tool: dict[str, Any]) -> list[str]:
    """`[name, description, definition]` of a tool in OpenAI's nested form or a flat one."""
    inner = tool.get("function")
    body: dict[str, Any] = inner if isinstance(inner, dict) else tool
    return [str(body.get("name", "(unnamed)")), str(body.get("description") or ""), _as_text(body)]


def _as_text(value: Any) -> str:
    """Strings as they are, anything else as JSON (so that NaN, which JSON has not, never reaches the page bare)."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _finite(value: Any) -> Any:
    """JSON without what JSON has not: numbers that are none become None."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one_line(text: str) -> str:
    """The first LABEL_CHARS characters on one line (only as much of the text is looked at as can be needed)."""
    line = " ".join(text[: LABEL_CHARS * 4].split())
    return line if len(line) <= LABEL_CHARS else line[: LABEL_CHARS - 1] + "…"


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}
