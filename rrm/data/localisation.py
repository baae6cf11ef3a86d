"""Step localisation: metrics of whether a critique blames the right steps.

As most labelled steps are bad (78 % in MINT), "bad" everywhere has a high F1: MCC and macro-F1 are reported beside the
baselines all-bad, position-only and another transcript's findings.

Confusions are the last axis (4,) = (bad & predicted bad, good & predicted bad, bad & predicted good, good & predicted good).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rrm.data.annotation import Annotation, Finding, Verdict, critiques_of
from rrm.data.feedback import clear
from rrm.data.trajectory import Trajectory

StepLabels = list[Verdict | None]  # one entry a step, None without a label


def step_verdicts(findings: Sequence[Finding], n_steps: int) -> StepLabels:
    """Return each step's majority verdict, a tie is bad, None without clear findings."""
    balance, spoken = np.zeros(n_steps, dtype=int), np.zeros(n_steps, dtype=bool)
    for finding in clear(findings):
        if finding.step <= n_steps:
            balance[finding.step - 1] += 1 if finding.verdict == "good" else -1
            spoken[finding.step - 1] = True
    return [("good" if b > 0 else "bad") if s else None for b, s in zip(balance, spoken, strict=True)]


def abstained(findings: Sequence[Finding], n_steps: int) -> list[bool]:
    """True for each step of which the judge is unsure and says neither good nor bad."""
    unsure = {finding.step for finding in findings if finding.verdict == "unsure"}
    unsure -= {finding.step for finding in clear(findings)}
    return [step in unsure for step in range(1, n_steps + 1)]


def labels_from_critiques(trajectory: Trajectory) -> StepLabels | None:
    """Label steps from `meta["critiques"]` = [{after_message: index, good}]; None without a usable entry."""
    findings = [
        Finding(step=c.step, verdict="good" if c.good else "bad")
        for c in critiques_of(trajectory)
        if c.step is not None and c.good is not None
    ]
    return step_verdicts(findings, len(trajectory.steps)) if findings else None


def labels_from_annotations(trajectory: Trajectory, annotations: Sequence[Annotation]) -> StepLabels | None:
    """Label steps by the majority of findings of weight above 0, a tie is bad; None without a clear one."""
    findings = clear(f for a in annotations if a.weight > 0 for f in a.findings or [])
    return step_verdicts(findings, len(trajectory.steps)) if findings else None


def step_labels(trajectory: Trajectory, annotations: Sequence[Annotation]) -> StepLabels | None:
    """Labels for `rrm train` and `rrm eval`: all raters' findings, else `meta["critiques"]`."""
    return labels_from_annotations(trajectory, annotations) or labels_from_critiques(trajectory)


def confusion(said_bad: np.ndarray, is_bad: np.ndarray, questions: np.ndarray, n_questions: int) -> np.ndarray:
    """(Q, 4) counts per question from (N,) steps: `said_bad`, `is_bad` booleans, `questions` codes."""
    if not said_bad.shape == is_bad.shape == questions.shape:
        raise ValueError(f"one verdict, label and question a step: {said_bad.shape}, {is_bad.shape}, {questions.shape}")
    cell = 2 * ~said_bad.astype(bool) + ~is_bad.astype(bool)
    return np.bincount(questions * 4 + cell, minlength=n_questions * 4).reshape(n_questions, 4).astype(np.float64)


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)


def mcc(counts: np.ndarray) -> np.ndarray:
    """Matthews correlation of confusions (…, 4) → (…); 0 where a row or column is empty."""
    tp, fp, fn, tn = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    return _divide(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def f1_bad(counts: np.ndarray) -> np.ndarray:
    """F1 of the class "bad", (…, 4) → (…); 0 where it neither occurs nor is predicted."""
    tp, fp, fn, _ = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    return _divide(2 * tp, 2 * tp + fp + fn)


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Mean of the two classes' F1, (…, 4) → (…)."""
    return (f1_bad(counts) + f1_bad(np.asarray(counts)[..., ::-1])) / 2


@dataclass(frozen=True)
class OfConfusion:
    measure: str  # `mcc`, `macro_f1` or `f1_bad`
    per_question: np.ndarray  # (Q, 4)

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return {"mcc": mcc, "macro_f1": macro_f1, "f1_bad": f1_bad}[self.measure](counts @ self.per_question)


def donors(n_steps: Sequence[int], seed: int) -> np.ndarray:
    """(N,) for each transcript another one (N ≥ 2), of the same number of steps where possible.

    Its findings give the chance level that keeps each step's position.
    """
    order = np.lexsort((np.random.default_rng(seed).random(len(n_steps)), np.asarray(n_steps)))
    donor = np.empty(len(order), dtype=np.int64)
    donor[order] = np.roll(order, 1)
    return donor
