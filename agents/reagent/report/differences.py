"""Tells whether runs differ by more than noise: held-out success, paired over common questions.

Runs whose configs differ only in the seed are one *arm*. Each arm is compared with the first one at its runs' last evaluations (`by_task` of
eval.jsonl). Questions are resampled, the same for both arms; each resample adds the noise of other seeds, drawn from a t distribution as wide
as the runs' means say (paired where the seeds are the same). Seeds are too few to be resampled: of equal arms with two seeds each, one pair in
six was "more than noise". With one seed an arm the interval is over questions alone, and the page says so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reagent.report.runs import RecordedRun, number
from rrm.evaluation.bootstrap import MIN_QUESTIONS, Interval, percentile_interval

RESAMPLES = 5000


@dataclass(frozen=True)
class Arm:
    """Runs of one setting."""

    name: str
    runs: list[RecordedRun]

    @property
    def seeds(self) -> list[str]:
        return [run.seed for run in self.runs]


@dataclass(frozen=True)
class ArmDifference:
    """An arm's held-out success less the first arm's, over their common questions."""

    first: Arm
    other: Arm
    questions: int
    first_success: float | None
    """Mean over those questions and the arm's runs; None without a common question."""
    other_success: float | None
    gap: Interval  # `other` − `first`; bounds None below ten common questions

    @property
    def says(self) -> str:
        low, high = self.gap.low, self.gap.high
        if not self.questions:
            return "measured on no question in common: not comparable"
        if low is None or high is None:
            return f"too few common questions ({self.questions}) to say"
        if low <= 0 <= high:
            return "within noise"
        return "more than noise: better" if low > 0 else "more than noise: worse"


def rates(run: RecordedRun) -> dict[str, float]:
    """Success on each question at the run's last evaluation; empty where eval.jsonl does not say."""
    by_task = run.evaluations[-1].get("by_task") if run.evaluations else None
    if not isinstance(by_task, dict):
        return {}
    return {str(task): rate for task, value in by_task.items() if (rate := number(value)) is not None}


def arms(runs: Sequence[RecordedRun]) -> list[Arm]:
    """Runs of one setting together, in the order of their first."""
    by_setting: dict[str, list[RecordedRun]] = {}
    for run in runs:
        by_setting.setdefault(run.setting, []).append(run)
    return [
        Arm(its[0].name if len(its) == 1 else f"{its[0].name} and {len(its) - 1} more", its)
        for its in by_setting.values()
    ]


def differences(runs: Sequence[RecordedRun], *, seed: int = 0) -> list[ArmDifference]:
    """Every further arm against the first; runs whose evaluations name no questions are left out."""
    measured = arms([run for run in runs if rates(run)])
    return [_difference(measured[0], other, seed) for other in measured[1:]]


def _difference(first: Arm, other: Arm, seed: int) -> ArmDifference:
    tables = [[rates(run) for run in arm.runs] for arm in (first, other)]
    shared = [task for task in tables[0][0] if all(task in row for table in tables for row in table)]
    if not shared:
        return ArmDifference(first, other, 0, None, None, Interval(None, None, None))
    a, b = (np.array([[row[task] for task in shared] for row in table]) for table in tables)
    value = float(b.mean() - a.mean())
    gap = Interval(value, None, None)
    if len(shared) >= MIN_QUESTIONS:
        gap = percentile_interval(value, _resampled(a, b, first.seeds == other.seeds, seed), difference=True)
    return ArmDifference(first, other, len(shared), float(a.mean()), float(b.mean()), gap)


def _resampled(a: np.ndarray, b: np.ndarray, same_seeds: bool, seed: int) -> np.ndarray:
    """(RESAMPLES,) differences of means.

    Args:
        a, b: (runs, Q) success on each question.
        same_seeds: the arms' runs are draws of the same seeds, in the same order.
    """
    rng = np.random.default_rng(seed)
    questions = a.shape[1]
    drawn = rng.multinomial(questions, np.full(questions, 1 / questions), size=RESAMPLES) / questions
    error, freedom = _of_seeds(a.mean(1), b.mean(1), same_seeds)
    other_seeds = error * rng.standard_t(freedom, RESAMPLES) if error else np.zeros(RESAMPLES)
    return drawn @ (b.mean(0) - a.mean(0)) + other_seeds


def _of_seeds(a: np.ndarray, b: np.ndarray, same_seeds: bool) -> tuple[float, float]:
    """Standard error of mean(b) − mean(a) over seeds, and degrees of freedom (Welch's for unlike seeds).
    An arm of one run adds no variance. `a`, `b`: (runs,) mean success of each run."""
    if same_seeds:
        return (float(np.std(b - a, ddof=1)) / len(a) ** 0.5, len(a) - 1.0) if len(a) > 1 else (0.0, 1.0)
    parts = [(float(np.var(means, ddof=1)) / len(means), len(means) - 1) for means in (a, b) if len(means) > 1]
    squared = sum(variance for variance, _ in parts)
    if not squared:
        return 0.0, 1.0
    return squared**0.5, squared**2 / sum(variance**2 / freedom for variance, freedom in parts)
