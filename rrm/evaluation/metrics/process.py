"""Probabilities of single steps against step labels: ranking, verdicts, the first error.

The positive class is "bad". M labelled steps, Q questions; `p_good` (M,) in [0, 1], `bad` (M,) booleans, `rows` (M,) codes of
transcripts (their steps in order), `questions` (M,) codes in [0, Q).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rrm.data.localisation import mcc
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import Ratio, Statistic
from rrm.evaluation.metrics.pairs import check_rows

HALF = 0.5
MIN_STEPS = 10


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision of finding bad steps as a bootstrap statistic; NaN without a bad step.
    Σ (R_i − R_{i−1}) · P_i over the distinct values of p_good from the lowest; no interpolation."""

    p_good: np.ndarray
    bad: np.ndarray
    questions: np.ndarray

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        check_rows(p_good=self.p_good, bad=self.bad, questions=self.questions)
        if not len(self.p_good):
            return np.full(len(counts), np.nan)
        order = np.argsort(self.p_good, kind="stable")
        ranked, owner, positive = self.p_good[order], self.questions[order], self.bad[order].astype(bool)
        starts = np.flatnonzero(np.r_[True, np.diff(ranked) > 0])  # first step of each group of equal p_good
        values = np.empty(len(counts))
        at_once = max(1, 2_000_000 // len(ranked))
        for b in range(0, len(counts), at_once):
            weights = counts[b : b + at_once][:, owner]  # (b, M)
            hits = np.add.reduceat(weights * positive, starts, axis=1)
            flagged = np.add.reduceat(weights, starts, axis=1).cumsum(axis=1)
            precision = np.divide(hits.cumsum(axis=1), flagged, out=np.zeros_like(flagged), where=flagged > 0)
            total = hits.sum(axis=1)
            above = (hits * precision).sum(axis=1)
            values[b : b + len(weights)] = np.divide(above, total, out=np.full(len(total), np.nan), where=total > 0)
        return values


@dataclass(frozen=True)
class FirstErrorF1:
    """Harmonic mean of first errors found and clean transcripts left alone (arXiv 2412.06559, §3.3)."""

    hits: Ratio
    alarms: Ratio

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        recall, clean = self.hits(counts), 1.0 - self.alarms(counts)
        total = recall + clean
        value = np.divide(2 * recall * clean, total, out=np.zeros_like(total), where=total > 0)
        return np.where(np.isfinite(total), value, np.nan)


def first_errors(
    p_good: np.ndarray,
    bad: np.ndarray,
    rows: np.ndarray,
    questions: np.ndarray,
    n_questions: int,
    threshold: float,
    judge_read: np.ndarray | None = None,
) -> dict[str, Statistic]:
    """Test whether the first labelled step below the threshold is the first one labelled bad.
    `p_good` is NaN of a step that was not read: a first bad step there is missed. Alarms count only in steps that the judge read
    (`judge_read` (M,), None: where `p_good` is known). Returns `first_error`: share found, over transcripts with a bad step;
    `false_alarms`: share alarmed, over the others of which a step was read; `first_error_f1` of both."""
    check_rows(p_good=np.where(np.isnan(p_good), 0.0, p_good), bad=bad, rows=rows, questions=questions)
    n, none = int(rows.max()) + 1 if len(rows) else 0, len(p_good)
    was_read = ~np.isnan(p_good) if judge_read is None else judge_read
    first_bad, first_said = np.full(n, none), np.full(n, none)
    position, is_bad, flagged = np.arange(none), bad.astype(bool), p_good < threshold
    np.minimum.at(first_bad, rows[is_bad], position[is_bad])
    np.minimum.at(first_said, rows[flagged], position[flagged])
    question = np.zeros(n, dtype=np.int64)
    question[rows] = questions
    has_error = first_bad < none

    def share(counted: np.ndarray, among: np.ndarray) -> Ratio:
        sums = [
            np.bincount(question, which, minlength=n_questions).astype(np.float64) for which in (counted & among, among)
        ]
        return Ratio(*sums)

    alarmed, looked_at = (np.bincount(rows[which], minlength=n) > 0 for which in (flagged & was_read, was_read))
    hits, alarms = share(first_said == first_bad, has_error), share(alarmed, ~has_error & looked_at)
    return {"first_error": hits, "false_alarms": alarms, "first_error_f1": FirstErrorF1(hits, alarms)}


@dataclass(frozen=True)
class Threshold:
    value: float
    mcc: float
    """Value on the fitted steps; lower on others."""
    steps: int


def fit_threshold(p_good: np.ndarray, bad: np.ndarray, half: float = HALF) -> Threshold:
    """Find the threshold with the highest Matthews correlation; of several, the one nearest to `half`.
    Raises RRMError with fewer than ten steps, one class only, or no threshold better than chance."""
    check_rows(p_good=p_good, bad=bad)
    is_bad = bad.astype(bool)
    if len(p_good) < MIN_STEPS or is_bad.all() or not is_bad.any():
        raise RRMError(
            f"a threshold needs at least {MIN_STEPS} labelled steps, good ones and bad ones; got {len(p_good)}, "
            f"{int(is_bad.sum())} of them bad"
        )
    values, group = np.unique(p_good, return_inverse=True)
    bad_below = np.cumsum(np.bincount(group, is_bad))[:-1]
    good_below = np.cumsum(np.bincount(group, ~is_bad))[:-1]
    cells = (bad_below, good_below, is_bad.sum() - bad_below, (~is_bad).sum() - good_below)
    reached = mcc(np.stack(cells, axis=-1))  # of a cut above each value but the last
    if not len(reached) or reached.max() <= 0:
        raise RRMError(
            "no threshold of p_good tells good steps from bad ones here: the judge has learned nothing usable"
        )
    middle = (values[:-1] + values[1:]) / 2
    cuts = np.where(middle > values[:-1], middle, values[1:])  # neighbouring floats have no middle
    best = np.flatnonzero(reached >= reached.max() - 1e-12)
    cuts = np.where((values[:-1] < half) & (half <= values[1:]), half, cuts)
    chosen = best[np.argmin(np.abs(cuts[best] - half))]
    return Threshold(float(cuts[chosen]), float(reached[chosen]), len(p_good))
