"""Scores before and after calibration out of fold, and the map's interval.

N rows, n resamples, `questions` (N,) each row's; a question's rows share a fold and a draw.
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
"""Quantiles of the raw scores at which the map's interval is reported."""
ELEMENTS = 2_000_000
MOSTLY = 0.9
"""Least share of resamples with both outcomes for an interval."""


class OutOfFold(NamedTuple):
    """(N,) scores by maps that were fitted on the other folds' questions, and each row's fold."""

    scores: np.ndarray
    fold: np.ndarray
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
    """Score each row by a map of other questions' rows; None of a single question."""
    folds = min(FOLDS, len(set(questions)))
    if folds < 2:
        return None
    fold = grouped_folds(questions, folds, seed)
    many, names = np.asarray(windowed, dtype=bool), np.asarray(questions, dtype=object)
    scores, without = np.empty(len(raw)), 0
    for number in range(folds):
        rest, here = fold != number, np.flatnonzero(fold == number)
        try:
            fitted = fit_by_reading(
                raw[rest].tolist(),
                labels[rest].tolist(),
                many[rest].tolist(),
                names[rest].tolist(),
                method,
                None if present is None else present[rest].tolist(),
            )
            maps = fitted.maps
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
    """Compute ECE, Brier score and AUROC of `before`, `after` and `difference` (after − before, paired).
    Both ECEs are binned by the raw scores (N,): folds make several scores of one raw score, and bins of their own would raise the
    ECE. Both AUROCs compare rows of one fold only, since maps differ between folds by chance."""
    names = sorted(set(questions))
    index = {name: i for i, name in enumerate(names)}
    codes = np.array([index[q] for q in questions], dtype=np.int64)

    def statistics(scores: np.ndarray) -> dict[str, Statistic]:
        return {
            "ece": probability.CalibrationError(scores, labels, codes, len(names), binned_by=raw),
            "brier": probability.brier_parts(scores, labels, codes, len(names)),
            "auroc": probability.Auroc(scores, labels, codes, after.fold),
        }

    thin = too_few(len(names), len(labels))
    table = {JUDGE: statistics(after.scores), "before": statistics(before)}
    compared = compare(table, len(names), thin=lambda _: thin, n=resamples, seed=seed)
    metrics, differences = compared["metrics"], compared["differences"]
    return {"before": metrics["before"], "after": metrics[JUDGE], "difference": differences["before"]}


def not_better(difference: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return a message where the Brier score's `difference` (`before_and_after`) may be ≥ 0, else ''."""
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
    """Return a message where the AUROC of `before` may be ≤ 0.5, else ''; `positive`: share of success."""
    value, low, high = (before["auroc"][key] for key in ("value", "low", "high"))
    if value is None or low is None or high is None or low > 0.5:
        return ""
    return (
        f"this judge's scores are not shown to tell success from failure: AUROC {value:.3f} [{low:.3f}, {high:.3f}], where 0.5 is chance. "
        f"A map then moves every score towards the rate of success ({positive:.0%}), so a lower ECE and Brier score are no improvement of the judge"
    )


class CalibrationInterval(NamedTuple):
    points: list[dict[str, float]]
    """`raw`, `score`, `low`, `high` (95 %) at distinct `LEVELS` of the raw scores."""
    widest: float
    falling: float
    """Share of the resamples whose map falls as the raw score rises."""


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
    """Compute a map's interval by drawing questions with replacement and fitting again.
    None where more than a tenth of the draws has one outcome only. With ten questions or fewer it is too narrow."""
    names = sorted(set(questions))
    index = {name: i for i, name in enumerate(names)}
    codes = np.array([index[q] for q in questions], dtype=np.int64)
    levels = np.quantile(raw, LEVELS, method="lower")
    grid = np.unique(np.r_[levels, np.quantile(raw, np.linspace(0, 1, 21), method="lower")])
    good, drawn, mixed = labels >= 0.5, list[np.ndarray](), towards(labels, present)
    for counts in draw_counts(len(names), resamples, seed):
        for chunk in np.array_split(counts, -(-counts.shape[0] * len(raw) // ELEMENTS)):
            weights = chunk[:, codes]  # (b, N)
            both = (weights[:, good].sum(axis=1) > 0) & (weights[:, ~good].sum(axis=1) > 0)
            drawn.append(curves(raw, mixed, weights[both], method, grid))
    values = np.concatenate(drawn)
    if len(values) < MOSTLY * resamples:
        return None
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    fitted = curve(raw, mixed, method)(grid)
    points = [
        {"raw": float(grid[i]), "score": float(fitted[i]), "low": float(low[i]), "high": float(high[i])}
        for i in np.searchsorted(grid, np.unique(levels))
    ]
    return CalibrationInterval(points, float((high - low).max()), float(np.mean(values[:, -1] < values[:, 0])))
