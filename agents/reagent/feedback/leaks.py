"""The leak filter: what a judge wrote must not tell the policy an answer that its attempt never came across."""

from __future__ import annotations

import re

from reagent.task import Task
from rrm.metrics.text import answer_leak
from rrm.trajectory import Trajectory

_ANCHOR = re.compile(r"\[step \d{1,6}\]")
"""Its number is the step's, not an answer."""


def transcript_text(trajectory: Trajectory) -> str:
    """Everything the agent, its tools and the task said."""
    parts = [trajectory.task]
    for message in trajectory.messages:
        parts += [message.reasoning_content or "", message.text()]
        parts += [f"{call.name} {call.arguments_text()}" for call in message.tool_calls or ()]
    return "\n".join(parts)


def leaks(text: str, task: Task, attempt: Trajectory) -> bool:
    """Whether a judge's text holds one of the task's answers although the attempt does not (`rrm.metrics.text.answer_leak`).

    Answers of one or two characters, and yes and no, count as well: a filter may drop one text too many. A task without
    a reference answer has none to leak.
    """
    if task.answer is None:
        return False
    said = _ANCHOR.sub(" ", text)
    return answer_leak(said, task.references, transcript_text(attempt)) in ("leak", "short_leak")
