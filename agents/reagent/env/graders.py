"""Graders: functions (task, answer) → [0, 1]. Any of the task's references counts."""

import string
from collections import Counter
from collections.abc import Callable

from reagent.env.task import Task
from rrm.data.text import numbers, same_number, squad_normalise

Grader = Callable[[Task, str], float]
CLOSED = frozenset({"yes", "no", "noanswer"})

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _words(text: str, reference: str) -> list[str]:
    """The words of a text, normalised as far as that leaves any of the reference.
    SQuAD's normalisation leaves nothing of "A", "The" or "+": such a reference keeps its articles, and punctuation where it has nothing else."""
    if squad_normalise(reference):
        return squad_normalise(text).split()
    if reference.translate(_PUNCTUATION).strip():
        return text.lower().translate(_PUNCTUATION).split()
    return text.lower().split()


def exact_match(task: Task, answer: str) -> float:
    """1.0 where the normalised answer equals a normalised reference (SQuAD's EM), else 0.0."""
    return float(any(_words(answer, reference) == _words(reference, reference) for reference in task.references))


def f1(task: Task, answer: str) -> float:
    """Word-overlap F1 with the best reference (SQuAD): 2PR/(P + R) over bags of normalised words."""
    return max(_overlap(_words(answer, reference), _words(reference, reference)) for reference in task.references)


def f1_closed(task: Task, answer: str) -> float:
    """F1 of HotpotQA's and 2WikiMultihopQA's scripts: yes, no and noanswer match nothing but themselves."""
    return max(_overlap_closed(answer, reference) for reference in task.references)


def _overlap_closed(answer: str, reference: str) -> float:
    words, expected = _words(answer, reference), _words(reference, reference)
    if words != expected and any(len(side) == 1 and side[0] in CLOSED for side in (words, expected)):
        return 0.0
    return _overlap(words, expected)


def _overlap(words: list[str], expected: list[str]) -> float:
    if not words or not expected:
        return float(words == expected)
    common = sum((Counter(words) & Counter(expected)).values())
    return 2 * common / (len(words) + len(expected))


def last_number(text: str) -> float | None:
    values = numbers(text)
    return values[-1] if values else None


def numeric(task: Task, answer: str) -> float:
    """1.0 where the answer's last number equals a reference's to a relative 1e-6, else 0.0.
    GSM8K's convention (Cobbe et al. 2021, arXiv 2110.14168), tolerant of thousands commas, units and trailing zeros. Raises ValueError:
    the reference holds no number."""
    number = last_number(answer)
    for reference in task.references:
        expected = last_number(reference)
        if expected is None:
            raise ValueError(f"task {task.id!r}: its reference {reference!r} holds no number; grade by exact_match")
        if number is not None and same_number(number, expected):
            return 1.0
    return 0.0


REFERENCE_GRADERS: tuple[Grader, ...] = (exact_match, f1, f1_closed, numeric)
"""Graders that compare with the task's answer, and need one."""
