"""The leak filter: what a judge wrote must not tell the policy an answer that its attempt never came across."""

from __future__ import annotations

import re

from reagent.env.graders import normalise, numbers, same_number
from reagent.env.task import Task
from rrm.evaluation.metrics.text import answer_leak
from rrm.trajectory import Trajectory

_ANCHOR = re.compile(r"\[step (\d{1,6})\]")
"""Its number is the step's, not an answer."""


def transcript_text(trajectory: Trajectory) -> str:
    """Everything the agent, its tools and the task said."""
    parts = [trajectory.task]
    for message in trajectory.messages:
        parts += [message.reasoning_content or "", message.text()]
        parts += [f"{call.name} {call.arguments_text()}" for call in message.tool_calls or ()]
    return "\n".join(parts)


def leaks(text: str, task: Task, attempt: Trajectory) -> bool:
    """Whether a judge's text holds one of the task's answers although the attempt does not.

    An answer is found as `rrm.evaluation.metrics.text.answer_leak` finds it, and in every form the graders take for it: without
    punctuation and articles, and a number however it is written. Answers of one or two characters, and yes and no, count
    as well: a filter may drop one text too many. A task without a reference answer has none to leak.
    """
    if task.answer is None:
        return False
    steps = len(attempt.steps)
    said = _ANCHOR.sub(lambda anchor: " " if 1 <= int(anchor[1]) <= steps else anchor[0], text)
    seen = transcript_text(attempt)
    if answer_leak(said, task.references, seen) in ("leak", "short_leak"):
        return True
    return any(_holds(said, r) for r in task.references) and not any(_holds(seen, r) for r in task.references)


def _holds(text: str, reference: str) -> bool:
    """Whether a text has words, or a number, that a grader takes for the reference."""
    value = numbers(reference)
    if len(value) == 1 and not re.search(r"[^\W\d]", reference):
        return any(same_number(n, value[0]) for n in numbers(text))
    wanted = normalise(reference)
    return bool(wanted) and f" {wanted} " in f" {normalise(text)} "
