"""The leak filter: a judge's text must not tell the policy an answer its attempt never met."""

import re

from reagent.env.task import Task
from rrm.data import text as texts
from rrm.data.trajectory import Trajectory

_ANCHOR = re.compile(r"\[step (\d{1,6})\]")


def leaks(text: str, task: Task, attempt: Trajectory) -> bool:
    """True where a judge's text holds one of the task's answers, in any form, and the attempt does not."""
    if task.answer is None:
        return False
    steps = len(attempt.steps)
    content = _ANCHOR.sub(lambda anchor: " " if 1 <= int(anchor[1]) <= steps else anchor[0], text)
    return texts.leaks(content, task.references, texts.transcript_text(attempt), yes_no=True)
