"""Bootstrap over questions: attempts at one question are not independent, so rows are never resampled.

A statistic is a function of how often each question was drawn. `Ratio` sums over rows once per question, so a resample
costs one product of (B, Q) with (Q,). Q questions, B resamples in a chunk, n in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]
"""(B, Q) draw counts → (B,) values; NaN where a resample leaves the statistic undefined."""
MOSTLY = 0.9
"""Least share of defined resamples: with k questions that count, about 1 − exp(−k) are."""
MIN_QUESTIONS, MIN_ROWS = 10, 20
"""An interval needs as many: a percentile bootstrap over fewer is far too narrow."""
CHUNK_ELEMENTS = 4_000_000


@dataclass(frozen=True)
class Ratio:
    """Σ numerator / Σ denominator over the drawn questions, both (Q,) sums of rows and denominator ≥ 0."""

    numerator: np.ndarray
    denominator: np.ndarray

    def __post_init__(self) -> None:
        if self.numerator.ndim != 1 or self.numerator.shape != self.denominator.shape:
            raise ValueError(f"Ratio wants two (Q,) arrays, got {self.numerator.shape} and {self.denominator.shape}")

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        below = counts @ self.denominator
        return np.divide(counts @ self.numerator, below, out=np.full(len(below), np.nan), where=below > 0)

    @property
    def value(self) -> float:
        return float(self(np.ones((1, len(self.numerator))))[0])


def by_questions(values: Sequence[float] | np.ndarray, questions: Sequence[str] | None = None) -> Ratio:
    """Return the values' mean as a statistic over questions (None: each value has its own)."""
    places: dict[str, int] = {}
    names = map(str, range(len(values))) if questions is None else questions
    codes = [places.setdefault(name, len(places)) for name in names]
    return Ratio(np.bincount(codes, weights=values).astype(np.float64), np.bincount(codes).astype(np.float64))


@dataclass(frozen=True)
class Interval:
    """A value with its percentile interval; all None where undefined, the bounds None where `too_few`."""

    value: float | None
    low: float | None
    high: float | None
    share_above_zero: float | None = None
    """Share of resamples in which a difference is above 0 (ties count half)."""

    def unless(self, too_few: bool) -> Interval:
        return Interval(self.value, None, None) if too_few else self

    def to_dict(self) -> dict[str, float | None]:
        fields = {"value": self.value, "low": self.low, "high": self.high}
        return fields if self.share_above_zero is None else {**fields, "share_above_zero": self.share_above_zero}


def too_few(questions: int, rows: int) -> bool:
    """Tell whether a figure over these questions and rows (or pairs, or steps) gets no interval."""
    return questions < MIN_QUESTIONS or rows < MIN_ROWS


def draw_counts(n_questions: int, n: int, seed: int) -> Iterator[np.ndarray]:
    """Yield chunks (B, Q) of how often each of Q questions occurs when Q are drawn with replacement."""
    if n_questions < 1 or n < 1:
        raise ValueError(f"a bootstrap needs at least one question and one resample, got {n_questions} and {n}")
    rng = np.random.default_rng(seed)
    equal = np.full(n_questions, 1.0 / n_questions)
    size = max(1, CHUNK_ELEMENTS // n_questions)
    for start in range(0, n, size):
        yield rng.multinomial(n_questions, equal, size=min(size, n - start)).astype(np.float64)


def replicates(
    statistics: Mapping[str, Statistic], n_questions: int, *, n: int = 10_000, seed: int = 0
) -> dict[str, np.ndarray]:
    """Compute every statistic on the same n resamples of the questions: name → (n,) values."""
    chunks: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    for counts in draw_counts(n_questions, n, seed):
        for name, statistic in statistics.items():
            chunks[name].append(statistic(counts))
    return {name: np.concatenate(parts) for name, parts in chunks.items()}


def point(statistic: Statistic, n_questions: int) -> float:
    return float(statistic(np.ones((1, n_questions)))[0])


def percentile_interval(
    value: float, resampled: np.ndarray, *, level: float = 0.95, difference: bool = False
) -> Interval:
    """Compute the percentile interval of `resampled` (n,), extended to `value`; NaN are left out.
    Without bounds where more than a tenth is NaN: the statistic then rests on one question or two."""
    defined = resampled[np.isfinite(resampled)]
    if not np.isfinite(value) or not len(defined):
        return Interval(None, None, None)
    if len(defined) < MOSTLY * len(resampled):
        return Interval(value, None, None)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    above = float(np.mean(defined > 0) + np.mean(defined == 0) / 2) if difference else None
    return Interval(value, min(float(low), value), max(float(high), value), above)


def own_interval(statistic: Statistic, n_questions: int, resampled: np.ndarray) -> Interval:
    """Compute the interval of one statistic from its `replicates` (n,).
    One marked `biased` (≥ 0, and larger on a resample than on the sample: `CalibrationError`) gets the basic bootstrap's, 2v − v*.
    Never subtract reflected values: unreflected, the bias of both sides mostly cancels."""
    value = point(statistic, n_questions)
    if getattr(statistic, "biased", False):
        resampled = np.maximum(2 * value - resampled, 0.0)
    return percentile_interval(value, resampled)


def bootstrap(statistic: Statistic, n_questions: int, *, n: int = 10_000, seed: int = 0) -> Interval:
    """Compute one statistic's 95 % interval over questions."""
    return own_interval(statistic, n_questions, replicates({"it": statistic}, n_questions, n=n, seed=seed)["it"])


def paired_bootstrap(a: Statistic, b: Statistic, n_questions: int, *, n: int = 10_000, seed: int = 0) -> Interval:
    """Compute the 95 % interval of (a − b) over the same questions in the same order, on the same draws."""
    both = replicates({"a": a, "b": b}, n_questions, n=n, seed=seed)
    value = point(a, n_questions) - point(b, n_questions)
    return percentile_interval(value, both["a"] - both["b"], difference=True)


JUDGE = "judge"


def compare(
    table: Mapping[str, Mapping[str, Statistic]],
    n_questions: int,
    *,
    thin: Callable[[Statistic], bool],
    n: int = 10_000,
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Compute intervals of every scorer's metrics and of judge − scorer, all on the same resamples.
    `table`: scorer → metric → statistic over the same Q questions. `thin` tells whether a statistic gets no interval.
    Returns `metrics[scorer][metric]` and `differences[scorer][metric]` as `Interval.to_dict`."""
    flat = {(who, metric): statistic for who, statistics in table.items() for metric, statistic in statistics.items()}
    drawn = replicates({"\x1f".join(key): s for key, s in flat.items()}, n_questions, n=n, seed=seed) if flat else {}
    metrics: dict[str, dict[str, Any]] = {who: {} for who in table}
    differences: dict[str, dict[str, Any]] = {who: {} for who in table if who != JUDGE}
    for (who, metric), statistic in flat.items():
        own, few = drawn[f"{who}\x1f{metric}"], thin(statistic)
        metrics[who][metric] = own_interval(statistic, n_questions, own).unless(few).to_dict()
        if who != JUDGE and (JUDGE, metric) in flat:
            gap = point(flat[JUDGE, metric], n_questions) - point(statistic, n_questions)
            resampled = drawn[f"{JUDGE}\x1f{metric}"] - own
            differences[who][metric] = percentile_interval(gap, resampled, difference=True).unless(few).to_dict()
    return {"metrics": metrics, "differences": differences}
