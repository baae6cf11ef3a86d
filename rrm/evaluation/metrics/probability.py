"""Scores as probabilities: AUROC, Brier score, expected calibration error.

N rows, Q questions, B resamples, `questions` (N,) integer codes in [0, Q).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rrm.evaluation.bootstrap import Ratio
from rrm.evaluation.metrics.pairs import check_rows


@dataclass(frozen=True)
class Auroc:
    """Area under the ROC curve as a bootstrap statistic; positive from 0.5, NaN without two classes."""

    scores: np.ndarray
    labels: np.ndarray
    questions: np.ndarray
    parts: np.ndarray | None = None
    """(N,) rows are compared inside a part only, e.g. the fold whose map they have; None: all with all."""

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        check_rows(scores=self.scores, labels=self.labels, questions=self.questions)
        parts = np.zeros(len(self.scores), dtype=np.int64) if self.parts is None else self.parts
        wins, pairs = np.zeros(len(counts)), np.zeros(len(counts))
        for group in np.unique(parts):
            more = self._compared(np.flatnonzero(parts == group), counts)
            wins, pairs = wins + more[0], pairs + more[1]
        return np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)

    def _compared(self, rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (B,) pairs of one outcome each that the better run wins, ties ½, and all such pairs."""
        rows = rows[np.argsort(self.scores[rows], kind="stable")]
        ranked, owner, positive = self.scores[rows], self.questions[rows], self.labels[rows] >= 0.5
        starts = np.flatnonzero(np.r_[True, np.diff(ranked) > 0])  # first row of each group of equal scores
        wins, pairs = np.empty(len(counts)), np.empty(len(counts))
        rows_at_once = max(1, 2_000_000 // len(ranked))
        for b in range(0, len(counts), rows_at_once):
            here = slice(b, b + rows_at_once)
            weights = counts[here][:, owner]  # (b, N)
            above = np.add.reduceat(weights * positive, starts, axis=1)
            below = np.add.reduceat(weights * ~positive, starts, axis=1)
            wins[here] = (above * (np.cumsum(below, axis=1) - 0.5 * below)).sum(axis=1)
            pairs[here] = above.sum(axis=1) * below.sum(axis=1)
        return wins, pairs


def brier_parts(scores: np.ndarray, labels: np.ndarray, questions: np.ndarray, n_questions: int) -> Ratio:
    check_rows(scores=scores, labels=labels, questions=questions)
    squares = np.bincount(questions, (scores - labels) ** 2, minlength=n_questions)
    return Ratio(squares, np.bincount(questions, minlength=n_questions).astype(np.float64))


def equal_mass_bins(scores: np.ndarray, n_bins: int = 10) -> np.ndarray:
    """Return (N,) bins 0 … n_bins − 1 by rank: equal mass where scores differ.
    Equal scores share their mean rank and so their bin: bins do not depend on the order of rows, but can be uneven or empty."""
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(sizes) - (sizes + 1) / 2  # 0-based mean rank of each distinct score
    # Twice the rank is an integer: stay in integers, so that a boundary never moves by rounding.
    doubled = np.rint(2 * mean_rank).astype(np.int64) + 1
    return np.minimum(doubled * n_bins // (2 * len(scores)), n_bins - 1)[group]


def reliability(scores: np.ndarray, labels: np.ndarray, n_bins: int = 10) -> list[dict[str, float]]:
    """Make the reliability diagram: per bin `count`, mean `score` and `label`, `low, high` scores."""
    check_rows(scores=scores, labels=labels)
    bins = equal_mass_bins(scores, n_bins)
    rows: list[dict[str, float]] = []
    for b in np.unique(bins):
        s, y = scores[bins == b], labels[bins == b]
        rows.append(
            {"count": len(s), "score": float(s.mean()), "label": float(y.mean()), "low": float(s.min())}
            | {"high": float(s.max())}
        )
    return rows


@dataclass(frozen=True)
class CalibrationError:
    """ECE as a bootstrap statistic: Σ_b n_b/n · |mean score − mean label| over equal-mass bins.
    The bins are those of the full sample. |·| turns noise into error, so resamples lie above the value as the value lies above the
    truth: the interval is the basic bootstrap's (`bootstrap.own_interval`). Simulated with 400 rows of 100 questions it holds a true
    ECE of 0.05 in 92 of 100 samples, the percentile interval in 23."""

    biased: ClassVar[bool] = True

    scores: np.ndarray
    labels: np.ndarray
    questions: np.ndarray
    n_questions: int
    n_bins: int = 10
    binned_by: np.ndarray | None = None
    """(N,) values that are binned, so that two scores of the same rows share bins; None: the scores."""

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        by = self.scores if self.binned_by is None else self.binned_by
        check_rows(scores=self.scores, labels=self.labels, questions=self.questions, binned_by=by)
        cell = self.questions * self.n_bins + equal_mass_bins(by, self.n_bins)
        gaps = np.bincount(cell, self.scores - self.labels, minlength=self.n_questions * self.n_bins)
        rows = counts @ np.bincount(self.questions, minlength=self.n_questions)
        total = np.abs(counts @ gaps.reshape(self.n_questions, self.n_bins)).sum(axis=1)
        return np.divide(total, rows, out=np.full(len(rows), np.nan), where=rows > 0)
