"""Graders: functions (task, answer) → [0, 1], with which an environment turns a final answer into an outcome.

An answer that matches any of the task's references counts. Nothing else is read into an answer: "unknown" is not "no".
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable

from reagent.env.task import Task

Grader = Callable[[Task, str], float]
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}(?!\d))?")


def normalise(text: str) -> str:
    """SQuAD's normalisation (Rajpurkar et al. 2016, arXiv 1606.05250, official evaluation script): lower case, without
    punctuation and the articles a, an, the, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _words(text: str, reference: str) -> list[str]:
    """The words of a text as it is compared with a reference: normalised, as far as that leaves any of the reference.

    SQuAD's normalisation leaves nothing of the choice "A", nor of "The", nor of "+": such a reference keeps its articles,
    or, where it is punctuation alone, that as well.
    """
    if normalise(reference):
        return normalise(text).split()
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


def _overlap(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted))


def numbers(text: str) -> list[float]:
    """The numbers in a text: `1,234.5`, `-3`, `.5`, `2e3`; units, currency signs and a percent sign are ignored."""
    return [float(found.replace(",", "")) for found in _NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))]


def last_number(text: str) -> float | None:
    """The last of a text's `numbers`."""
    found = numbers(text)
    return found[-1] if found else None


def same_number(one: float, other: float) -> bool:
    """Equal to a relative 1e-6 of the second."""
    return abs(one - other) <= 1e-6 * max(abs(other), 1e-9)


def numeric(task: Task, answer: str) -> float:
    """1.0 where the answer's last number equals a reference's to a relative 1e-6, else 0.0.

    GSM8K's convention (Cobbe et al. 2021, arXiv 2110.14168: the final number counts), with tolerance for thousands
    commas, units and trailing zeros.

    Raises:
        ValueError: the reference holds no number.
    """
    said = last_number(answer)
    for reference in task.references:
        wanted = last_number(reference)
        if wanted is None:
            raise ValueError(f"task {task.id!r}: its reference {reference!r} holds no number; grade by exact_match")
        if said is not None and same_number(said, wanted):
            return 1.0
    return 0.0


REFERENCE_GRADERS: tuple[Grader, ...] = (exact_match, f1, numeric)
"""Graders that compare with the task's answer: without one there is nothing to grade by."""
