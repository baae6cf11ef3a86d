"""The leak filter: what a judge wrote must not tell the policy an answer that its attempt never came across."""

import re

from reagent.env.task import Task
from rrm.data import text as texts
from rrm.data.trajectory import Trajectory

_ANCHOR = re.compile(r"\[step (\d{1,6})\]")
"""Its number is the step's, not an answer."""


def leaks(text: str, task: Task, attempt: Trajectory) -> bool:
    """Whether a judge's text holds one of the task's answers although the attempt does not.

    An answer is found in every form the graders take for it (`rrm.data.text.leaks`): without punctuation and articles, and a
    number however it is written. Answers of one or two characters, and yes and no, count as well: a filter may drop one
    text too many. A task without a reference answer has none to leak.
    """
    if task.answer is None:
        return False
    steps = len(attempt.steps)
    said = _ANCHOR.sub(lambda anchor: " " if 1 <= int(anchor[1]) <= steps else anchor[0], text)
    return texts.leaks(said, task.references, texts.transcript_text(attempt), yes_no=True)
