"""Rows and judgements that the tests of evaluation measure."""

from __future__ import annotations

from typing import Any

from rrm.data.feedback import Feedback, JudgeInfo, Status
from rrm.data.trajectory import Message, Trajectory


def run(
    id: str,
    question: str | None,
    outcome: float | None,
    *,
    steps: int = 1,
    say: str = "hm",
    task: str = "q",
    **meta: Any,
) -> Trajectory:
    turns = [
        m for k in range(steps) for m in (Message(role="assistant", content=say), Message(role="tool", content=str(k)))
    ]
    messages = [Message(role="user", content=task), *turns]
    return Trajectory(id=id, task=task, question_id=question, messages=messages, outcome=outcome, meta=meta)


def judged(
    id: str,
    score: float | None,
    *,
    status: Status = "scored",
    raw: float | None = None,
    mode: Any = "full",
    **parts: Any,
) -> Feedback:
    info = JudgeInfo(model="m", prompt_version="1", mode=mode)
    return Feedback(id=id, status=status, score=score, raw_score=score if raw is None else raw, judge=info, **parts)
