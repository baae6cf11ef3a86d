"""Graders: functions (task, answer) → [0, 1], with which an environment turns a final answer into an outcome.

An answer that matches any of the task's references counts. Nothing else is read into an answer: "unknown" is not "no".
"""

import string
from collections import Counter
from collections.abc import Callable

from reagent.env.task import Task
from rrm.data.text import numbers, same_number, squad_normalise

Grader = Callable[[Task, str], float]
CLOSED = frozenset({"yes", "no", "noanswer"})
"""Answers that are wholly right or wholly wrong (`f1_closed`)."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _words(text: str, reference: str) -> list[str]:
    """The words of a text as it is compared with a reference: normalised, as far as that leaves any of the reference.

    SQuAD's normalisation leaves nothing of the choice "A", nor of "The", nor of "+": such a reference keeps its articles,
    or, where it is punctuation alone, that as well.
    """
    if squad_normalise(reference):
        return squad_normalise(text).split()
    if reference.translate(_PUNCTUATION).strip():
        return text.lower().translate(_PUNCTUATION).split()
    return text.lower().split()


def exact_match(task: Task, answer: str) -> float:
    """1.0 where the normalised answer equals a normalised reference (SQuAD's EM), else 0.0.

    A reference of which normalisation leaves nothing ("A" of a multiple choice) is compared as it is, but for case.
    """
    return float(any(_words(answer, reference) == _words(reference, reference) for reference in task.references))


def f1(task: Task, answer: str) -> float:
    """Word-overlap F1 with the best reference (SQuAD): 2PR/(P + R) over bags of normalised words, of a reference that
    normalisation leaves nothing of as in `exact_match`."""
    return max(_overlap(_words(answer, reference), _words(reference, reference)) for reference in task.references)


def f1_closed(task: Task, answer: str) -> float:
    """F1 as HotpotQA's and 2WikiMultihopQA's evaluation scripts count it: as `f1`, but yes, no and noanswer have words in common
    with nothing but themselves, whichever side says them."""
    return max(_overlap_closed(answer, reference) for reference in task.references)


def _overlap_closed(answer: str, reference: str) -> float:
    said, wanted = _words(answer, reference), _words(reference, reference)
    if said != wanted and any(len(words) == 1 and words[0] in CLOSED for words in (said, wanted)):
        return 0.0
    return _overlap(said, wanted)


def _overlap(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted))


def last_number(text: str) -> float | None:
    """The last of a text's `numbers`."""
    found = numbers(text)
    return found[-1] if found else None


def numeric(task: Task, answer: str) -> float:
    """1.0 where the answer's last number equals a reference's to a relative 1e-6, else 0.0.

    GSM8K's convention (Cobbe et al. 2021, arXiv 2110.14168: the final number counts), with tolerance for thousands commas, units and
    trailing zeros. Raises ValueError: the reference holds no number.
    """
    said = last_number(answer)
    for reference in task.references:
        wanted = last_number(reference)
        if wanted is None:
            raise ValueError(f"task {task.id!r}: its reference {reference!r} holds no number; grade by exact_match")
        if said is not None and same_number(said, wanted):
            return 1.0
    return 0.0


REFERENCE_GRADERS: tuple[Grader, ...] = (exact_match, f1, f1_closed, numeric)
"""Graders that compare with the task's answer: without one there is nothing to grade by."""
