"""Whether runs differ by more than noise: held-out success, paired over the questions that both were measured on.

Runs whose configs differ in nothing but the seed are one *arm*. Each arm is compared with the first one at its runs' last
evaluations (`by_task` of eval.jsonl). Questions and seeds are resampled together; the same seeds in both arms are drawn
together, and so are the questions. With one seed an arm the interval is over questions alone, and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reagent.report.runs import Run, number
from rrm.evaluation.bootstrap import MIN_QUESTIONS, Interval, percentile_interval

RESAMPLES = 5000


@dataclass(frozen=True)
class Arm:
    """Runs of one setting."""

    name: str
    runs: list[Run]

    @property
    def seeds(self) -> list[str]:
        """Of its runs, in their order."""
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class Difference:
    """An arm's held-out success less the first arm's, over the questions that all their runs were measured on."""

    first: Arm
    other: Arm
    questions: int
    first_success: float | None
    """Mean over those questions and the arm's runs; None without a common question."""
    other_success: float | None
    gap: Interval
    """`other` − `first`; bounds None below ten common questions."""

    @property
    def says(self) -> str:
        """The verdict in words."""
        low, high = self.gap.low, self.gap.high
        if not self.questions:
            return "measured on no question in common: not comparable"
        if low is None or high is None:
            return f"too few common questions ({self.questions}) to say"
        if low <= 0 <= high:
            return "within noise"
        return "more than noise: better" if low > 0 else "more than noise: worse"


def rates(run: Run) -> dict[str, float]:
    """Success on each question at the run's last evaluation; empty where eval.jsonl does not say."""
    found = run.evaluations[-1].get("by_task") if run.evaluations else None
    if not isinstance(found, dict):
        return {}
    return {str(task): rate for task, value in found.items() if (rate := number(value)) is not None}


def arms(runs: Sequence[Run]) -> list[Arm]:
    """Runs of one setting together, in the order of their first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.setting, []).append(run)
    return [
        Arm(its[0].name if len(its) == 1 else f"{its[0].name} and {len(its) - 1} more", its) for its in found.values()
    ]


def differences(runs: Sequence[Run], *, seed: int = 0) -> list[Difference]:
    """Every further arm against the first; runs whose evaluations name no questions are left out."""
    measured = arms([run for run in runs if rates(run)])
    return [_difference(measured[0], other, seed) for other in measured[1:]]


def _difference(first: Arm, other: Arm, seed: int) -> Difference:
    tables = [[rates(run) for run in arm.runs] for arm in (first, other)]
    shared = [task for task in tables[0][0] if all(task in found for table in tables for found in table)]
    if not shared:
        return Difference(first, other, 0, None, None, Interval(None, None, None))
    a, b = (np.array([[found[task] for task in shared] for found in table]) for table in tables)
    value = float(b.mean() - a.mean())
    gap = Interval(value, None, None)
    if len(shared) >= MIN_QUESTIONS:
        gap = percentile_interval(value, _resampled(a, b, first.seeds == other.seeds, seed), difference=True)
    return Difference(first, other, len(shared), float(a.mean()), float(b.mean()), gap)


def _resampled(a: np.ndarray, b: np.ndarray, same_seeds: bool, seed: int) -> np.ndarray:
    """(RESAMPLES,) differences of means.

    Args:
        a, b: (runs, Q) success on each question.
        same_seeds: the arms' runs are draws of the same seeds, in the same order.
    """
    rng = np.random.default_rng(seed)
    questions = a.shape[1]
    drawn = rng.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES) / questions

    def weights(runs: int) -> np.ndarray:
        return rng.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES) / runs

    of_a = weights(len(a))
    of_b = of_a if same_seeds else weights(len(b))
    return ((drawn @ b.T) * of_b).sum(1) - ((drawn @ a.T) * of_a).sum(1)
