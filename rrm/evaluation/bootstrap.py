"""Bootstrap over questions: attempts at one question are not independent, so questions are resampled, never rows.

A statistic is a function of how often each question was drawn. Everything a statistic needs from the rows is summed
per question once (`Ratio`), so a resample costs one product of a (B, Q) matrix with a (Q,) vector. Statistics that are
resampled together share their draws: differences between judges are therefore paired.

Legend: Q questions, B resamples in a chunk, n resamples in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]
"""(B, Q) draw counts → (B,) values; NaN where a resample leaves the statistic undefined."""
MOSTLY = 0.9
"""Share of resamples that must be defined: with k questions that count, about 1 − exp(−k) are."""
MIN_QUESTIONS, MIN_ROWS = 10, 20
"""What a figure must rest on to get an interval: a percentile bootstrap over less is far narrower than it says."""
CHUNK_ELEMENTS = 4_000_000
"""Draw counts held at once (float64: 32 MB)."""


@dataclass(frozen=True)
class Ratio:
    """Σ numerator / Σ denominator over the drawn questions, e.g. pairs won / pairs: pooled, not a mean of means."""

    numerator: np.ndarray
    """(Q,) summed over each question's rows."""
    denominator: np.ndarray
    """(Q,) likewise, ≥ 0."""

    def __post_init__(self) -> None:
        if self.numerator.ndim != 1 or self.numerator.shape != self.denominator.shape:
            raise ValueError(f"Ratio wants two (Q,) arrays, got {self.numerator.shape} and {self.denominator.shape}")

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        below = counts @ self.denominator
        return np.divide(counts @ self.numerator, below, out=np.full(len(below), np.nan), where=below > 0)

    @property
    def value(self) -> float:
        """The statistic on the questions as they are; NaN when the denominator is 0."""
        return float(self(np.ones((1, len(self.numerator))))[0])


def by_questions(values: Sequence[float] | np.ndarray, questions: Sequence[str] | None = None) -> Ratio:
    """The values' mean as a statistic over questions, in the order in which they first come.

    Args:
        questions: what each value is of; values of one question are drawn together. None: each of another one.
    """
    places: dict[str, int] = {}
    names = map(str, range(len(values))) if questions is None else questions
    at = [places.setdefault(name, len(places)) for name in names]
    return Ratio(np.bincount(at, weights=values).astype(np.float64), np.bincount(at).astype(np.float64))


@dataclass(frozen=True)
class Interval:
    """A value with its percentile interval. All three are None where the statistic is undefined, the bounds alone where too
    few questions carry it (`percentile_interval`)."""

    value: float | None
    low: float | None
    high: float | None
    share_above_zero: float | None = None
    """Of a difference: the share of resamples above 0 (ties with 0 count half)."""

    def unless(self, too_few: bool) -> Interval:
        """The value alone where too little carries it."""
        return Interval(self.value, None, None) if too_few else self

    def to_dict(self) -> dict[str, float | None]:
        """For JSON; `share_above_zero` only where it is set."""
        found = {"value": self.value, "low": self.low, "high": self.high}
        return found if self.share_above_zero is None else {**found, "share_above_zero": self.share_above_zero}


def too_few(questions: int, rows: int) -> bool:
    """Whether a figure over so many questions and rows (or pairs, or steps) is too thin for an interval."""
    return questions < MIN_QUESTIONS or rows < MIN_ROWS


def draw_counts(n_questions: int, n: int, seed: int) -> Iterator[np.ndarray]:
    """Chunks (B, Q) of how often each question occurs when Q questions are drawn with replacement, n times in all."""
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
    """Every statistic on the same n resamples of the questions: name → (n,) values."""
    chunks: dict[str, list[np.ndarray]] = {name: [] for name in statistics}
    for counts in draw_counts(n_questions, n, seed):
        for name, statistic in statistics.items():
            chunks[name].append(statistic(counts))
    return {name: np.concatenate(parts) for name, parts in chunks.items()}


def point(statistic: Statistic, n_questions: int) -> float:
    """The statistic on the questions as they are (each drawn once)."""
    return float(statistic(np.ones((1, n_questions)))[0])


def percentile_interval(
    value: float, resampled: np.ndarray, *, level: float = 0.95, difference: bool = False
) -> Interval:
    """The percentile interval of `resampled` (n,) around `value`, which it always holds; undefined resamples (NaN) are left out.

    Where more than a tenth of them are, there is no interval: the statistic rests on one question or two, and resamples of
    the same question would say that it hardly varies.

    Args:
        difference: also report the share of resamples above 0.
    """
    defined = resampled[np.isfinite(resampled)]
    if not np.isfinite(value) or not len(defined):
        return Interval(None, None, None)
    if len(defined) < MOSTLY * len(resampled):
        return Interval(value, None, None)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    above = float(np.mean(defined > 0) + np.mean(defined == 0) / 2) if difference else None
    return Interval(value, min(float(low), value), max(float(high), value), above)


def own_interval(statistic: Statistic, n_questions: int, resampled: np.ndarray) -> Interval:
    """The interval of one statistic by itself, of its `replicates` (n,).

    Of one marked `biased` (never negative, and larger on a resample than on the sample: `CalibrationError`) it is the basic
    bootstrap's, 2v − v*, from 0 on. A difference is never taken of such reflected values: what its two sides have too much of
    mostly cancels, and reflected it pushes them apart.
    """
    value = point(statistic, n_questions)
    if getattr(statistic, "biased", False):
        resampled = np.maximum(2 * value - resampled, 0.0)
    return percentile_interval(value, resampled)


def bootstrap(statistic: Statistic, n_questions: int, *, n: int = 10_000, seed: int = 0) -> Interval:
    """One judge's 95 % interval over questions."""
    return own_interval(statistic, n_questions, replicates({"it": statistic}, n_questions, n=n, seed=seed)["it"])


def paired_bootstrap(a: Statistic, b: Statistic, n_questions: int, *, n: int = 10_000, seed: int = 0) -> Interval:
    """The 95 % interval of (a − b) over questions, both on the same draws.

    Args:
        a, b: statistics over the same questions in the same order, e.g. two judges' `pairs.pair_parts` on the same pairs.
        n_questions: Q.

    Returns:
        The difference, its interval and the share of resamples in which a is better.
    """
    both = replicates({"a": a, "b": b}, n_questions, n=n, seed=seed)
    value = point(a, n_questions) - point(b, n_questions)
    return percentile_interval(value, both["a"] - both["b"], difference=True)


JUDGE = "judge"
"""The scorer that the others are compared with."""


def compare(
    table: Mapping[str, Mapping[str, Statistic]],
    n_questions: int,
    *,
    thin: Callable[[Statistic], bool],
    n: int = 10_000,
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Intervals of every scorer's metrics, and of the differences judge − scorer, all on the same resamples.

    Args:
        table: scorer → metric → statistic over the same Q questions; one scorer is the `judge`.
        n_questions: Q.
        thin: whether a statistic rests on too little for an interval.

    Returns:
        `metrics[scorer][metric]` and `differences[scorer][metric]` (where the judge has the metric too) as `Interval.to_dict`.
    """
    flat = {(who, what): statistic for who, found in table.items() for what, statistic in found.items()}
    drawn = replicates({"\x1f".join(key): s for key, s in flat.items()}, n_questions, n=n, seed=seed) if flat else {}
    metrics: dict[str, dict[str, Any]] = {who: {} for who in table}
    differences: dict[str, dict[str, Any]] = {who: {} for who in table if who != JUDGE}
    for (who, what), statistic in flat.items():
        own, few = drawn[f"{who}\x1f{what}"], thin(statistic)
        metrics[who][what] = own_interval(statistic, n_questions, own).unless(few).to_dict()
        if who != JUDGE and (JUDGE, what) in flat:
            gap = point(flat[JUDGE, what], n_questions) - point(statistic, n_questions)
            resampled = drawn[f"{JUDGE}\x1f{what}"] - own
            differences[who][what] = percentile_interval(gap, resampled, difference=True).unless(few).to_dict()
    return {"metrics": metrics, "differences": differences}
