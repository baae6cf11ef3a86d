"""ShareEstimate a set's success rate from a judge's scores of all runs and a person's labels of a few.

A label is drawn with a known chance π. The judge's scores f of all N runs give a first guess, and the labels y correct it
(prediction-powered inference with power tuning, Angelopoulos et al. 2023, arXiv 2311.01453, eq. 4; labels of unequal chance,
Zrnic & Candès 2024, arXiv 2403.03208, eq. 2):

    θ = λ · mean(f) + Σ w · (y − λ · f),   w ∝ 1/π, Σ w = 1

λ ≥ 0 is the weighted regression of y on f, 0 for a judge that knows nothing: the interval holds whatever the judge is worth.
Against intervals of no width, two successes and two failures are added (Agresti & Coull 1998), as far as runs are unlabelled. Their middle
is one half only as far as the judge leaves labels unexplained, else the estimate: a good judge would be pulled away from the truth.
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
BLOCK = 3.0
"""Runs drawn of each block of the order, on average."""


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
    weights = weights / weights.sum()
    y, f, spread = labels.astype(float), filled[labelled] - mean, float(filled.var())
    slope, middle, left = _regress(weights, y, f, spread)
    if slope and n > 2:
        total = _regress(weights, y, np.zeros(n), 0.0)[2]
        unexplained = min(1.0, left / total * (n - 1) / (n - 2))
        middle = min(1.0, max(0.0, middle + (0.5 - middle) * unexplained))
    else:
        middle = 0.5
    added = np.full(4, ADDED / 4 * unseen / n)

    def interval(middle: float, f: np.ndarray) -> tuple[float, float, float, float, float]:
        extended_labels = np.concatenate([y, middle + np.array([-0.5, -0.5, 0.5, 0.5])])
        every = np.concatenate([weights, added]) / (1 + added.sum())
        slope, value, variance = _regress(every, extended_labels, np.concatenate([f, np.zeros(4)]), spread)
        error = math.sqrt(variance * n / (n - 1) * unseen)
        reach = float(student.ppf((1 + level) / 2, max(1, n + (0 if slope else 1)))) * error
        return (
            slope,
            min(1.0, max(0.0, value)),
            min(1.0, max(0.0, value - reach)),
            max(0.0, min(1.0, value + reach)),
            error,
        )

    slope, value, low, high, error = interval(middle, f)
    _, _, alone_low, alone_high, _ = interval(0.5, np.zeros(n))
    return ShareEstimate(value, low, high, n, runs, slope, (alone_low, alone_high), error)


def _regress(weights: np.ndarray, y: np.ndarray, f: np.ndarray, spread: float) -> tuple[float, float, float]:
    """Return λ ≥ 0, θ and its variance; `f` is centred at the mean of all scores.
    `spread` is the variance of all scores: the slope through labelled ones that lie closer says nothing of the others."""
    of_f = f - weights @ f
    squares = max(float(weights**2 @ of_f**2), float((weights[f != 0] ** 2).sum()) * spread)
    slope = max(0.0, float(weights**2 @ (of_f * (y - weights @ y))) / squares) if squares > 1e-12 else 0.0
    rest = y - slope * f
    value = float(weights @ rest)
    return slope, value, float(weights**2 @ (rest - value) ** 2)


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
    """Draw runs by their chances, spread over `order`: about `BLOCK` of every stretch of it.

    Systematic sampling (Madow 1949) takes the indices where the running sum of chances passes a whole number. In a fixed order it has
    about 1/π samples, and the interval of a set is then right for all of them or for none; so runs of a block are shuffled first."""
    generator = np.random.default_rng(seed)
    places = np.array(order)
    blocks = np.floor((np.cumsum(chances[places]) - chances[places]) / BLOCK)
    places = places[np.lexsort((generator.random(len(places)), blocks))]
    reach = np.cumsum(chances[places]) + generator.random()
    passed = np.floor(reach + 1e-9) > np.floor(np.concatenate([[reach[0] - chances[places[0]]], reach[:-1]]) + 1e-9)
    return [int(run) for run in places[passed]]
