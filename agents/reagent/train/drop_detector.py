"""Whether a series has fallen below its best by more than chance would have it, and a score beside it has not followed. Pure.

The best of many noisy evaluations is too high, and the next one lies below it with no policy any worse. So means of one point and of
several are compared, task by task where the tasks are the same, and a fall must be beyond the noise at a level that is shared among all
the comparisons of a look. The best may have been short, at the end of a rise: so no stretch before is longer than the one it is compared
with, and each may be as short as one point.

A score that differs with the truth by its slope is expected to fall by the slope times the truth's fall. It has not followed where it
fell by less than half of that, and what is missing is beyond the noise of truth and score together, at the same shared level.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

LENGTHS = (1, 2, 4, 8)
"""Points of a stretch; that before is no longer than the last."""
LEVEL = 0.01
"""One-sided level of a look, shared among its pairs of lengths, each pair's among the places of the stretch before."""
LEAST_SLOPE = 0.1
"""A score that differs less with the truth, or in a way that is not known, tells little of it."""
FEWEST = 10
"""Tasks: fewer prove nothing."""
NEARLY = 1e-9
"""Differences smaller than this are rounding."""
Score = Mapping[str, float] | tuple[float, ...]
"""By task, or by update; or means that alone are known, of the updates since the last point, each with its noise."""


@dataclass(frozen=True)
class Point:
    """A truth and a score at one time."""

    when: str
    truth: Mapping[str, float]
    """By task; or by update."""
    score: Score | None
    """None is a score that stands still: any fall of the truth counts."""


@dataclass(frozen=True)
class Fall:
    """A mean that was and one that is."""

    truth: tuple[float, float]
    score: tuple[float, float]
    error: float
    """Standard error of the truth's difference."""
    when: tuple[str, str]

    @property
    def size(self) -> float:
        """By how much the truth is lower."""
        return self.truth[0] - self.truth[1]


@dataclass(frozen=True)
class Look:
    """What there is to say after a point."""

    comparisons: int
    """Pairs of stretches that could be compared; of none nothing follows."""
    fall: Fall | None
    """The largest certain fall that the score has not followed."""


@dataclass(frozen=True)
class MeanDifference:
    """A mean before less the mean now, its standard error, and the error's degrees of freedom."""

    value: float
    error: float
    freedom: float

    def certain(self, level: float) -> bool:
        """Whether it is above 0 beyond chance, one-sided."""
        return self.value > max(self.error * critical(self.freedom, level), NEARLY)


@dataclass(frozen=True)
class Compared:
    """A stretch before with the last one."""

    truth: tuple[float, float]
    """Before, and now; of what both have."""
    score: tuple[float, float]
    fallen: MeanDifference
    """Of the truth."""
    paid_less: MeanDifference
    """Of the score."""
    missing: MeanDifference
    """Of what the score was to fall by, and did not: `expected`, as a difference, less `paid_less`."""
    slope: float
    """What the score moves by as the truth moves by 1, in the stretch before, within [0, 1]; 0 where it never moved; NaN where it is
    not known."""

    def unseen(self, least: float, level: float) -> bool:
        """Whether the truth has fallen for certain, by so much at least, and the score has not followed."""
        if self.fallen.value < least - NEARLY or not self.fallen.certain(level):
            return False
        asked = expected(self.slope) * self.fallen.value / 2
        if (
            self.slope < LEAST_SLOPE
        ):  # of a score that tells nothing nothing can be missing: it is to fall beyond its own noise
            return self.paid_less.value < max(asked, self.paid_less.error) - NEARLY
        return self.paid_less.value < asked - NEARLY and self.missing.certain(level)


def expected(slope: float) -> float:
    """The slope a score is held to: of one that tells little, or nobody knows how much, the least."""
    return max(LEAST_SLOPE, slope)  # in this order: of NaN the first


def critical(freedom: float, level: float) -> float:
    """Student's t that noise exceeds with this probability."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, level))


@dataclass
class DropDetector:
    """A series, and whether its end lies below an earlier stretch with a score that has not followed."""

    least: float
    """The smallest fall that matters."""
    paired: bool = field(kw_only=True)
    """Whether points are of the same tasks; else their values are drawn anew each time."""
    _points: list[Point] = field(default_factory=list)

    def take(self, point: Point) -> Look:
        """Look from the series' end, this point the last."""
        self._points.append(point)
        series, end = Series(self._points, self.paired), len(self._points)
        pairs: list[list[tuple[int, int, int, Compared]]] = []
        for last in LENGTHS:
            for first in LENGTHS[: LENGTHS.index(last) + 1]:
                each = ((at, series.compare(at, first, last)) for at in range(end - first - last + 1))
                if found := [(at, first, last, one) for at, one in each if one is not None]:
                    pairs.append(found)
        falls = [
            Fall(one.truth, one.score, one.fallen.error, (series.when(at, first), series.when(end - last, last)))
            for found in pairs
            for at, first, last, one in found
            if one.unseen(self.least, LEVEL / (len(pairs) * len(found)))
        ]
        return Look(sum(map(len, pairs)), max(falls, key=lambda fall: fall.size, default=None))


def aligned(points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
    """Truth and score, (points, tasks) each, tasks in their order; NaN in both where one is not known. Means that alone are known
    stand for each task."""
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
    """Points in order, aligned by task. `paired`: what is compared is each task's mean over the points of a stretch at which it is known,
    of `FEWEST` tasks at least; else all values of a stretch (Welch's t), of which points without scores by key have none."""

    def __init__(self, points: Sequence[Point], paired: bool) -> None:
        self.points, self.paired = points, paired
        self.truth, self.score = aligned(points)
        self.known = ~np.isnan(self.truth)
        by_key = np.array([isinstance(p.score, Mapping) for p in points])
        if not paired:
            self.known[~by_key] = False
        self._means = None if not paired or by_key.all() else [_means(p.score) for p in points]
        """Of the scores of each point, where at some point they alone are known."""

    def when(self, at: int, length: int) -> str:
        """From when to when a stretch is."""
        first, last = self.points[at].when, self.points[at + length - 1].when
        return first if length == 1 else f"{first} to {last}"

    def compare(self, at: int, first: int, last: int) -> Compared | None:
        """The stretch of `first` points from `at` on with the last `last`; None where too little is known."""
        stretches = slice(at, at + first), slice(len(self.points) - last, None)
        known = [self.known[one] for one in stretches]
        both = known[0].any(0) & known[1].any(0)
        if (both.sum() < FEWEST) if self.paired else min(one.sum() for one in known) < 2:
            return None

        def of(part: np.ndarray) -> list[np.ndarray]:
            """Before, and now: by task, or every value."""
            if not self.paired:
                return [part[one][mask] for one, mask in zip(stretches, known, strict=True)]
            return [np.nanmean(part[one][:, both], axis=0) for one in stretches]

        truth, score = of(self.truth), of(self.score)
        fallen = self._difference(*truth)
        truths = float(truth[0].mean()), float(truth[1].mean())
        if self._means is not None:
            return _by_means(truths, fallen, self._means, stretches)
        pooled = known[0] & (both | (not self.paired))
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
    """Standard error of a mean, and its degrees of freedom."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1.0


def slope(truth: np.ndarray, score: np.ndarray) -> float:
    """Of the least-squares line of scores on truths, within [0, 1]: for a truth of 0 or 1 the mean score of successes less that of
    failures. 0 where the truth is always the same."""
    away = truth - truth.mean()
    return min(max(float(away @ score / (away @ away)), 0.0), 1.0) if away @ away > NEARLY else 0.0


def _means(score: Score | None) -> tuple[float, ...]:
    if isinstance(score, Mapping):
        return (sum(score.values()) / len(score),) if score else (0.0,)
    return score or (0.0,)


def _by_means(
    truths: tuple[float, float], fell: MeanDifference, means: Sequence[tuple[float, ...]], stretches: Sequence[slice]
) -> Compared:
    """Truths by task with scores of which means alone are known: how they differ with the truth nobody knows."""
    before, now = (np.concatenate([np.array(one) for one in means[part]]) for part in stretches)
    noise, freedom = noise_std(np.concatenate([np.array(one) for one in means]))
    scores = float(before.mean()), float(now.mean())
    less = MeanDifference(scores[0] - scores[1], noise * math.sqrt(1 / len(before) + 1 / len(now)), freedom)
    error = LEAST_SLOPE * fell.error
    both = welch_df(error, fell.freedom, less.error, less.freedom)
    missing = MeanDifference(LEAST_SLOPE * fell.value - less.value, math.hypot(error, less.error), both)
    return Compared(truths, scores, fell, less, missing, math.nan)


def noise_std(means: np.ndarray) -> tuple[float, float]:
    """Standard deviation of a series' noise, and its degrees of freedom: from differences of neighbours, of which a level that
    changes now and then, or slowly, touches few (von Neumann, 1941)."""
    steps = np.diff(means)
    return float(np.sqrt((steps**2).mean() / 2)), 2 * len(steps) / 3


def welch_df(one: float, its: float, other: float, others: float) -> float:
    """Degrees of freedom of an error of two parts (Welch and Satterthwaite); of none at all, those of the first."""
    parts = one**4 / its + other**4 / others
    return (one**2 + other**2) ** 2 / parts if parts > 0 else its
