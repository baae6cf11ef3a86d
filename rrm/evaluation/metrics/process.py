"""Probabilities of single steps against step labels: ranking, verdicts at a threshold, and the first error.

A judge's `p_good` of a step is its probability that the step was good; at or above a threshold the step is called good. The
positive class is "bad", as in `localisation`: a bad step is what a reader looks for. Average precision of always saying the
same is the share of bad steps, which must stand beside it.

Legend: M labelled steps, Q questions; `p_good` (M,) in [0, 1], `bad` (M,) booleans, `rows` (M,) codes of the transcript a step
is of (its steps stand in order), `questions` (M,) codes in [0, Q).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rrm.data.localisation import mcc
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import Ratio, Statistic
from rrm.evaluation.metrics.pairs import check_rows

HALF = 0.5
"""The threshold of a probability where nothing was fitted."""
MIN_STEPS = 10


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision of finding bad steps, as a bootstrap statistic: Σ (R_i − R_{i−1}) · P_i over the distinct values of
    p_good from the lowest; no interpolation, steps of equal p_good enter together. NaN without a bad step."""

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
            found = np.add.reduceat(weights * positive, starts, axis=1)
            said = np.add.reduceat(weights, starts, axis=1).cumsum(axis=1)
            precision = np.divide(found.cumsum(axis=1), said, out=np.zeros_like(said), where=said > 0)
            total = found.sum(axis=1)
            above = (found * precision).sum(axis=1)
            values[b : b + len(weights)] = np.divide(above, total, out=np.full(len(total), np.nan), where=total > 0)
        return values


@dataclass(frozen=True)
class FirstErrorF1:
    """Harmonic mean of first errors found and clean transcripts left alone (ProcessBench, 2412.06559, §3.3).

    Neither flagging nothing nor flagging everything scores above 0. NaN where either is undefined.
    """

    hits: Ratio
    alarms: Ratio

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        found, clean = self.hits(counts), 1.0 - self.alarms(counts)
        total = found + clean
        value = np.divide(2 * found * clean, total, out=np.zeros_like(total), where=total > 0)
        return np.where(np.isfinite(total), value, np.nan)


def first_errors(
    p_good: np.ndarray,
    bad: np.ndarray,
    rows: np.ndarray,
    questions: np.ndarray,
    n_questions: int,
    threshold: float,
    read: np.ndarray | None = None,
) -> dict[str, Statistic]:
    """Whether the first labelled step below the threshold is the first one labelled bad.

    Args:
        p_good: NaN of a labelled step that was not read: nothing is said of it, so where it is the first bad one it is missed.
        read: (M,) whether the judge that a scorer stands beside read the step: alarms are counted there alone, so that a judge gains
            nothing by what it did not read; None: where `p_good` is known.

    Returns:
        `first_error`: share found, over transcripts with a bad step; `false_alarms`: share with any step read below the
        threshold, over transcripts without a bad one of which a step was read; `first_error_f1` of both.
    """
    check_rows(p_good=np.where(np.isnan(p_good), 0.0, p_good), bad=bad, rows=rows, questions=questions)
    n, none = int(rows.max()) + 1 if len(rows) else 0, len(p_good)
    seen = ~np.isnan(p_good) if read is None else read
    first_bad, first_said = np.full(n, none), np.full(n, none)
    at, is_bad, said = np.arange(none), bad.astype(bool), p_good < threshold
    np.minimum.at(first_bad, rows[is_bad], at[is_bad])
    np.minimum.at(first_said, rows[said], at[said])
    question = np.zeros(n, dtype=np.int64)
    question[rows] = questions
    has_error = first_bad < none

    def share(counted: np.ndarray, of: np.ndarray) -> Ratio:
        sums = [np.bincount(question, which, minlength=n_questions).astype(np.float64) for which in (counted & of, of)]
        return Ratio(*sums)

    alarmed, looked_at = (np.bincount(rows[which], minlength=n) > 0 for which in (said & seen, seen))
    hits, alarms = share(first_said == first_bad, has_error), share(alarmed, ~has_error & looked_at)
    return {"first_error": hits, "false_alarms": alarms, "first_error_f1": FirstErrorF1(hits, alarms)}


@dataclass(frozen=True)
class Threshold:
    """A threshold of p_good, fitted on labelled steps of calibration questions."""

    value: float
    """Steps at or above it are called good."""
    mcc: float
    """On the steps it was fitted on; on others it is lower."""
    steps: int


def fit_threshold(p_good: np.ndarray, bad: np.ndarray, half: float = HALF) -> Threshold:
    """The threshold with the highest Matthews correlation; of several, `half` where it is one, else the one nearest to it.

    Fit it on calibration questions: on the steps that are measured it would flatter.

    Args:
        half: the p_good of a step that is as likely bad as good; another value than 0.5 where p_good is to be calibrated yet.

    Raises:
        RRMError: fewer than ten steps, one class only, or no threshold tells good from bad better than chance.
    """
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
