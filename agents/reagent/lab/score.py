"""The process score of a lab run, on the grid 0.1.

right answer, nothing wrong                                         1.0
right answer after a wasted step (repeated or malformed call)       0.8
right answer after a corrected mistake (wrong search, misreading)   0.7
wrong or no answer: 0.4 × share of the hops established, at most    0.3
… and answered with a guess that no result holds: 0.2 less, at least 0.0"""

import re
from collections.abc import Collection, Sequence

from reagent.lab.progress import Progress
from rrm.data.trajectory import Message

WASTE = frozenset({"repeated_call", "malformed", "needless"})
"""Faults that cost a step and mislead nobody."""


def process_score(
    progress: Progress, answer: str | None, faults: Collection[str], messages: Sequence[Message]
) -> float:
    """The score of the module's docstring; `faults`: keys of `reagent.lab.wordings.FINDING`."""
    if answer == progress.question.answer:
        return 1.0 if not faults else 0.8 if WASTE.issuperset(faults) else 0.7
    guessed = answer not in (None, "unknown") and not any(
        re.search(rf"\b{re.escape(str(answer))}\b", m.text()) for m in messages if m.role == "tool"
    )
    share = len(progress.values) / len(progress.question.path)
    return round(max(0.0, min(0.3, 0.4 * share) - 0.2 * guessed), 1)
