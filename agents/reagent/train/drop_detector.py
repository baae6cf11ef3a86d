"""Detect a series' certain fall below its best that a score beside it has not followed. Pure.

The best of many noisy evaluations is too high. So means of stretches of one to eight points are compared, task by task where
the tasks are the same, beyond noise at a level shared among all comparisons of a look. No stretch before is longer than the
last. The score has not followed where it fell by less than half of slope · fall, certainly too."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

LENGTHS = (1, 2, 4, 8)
"""Points of a stretch; that before is no longer than the last."""
LEVEL = 0.01
"""One-sided level of a look, shared among its pairs of lengths, each pair's among its places."""
LEAST_SLOPE = 0.1
"""Slope of a score that differs less with the truth, or in an unknown way."""
FEWEST = 10
NEARLY = 1e-9
Score = Mapping[str, float] | tuple[float, ...]
"""Scores by task or by update, or just the means of the updates since the last point."""


@dataclass(frozen=True)
class Point:
    when: str
    truth: Mapping[str, float]
    score: Score | None
    """Scores by task or by update; None: a constant score, so any fall of the truth counts."""


@dataclass(frozen=True)
class Fall:
    truth: tuple[float, float]
    score: tuple[float, float]
    error: float
    when: tuple[str, str]

    @property
    def size(self) -> float:
        return self.truth[0] - self.truth[1]


@dataclass(frozen=True)
class Look:
    comparisons: int
    fall: Fall | None


@dataclass(frozen=True)
class MeanDifference:
    """A mean before less the mean now, its standard error, and the error's degrees of freedom."""

    value: float
    error: float
    freedom: float

    def certain(self, level: float) -> bool:
        return self.value > max(self.error * critical(self.freedom, level), NEARLY)


@dataclass(frozen=True)
class Compared:
    truth: tuple[float, float]
    score: tuple[float, float]
    fallen: MeanDifference
    paid_less: MeanDifference
    missing: MeanDifference
    """`expected` fall of the score less `paid_less`."""
    slope: float
    """Slope of the score on the truth in the stretch before, within [0, 1]; NaN where unknown."""

    def unseen(self, least: float, level: float) -> bool:
        """True where the truth has certainly fallen, by `least`, and the score has not followed."""
        if self.fallen.value < least - NEARLY or not self.fallen.certain(level):
            return False
        required = expected(self.slope) * self.fallen.value / 2
        if (
            self.slope < LEAST_SLOPE
        ):  # of a score that tells nothing nothing can be missing: it is to fall beyond its own noise
            return self.paid_less.value < max(required, self.paid_less.error) - NEARLY
        return self.paid_less.value < required - NEARLY and self.missing.certain(level)


def expected(slope: float) -> float:
    return max(LEAST_SLOPE, slope)  # in this order: of NaN the first


def critical(freedom: float, level: float) -> float:
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, level))


@dataclass
class DropDetector:
    least: float
    paired: bool = field(kw_only=True)
    """Points are of the same tasks; else their values are drawn anew each time."""
    _points: list[Point] = field(default_factory=list)

    def take(self, point: Point) -> Look:
        self._points.append(point)
        series, end = Series(self._points, self.paired), len(self._points)
        pairs: list[list[tuple[int, int, int, Compared]]] = []
        for last in LENGTHS:
            for first in LENGTHS[: LENGTHS.index(last) + 1]:
                each = ((start, series.compare(start, first, last)) for start in range(end - first - last + 1))
                if group := [(start, first, last, pair) for start, pair in each if pair is not None]:
                    pairs.append(group)
        falls = [
            Fall(pair.truth, pair.score, pair.fallen.error, (series.when(start, first), series.when(end - last, last)))
            for group in pairs
            for start, first, last, pair in group
            if pair.unseen(self.least, LEVEL / (len(pairs) * len(group)))
        ]
        return Look(sum(map(len, pairs)), max(falls, key=lambda fall: fall.size, default=None))


def aligned(points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
    """Truth and score, (points, tasks) each, tasks sorted; NaN in both where one is unknown."""
    keys = sorted({key for p in points for key in p.truth})
    truth = np.array([[p.truth.get(key, math.nan) for key in keys] for p in points], dtype=np.float64)
    score = np.array([_by_task(p.score, keys) for p in points], dtype=np.float64)
    unknown = np.isnan(truth) | np.isnan(score)
    truth[unknown] = score[unknown] = math.nan
    return truth, score


def _by_task(score: Score | None, keys: Sequence[str]) -> list[float]:
    if isinstance(score, Mapping):
        return [score.get(key, math.nan) for key in keys]
    return [float(np.mean(score)) if score else 0.0] * len(keys)


class Series:
    """Points in order, aligned by task; `paired`: by each task's mean over a stretch, else all values."""

    def __init__(self, points: Sequence[Point], paired: bool) -> None:
        self.points, self.paired = points, paired
        self.truth, self.score = aligned(points)
        self.known = ~np.isnan(self.truth)
        by_key = np.array([isinstance(p.score, Mapping) for p in points])
        if not paired:
            self.known[~by_key] = False
        self._means = None if not paired or by_key.all() else [_means(p.score) for p in points]

    def when(self, start: int, length: int) -> str:
        first, last = self.points[start].when, self.points[start + length - 1].when
        return first if length == 1 else f"{first} to {last}"

    def compare(self, start: int, first: int, last: int) -> Compared | None:
        """Compare `first` points from `start` on with the last `last`; None where too little is known."""
        stretches = slice(start, start + first), slice(len(self.points) - last, None)
        masks = [self.known[stretch] for stretch in stretches]
        both = masks[0].any(0) & masks[1].any(0)
        if (both.sum() < FEWEST) if self.paired else min(stretch.sum() for stretch in masks) < 2:
            return None

        def of(values: np.ndarray) -> list[np.ndarray]:
            if not self.paired:
                return [values[stretch][mask] for stretch, mask in zip(stretches, masks, strict=True)]
            return [np.nanmean(values[stretch][:, both], axis=0) for stretch in stretches]

        truth, score = of(self.truth), of(self.score)
        fallen = self._difference(*truth)
        truths = float(truth[0].mean()), float(truth[1].mean())
        if self._means is not None:
            return _by_means(truths, fallen, self._means, stretches)
        pooled = masks[0] & (both | (not self.paired))
        rise = slope(self.truth[stretches[0]][pooled], self.score[stretches[0]][pooled])
        missing = self._difference(*(expected(rise) * t - s for t, s in zip(truth, score, strict=True)))
        scores = float(score[0].mean()), float(score[1].mean())
        return Compared(truths, scores, fallen, self._difference(*score), missing, rise)

    def _difference(self, before: np.ndarray, now: np.ndarray) -> MeanDifference:
        if self.paired:
            return MeanDifference(float((before - now).mean()), *mean_error(before - now))
        (error, freedom), (error_now, freedom_now) = mean_error(before), mean_error(now)
        both = welch_df(error, freedom, error_now, freedom_now)
        return MeanDifference(float(before.mean() - now.mean()), math.hypot(error, error_now), both)


def mean_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1.0


def slope(truth: np.ndarray, score: np.ndarray) -> float:
    """Slope of the least-squares line of scores on truths, clipped to [0, 1]; 0 for a constant truth."""
    away = truth - truth.mean()
    return min(max(float(away @ score / (away @ away)), 0.0), 1.0) if away @ away > NEARLY else 0.0


def _means(score: Score | None) -> tuple[float, ...]:
    if isinstance(score, Mapping):
        return (sum(score.values()) / len(score),) if score else (0.0,)
    return score or (0.0,)


def _by_means(
    truths: tuple[float, float], fell: MeanDifference, means: Sequence[tuple[float, ...]], stretches: Sequence[slice]
) -> Compared:
    before, now = (np.concatenate([np.array(group) for group in means[stretch]]) for stretch in stretches)
    noise, freedom = noise_std(np.concatenate([np.array(group) for group in means]))
    scores = float(before.mean()), float(now.mean())
    less = MeanDifference(scores[0] - scores[1], noise * math.sqrt(1 / len(before) + 1 / len(now)), freedom)
    error = LEAST_SLOPE * fell.error
    both = welch_df(error, fell.freedom, less.error, less.freedom)
    missing = MeanDifference(LEAST_SLOPE * fell.value - less.value, math.hypot(error, less.error), both)
    return Compared(truths, scores, fell, less, missing, math.nan)


def noise_std(means: np.ndarray) -> tuple[float, float]:
    """A series' noise and its degrees of freedom, from differences of neighbours (von Neumann, 1941)."""
    steps = np.diff(means)
    return float(np.sqrt((steps**2).mean() / 2)), 2 * len(steps) / 3


def welch_df(error: float, freedom: float, other_error: float, other_freedom: float) -> float:
    """Degrees of freedom of an error of two parts (Welch and Satterthwaite)."""
    parts = error**4 / freedom + other_error**4 / other_freedom
    return (error**2 + other_error**2) ** 2 / parts if parts > 0 else freedom
