"""Step localisation: does the critique blame the right steps?

The positive class is "bad". As most labelled steps are bad (78 % in MINT), saying "bad" everywhere has a high F1 of that
class: MCC and macro-F1 are reported beside all-bad, position-only and findings taken from another transcript.

Legend: Q questions; a confusion is the last axis (4,) = (bad & said bad, good & said bad, bad & said good, good & said good).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rrm.data.annotation import Annotation, Finding, Verdict, critiques_of
from rrm.data.feedback import clear
from rrm.data.trajectory import Trajectory

StepLabels = list[Verdict | None]
"""One entry a step, None where nobody judged it."""


def step_verdicts(findings: Sequence[Finding], n_steps: int) -> StepLabels:
    """One verdict a step from findings: the majority of those that are clear, a tie is bad, None where there are none."""
    balance, spoken = np.zeros(n_steps, dtype=int), np.zeros(n_steps, dtype=bool)
    for finding in clear(findings):
        if finding.step <= n_steps:
            balance[finding.step - 1] += 1 if finding.verdict == "good" else -1
            spoken[finding.step - 1] = True
    return [("good" if b > 0 else "bad") if s else None for b, s in zip(balance, spoken, strict=True)]


def abstained(findings: Sequence[Finding], n_steps: int) -> list[bool]:
    """Of each step whether the judge abstains on it: it is unsure, and says neither good nor bad."""
    unsure = {finding.step for finding in findings if finding.verdict == "unsure"}
    unsure -= {finding.step for finding in clear(findings)}
    return [step in unsure for step in range(1, n_steps + 1)]


def labels_from_critiques(trajectory: Trajectory) -> StepLabels | None:
    """Step labels from `meta["critiques"]` = [{after_message, good}], `after_message` indexing an assistant message.

    Entries without a verdict, or that point at anything but a step of this (possibly cut) transcript, label nothing.

    Returns:
        One label a step, or None where the trajectory carries no usable critique.
    """
    findings = [
        Finding(step=c.step, verdict="good" if c.good else "bad")
        for c in critiques_of(trajectory)
        if c.step is not None and c.good is not None
    ]
    return step_verdicts(findings, len(trajectory.steps)) if findings else None


def labels_from_annotations(trajectory: Trajectory, annotations: Sequence[Annotation]) -> StepLabels | None:
    """Step labels from the findings of the annotations that `rrm.data.annotation.match` gave to the trajectory.

    The majority counts, ties are bad; None where no finding says good or bad. Annotations of weight 0 say nothing.
    """
    findings = clear(f for a in annotations if a.weight > 0 for f in a.findings or [])
    return step_verdicts(findings, len(trajectory.steps)) if findings else None


def step_labels(trajectory: Trajectory, annotations: Sequence[Annotation]) -> StepLabels | None:
    """What steps are measured against, in `rrm train` and `rrm eval`: all raters' findings, else `meta["critiques"]`."""
    return labels_from_annotations(trajectory, annotations) or labels_from_critiques(trajectory)


def confusion(said_bad: np.ndarray, is_bad: np.ndarray, questions: np.ndarray, n_questions: int) -> np.ndarray:
    """(Q, 4) counts per question from one entry a labelled step: `said_bad`, `is_bad` booleans, `questions` codes."""
    if not said_bad.shape == is_bad.shape == questions.shape:
        raise ValueError(f"one verdict, label and question a step: {said_bad.shape}, {is_bad.shape}, {questions.shape}")
    cell = 2 * ~said_bad.astype(bool) + ~is_bad.astype(bool)
    return np.bincount(questions * 4 + cell, minlength=n_questions * 4).reshape(n_questions, 4).astype(np.float64)


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)


def mcc(counts: np.ndarray) -> np.ndarray:
    """Matthews correlation of confusions (…, 4) → (…); 0 where a row or column is empty (as scikit-learn has it)."""
    tp, fp, fn, tn = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    return _divide(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def f1_bad(counts: np.ndarray) -> np.ndarray:
    """F1 of the class "bad", (…, 4) → (…); 0 where it neither occurs nor is said."""
    tp, fp, fn, _ = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    return _divide(2 * tp, 2 * tp + fp + fn)


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Mean of the two classes' F1, (…, 4) → (…)."""
    return (f1_bad(counts) + f1_bad(np.asarray(counts)[..., ::-1])) / 2


@dataclass(frozen=True)
class OfConfusion:
    """A bootstrap statistic of the drawn questions' summed confusion."""

    measure: str
    """`mcc`, `macro_f1` or `f1_bad`."""
    per_question: np.ndarray
    """(Q, 4)."""

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return {"mcc": mcc, "macro_f1": macro_f1, "f1_bad": f1_bad}[self.measure](counts @ self.per_question)


def donors(n_steps: Sequence[int], seed: int) -> np.ndarray:
    """(N,) for each transcript another one whose findings it gets: the chance level that keeps each step's position.

    Transcripts are ordered by their number of steps, at random within it, and each takes its neighbour's findings; so the
    donor has the same number of steps wherever possible, and is never the transcript itself (N ≥ 2).
    """
    order = np.lexsort((np.random.default_rng(seed).random(len(n_steps)), np.asarray(n_steps)))
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.roll(order, 1)
    return found
