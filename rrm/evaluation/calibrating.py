"""What a calibration is worth and how well its labels know it: before and after out of fold, and the map's interval.

Legend: N rows, n resamples, `questions` (N,) names of what each row is an attempt at; a question's rows share a fold and a draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rrm.config import CalibrationMethod
from rrm.data.splits import grouped_folds
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE, Statistic, compare, draw_counts, too_few
from rrm.evaluation.metrics import probability
from rrm.judge.calibration import FOLDS, curve, curves, fit_by_reading, towards

LEVELS = (0.1, 0.5, 0.9)
"""Quantiles of the raw scores at which the map's interval is told."""
ELEMENTS = 2_000_000
"""Weights of rows held at once."""
MOSTLY = 0.9
"""Share of resamples with both outcomes, below which there is no interval."""


class OutOfFold(NamedTuple):
    """Scores by maps that were fitted on the other folds' questions."""

    scores: np.ndarray
    """(N,)"""
    fold: np.ndarray
    """(N,) whose map each row has."""
    folds: int
    without_map: int
    """Rows of folds whose others gave no map: they have the others' mean label."""


def out_of_fold(
    raw: np.ndarray,
    labels: np.ndarray,
    windowed: Sequence[bool],
    questions: Sequence[str],
    method: CalibrationMethod,
    seed: int,
    present: np.ndarray | None = None,
) -> OutOfFold | None:
    """Each row's score by a map of other questions' rows; None of a single question.

    Args:
        present: (N,) as in `rrm.judge.calibration.fit`.
    """
    folds = min(FOLDS, len(set(questions)))
    if folds < 2:
        return None
    fold = grouped_folds(questions, folds, seed)
    many, names = np.asarray(windowed, dtype=bool), np.asarray(questions, dtype=object)
    scores, without = np.empty(len(raw)), 0
    for number in range(folds):
        rest, here = fold != number, np.flatnonzero(fold == number)
        try:
            found = fit_by_reading(
                raw[rest].tolist(),
                labels[rest].tolist(),
                many[rest].tolist(),
                names[rest].tolist(),
                method,
                None if present is None else present[rest].tolist(),
            )
            maps = found.maps
        except RRMError:
            maps = {}
        for i in here:
            # as in use: a windowed row for which nothing was fitted takes the other map (`Calibration.apply`)
            mapped = maps.get(bool(many[i])) or maps.get(False)
            scores[i] = labels[rest].mean() if mapped is None else mapped(float(raw[i]))
            without += mapped is None
    return OutOfFold(scores, fold, folds, without)


def before_and_after(
    raw: np.ndarray,
    before: np.ndarray,
    after: OutOfFold,
    labels: np.ndarray,
    questions: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """`before`, `after` and `difference` (after − before, paired), each ECE, Brier score and AUROC with 95 % intervals over questions;
    without an interval where too few questions or rows carry one.

    The bins of both ECEs are made from the raw scores (N,): five folds make five scores of one raw score, and with bins of its own the
    map's error would be taken over more of them than the judge's grades have. The AUROC, before as after, compares rows of one fold with each other: across folds the maps differ by chance, which would be taken
    for worse ranks (of 40 rows by .05) though the one map that is in use keeps the judge's order.
    """
    names = sorted(set(questions))
    of = {name: i for i, name in enumerate(names)}
    codes = np.array([of[q] for q in questions], dtype=np.int64)

    def statistics(scores: np.ndarray) -> dict[str, Statistic]:
        return {
            "ece": probability.CalibrationError(scores, labels, codes, len(names), binned_by=raw),
            "brier": probability.brier_parts(scores, labels, codes, len(names)),
            "auroc": probability.Auroc(scores, labels, codes, after.fold),
        }

    thin = too_few(len(names), len(labels))
    table = {JUDGE: statistics(after.scores), "before": statistics(before)}
    found = compare(table, len(names), thin=lambda _: thin, n=resamples, seed=seed)
    metrics, differences = found["metrics"], found["differences"]
    return {"before": metrics["before"], "after": metrics[JUDGE], "difference": differences["before"]}


def not_better(difference: Mapping[str, Mapping[str, float | None]]) -> str:
    """What to say where the maps are not shown to make scores better: the Brier score's difference is not sure to be below 0.

    Args:
        difference: of `before_and_after`.
    """
    brier = difference["brier"]
    value, low, high = brier["value"], brier["low"], brier["high"]
    if value is None or (high is not None and high < 0):
        return ""
    if low is None or high is None:
        return f"whether the map makes scores better is unknown: too few questions or rows (Brier score {value:+.3f})"
    return (
        f"the map {'makes scores worse' if low > 0 else 'is not shown to make scores better'} out of fold: Brier score {value:+.3f} "
        f"[{low:+.3f}, {high:+.3f}]. Give more labels, or go on with the judge as it was"
    )


def no_order(before: Mapping[str, Mapping[str, float | None]], positive: float) -> str:
    """What to say where a judge's scores are not shown to order success before failure: the AUROC is not sure to be above 0.5.

    Args:
        before: of `before_and_after`.
        positive: share of success among the labels, in [0, 1].
    """
    value, low, high = (before["auroc"][key] for key in ("value", "low", "high"))
    if value is None or low is None or high is None or low > 0.5:
        return ""
    return (
        f"this judge's scores are not shown to tell success from failure: AUROC {value:.3f} [{low:.3f}, {high:.3f}], where 0.5 is chance. "
        f"A map then moves every score towards the rate of success ({positive:.0%}), so a lower ECE and Brier score are no improvement of the judge"
    )


class CalibrationInterval(NamedTuple):
    """How well the labels know a map."""

    at: list[dict[str, float]]
    """`raw`, `score`, `low`, `high` (95 %) at `LEVELS` of the raw scores, equal ones once."""
    widest: float
    """Width of the widest interval at any raw score that occurs."""
    falling: float
    """Share of the resamples whose map would fall as the raw score rises: none of them would have been taken."""


def band(
    raw: np.ndarray,
    labels: np.ndarray,
    questions: Sequence[str],
    method: CalibrationMethod,
    *,
    resamples: int,
    seed: int,
    present: np.ndarray | None = None,
) -> CalibrationInterval | None:
    """The interval of a map of these rows, by drawing their questions with replacement and fitting again; None where more than a tenth
    of the draws has one outcome alone. With a prior (`present`, (N,)) each draw's rows are drawn towards it alike.

    Of ten questions or fewer it is narrower than it should be, as any percentile bootstrap is.
    """
    names = sorted(set(questions))
    of = {name: i for i, name in enumerate(names)}
    codes = np.array([of[q] for q in questions], dtype=np.int64)
    levels = np.quantile(raw, LEVELS, method="lower")
    grid = np.unique(np.r_[levels, np.quantile(raw, np.linspace(0, 1, 21), method="lower")])
    good, drawn, mixed = labels >= 0.5, list[np.ndarray](), towards(labels, present)
    for counts in draw_counts(len(names), resamples, seed):
        for part in np.array_split(counts, -(-counts.shape[0] * len(raw) // ELEMENTS)):
            weights = part[:, codes]  # (b, N)
            both = (weights[:, good].sum(axis=1) > 0) & (weights[:, ~good].sum(axis=1) > 0)
            drawn.append(curves(raw, mixed, weights[both], method, grid))
    values = np.concatenate(drawn)
    if len(values) < MOSTLY * resamples:
        return None
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    fitted = curve(raw, mixed, method)(grid)
    at = [
        {"raw": float(grid[i]), "score": float(fitted[i]), "low": float(low[i]), "high": float(high[i])}
        for i in np.searchsorted(grid, np.unique(levels))
    ]
    return CalibrationInterval(at, float((high - low).max()), float(np.mean(values[:, -1] < values[:, 0])))
