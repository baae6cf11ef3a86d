"""ShareEstimate a set's success rate from a judge's scores of all runs and a person's labels of a few.

A label is drawn with a known chance π. The judge's scores f of all N runs give a first guess, and the labels y correct it
(prediction-powered inference with power tuning, Angelopoulos et al. 2023, arXiv 2311.01453, eq. 4; labels of unequal chance,
Zrnic & Candès 2024, arXiv 2403.03208, eq. 2):

    θ = λ · mean(f) + Σ w · (y − λ · f),   w ∝ 1/π, Σ w = 1

λ ≥ 0 is the weighted regression of y on f, 0 for a judge that knows nothing: the interval holds whatever the judge is worth.
Against intervals of no width, two successes and two failures are added (Agresti & Coull 1998), as far as runs are unlabelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

ADDED = 4.0
FLOOR = 0.5
"""Share of a choice that is drawn evenly, in case the judge is sure and wrong."""


@dataclass(frozen=True)
class ShareEstimate:
    value: float
    low: float
    high: float
    labels: int
    runs: int
    weight: float
    """λ."""
    labels_alone: tuple[float, float]
    error: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def to_halve(self) -> int:
        """Further labels that would halve the interval (by 1/√n), as far as there are runs."""
        return min(3 * self.labels, self.runs - self.labels)


def estimate(
    scores: np.ndarray, labelled: np.ndarray, labels: np.ndarray, chances: np.ndarray | None = None, level: float = 0.95
) -> ShareEstimate:
    """ShareEstimate the share of runs whose label is 1.
    `scores` (N,) of all runs in [0, 1], NaN where the judge has none; `labelled` (n,) indices; `labels` (n,) in [0, 1], two or more;
    `chances` (n,) of each labelled run to be drawn, in (0, 1], None: all alike."""
    runs, n = len(scores), len(labels)
    if n < 2:
        raise ValueError(f"an interval takes two labels, and there are {n}")
    if chances is not None and not ((chances > 0) & (chances <= 1)).all():
        raise ValueError("chances of being drawn lie in (0, 1]")
    finite = np.isfinite(scores)
    mean = float(scores[finite].mean()) if finite.any() else 0.5
    filled = np.where(finite, scores, mean)
    unseen = 1 - n / runs
    weights = np.ones(n) if chances is None else 1 / chances
    weights = weights / weights.sum() * n
    added = np.full(4, ADDED / 4 * unseen)
    weights = np.concatenate([weights, added])
    weights /= weights.sum()
    y = np.concatenate([labels.astype(float), [0.0, 0.0, 1.0, 1.0]])
    f = np.concatenate([filled[labelled], np.full(4, mean)]) - mean

    def fitted(slope: float, lost: int) -> tuple[float, float, float]:
        value = float(weights @ (y - slope * f))
        variance = float((weights**2) @ (y - slope * f - value) ** 2) * (n / (n - 1)) * unseen
        return value, math.sqrt(variance), float(student.ppf((1 + level) / 2, max(1, n + 2 - lost)))

    squares = float((weights**2) @ (f - weights @ f) ** 2)
    slope = float((weights**2) @ ((f - weights @ f) * (y - weights @ y))) / squares if squares > 1e-12 else 0.0
    slope = max(0.0, slope)
    value, error, times = fitted(slope, 2 if slope else 1)
    alone, alone_error, alone_times = fitted(0.0, 1)
    low, high = max(0.0, value - times * error), min(1.0, value + times * error)
    by_labels = (max(0.0, alone - alone_times * alone_error), min(1.0, alone + alone_times * alone_error))
    return ShareEstimate(min(1.0, max(0.0, value)), low, high, n, runs, slope, by_labels, error)


def difference(first: ShareEstimate, second: ShareEstimate, level: float = 0.95) -> tuple[float, float, float]:
    error = math.hypot(first.error, second.error)
    times = float(student.ppf((1 + level) / 2, max(1, first.labels + second.labels - 2)))
    middle = second.value - first.value
    return middle, max(-1.0, middle - times * error), min(1.0, middle + times * error)


def chances_of(scores: np.ndarray, n: int) -> np.ndarray:
    """Return (N,) chances to be among `n` labelled runs, with the sum min(n, N).
    Half are alike, half ∝ √(f(1−f)), how unsure a calibrated score is: this makes the estimate's variance least."""
    runs = len(scores)
    if n >= runs:
        return np.ones(runs)
    filled = np.where(np.isfinite(scores), np.clip(scores, 0.0, 1.0), 0.5)
    unsure = np.sqrt(filled * (1 - filled))
    share = FLOOR + (1 - FLOOR) * (unsure / unsure.mean() if unsure.any() else np.ones(runs))
    chances = np.clip(share * n / share.sum(), 0.0, 1.0)
    while chances.sum() < n - 1e-9:
        free = chances < 1
        chances[free] = np.clip(share[free] * (n - (~free).sum()) / share[free].sum(), 0.0, 1.0)
    return chances


def drawn(chances: np.ndarray, order: Sequence[int], seed: int) -> list[int]:
    """Draw systematically (Madow 1949): indices where the running sum of chances passes a whole number."""
    generator = np.random.default_rng(seed)
    reach = np.cumsum(chances[list(order)]) + generator.random()
    passed = np.floor(reach + 1e-9) > np.floor(np.concatenate([[reach[0] - chances[order[0]]], reach[:-1]]) + 1e-9)
    return [int(run) for run, taken in zip(order, passed, strict=True) if taken]
