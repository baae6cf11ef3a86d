"""Whether a series has fallen below its best by more than chance would have it. Pure.

The best of many noisy evaluations is too high, and the next one lies below it with no policy any worse. So what is compared is means of
one point and of several, task by task where the tasks are the same, and the fall must be beyond the noise at a level that is shared
among all the comparisons of a look. The best may have been short, at the end of a rise: so no stretch before is longer than the one it is
compared with, and each may be as short as one point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LENGTHS = (1, 2, 4, 8)
"""Points of a stretch; that before is no longer than the last."""
LEVEL = 0.01
"""One-sided level of a look, shared among its pairs of lengths, each pair's among the places of the stretch before."""
LEAST_SLOPE = 0.1
"""A score that differs less with the truth, or in a way that is not known, tells little of it."""
DOUBT = 0.5
"""Standard errors of the score's fall that are allowed to one that tells more: it is asked in many comparisons."""
FEWEST = 10
"""Tasks: fewer prove nothing."""
NEARLY = 1e-9
"""Differences smaller than this are rounding."""


@dataclass(frozen=True)
class Point:
    """A truth and a score at one time."""

    when: str
    truth: Mapping[str, float]
    """By task; or by update."""
    score: Mapping[str, float] | float
    """Likewise, or their mean where that alone is known."""


@dataclass(frozen=True)
class Series:
    """Points in order; figures that are not known are NaN."""

    when: list[str]
    truth: np.ndarray
    """(points, keys): tasks, or updates."""
    score: np.ndarray
    """(points, keys); a mean that alone is known stands for each."""
    each: np.ndarray
    """(points,) whether the score is known by key."""

    @classmethod
    def of(cls, points: Sequence[Point]) -> Series:
        """Of points with any keys."""
        keys = sorted({key for p in points for key in p.truth})
        each = [isinstance(p.score, Mapping) for p in points]
        parts = (
            [of_tasks(part, keys) for part in found]
            for found in zip(*((p.truth, p.score) for p in points), strict=True)
        )
        truth, score = map(np.array, parts)
        return cls([p.when for p in points], truth, score, np.array(each))

    def __getitem__(self, part: slice) -> Series:
        return Series(self.when[part], self.truth[part], self.score[part], self.each[part])

    def __len__(self) -> int:
        return len(self.when)

    @property
    def stretch(self) -> str:
        """From when to when."""
        return self.when[0] if len(self) == 1 else f"{self.when[0]} to {self.when[-1]}"


@dataclass(frozen=True)
class Fall:
    """A mean that was and one that is."""

    truth: tuple[float, float]
    score: tuple[float, float]
    error: float
    """Standard error of the truth's difference."""
    freedom: float
    """Its degrees of freedom."""
    score_error: float
    """Standard error of the score's difference; 0 where it is not known."""
    slope: float
    """What the score moves by as the truth moves by 1, in the stretch before, within [0, 1]; 0 where it is not known."""
    when: tuple[str, str]

    @property
    def size(self) -> float:
        """By how much the truth is lower."""
        return self.truth[0] - self.truth[1]

    @property
    def followed(self) -> bool:
        """Whether the score fell too: by half as much at least as it differs with the truth elsewhere, give or take `DOUBT` standard
        errors; one that differs by less than `LEAST_SLOPE`, or nobody knows how, by more than its own standard error."""
        fallen, half = self.score[0] - self.score[1], max(self.slope, LEAST_SLOPE) * self.size / 2
        if self.slope < LEAST_SLOPE:
            return fallen >= max(half, self.score_error) - NEARLY
        return fallen >= half - DOUBT * self.score_error - NEARLY

    def certain(self, comparisons: int) -> bool:
        """Whether it is beyond chance, as one of so many comparisons."""
        return self.size > self.error * critical(self.freedom, comparisons)


def critical(freedom: float, comparisons: int) -> float:
    """Student's t that noise exceeds in `LEVEL` of looks, each of so many comparisons."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, LEVEL / comparisons))


class Falls:
    """A series, and whether its end lies below an earlier stretch with a score that has not followed.

    Args:
        least: the smallest fall that matters.
        paired: whether points are of the same tasks; else their values are drawn anew each time.
    """

    def __init__(self, least: float, *, paired: bool) -> None:
        self.least, self.paired = least, paired
        self._points: list[Point] = []

    def take(self, point: Point) -> Fall | None:
        """The largest certain fall to the series' end, this point the last, that the score has not followed; None where there is none."""
        self._points.append(point)
        series, compare = Series.of(self._points), paired if self.paired else unpaired
        pairs: list[list[Fall]] = []
        for last in LENGTHS:
            for first in LENGTHS[: LENGTHS.index(last) + 1]:
                starts = range(len(series) - last - first + 1)
                pairs.append([f for at in starts if (f := compare(series[at : at + first], series[-last:]))])
        pairs = [found for found in pairs if found]
        large = ((f, len(pairs) * len(found)) for found in pairs for f in found if f.size >= self.least - NEARLY)
        unseen = [f for f, comparisons in large if f.certain(comparisons) and not f.followed]
        return max(unseen, key=lambda f: f.size, default=None)


def paired(before: Series, now: Series) -> Fall | None:
    """Two stretches by the tasks that all their points have; None where those are fewer than `FEWEST`."""
    parts = (before.truth, now.truth, before.score, now.score)
    known = ~np.isnan(np.concatenate(parts)).any(0)
    if known.sum() < FEWEST:
        return None
    truth, later, score, paid = (part[:, known] for part in parts)
    each = bool(before.each.all())
    return Fall(
        truth=(float(truth.mean()), float(later.mean())),
        score=(float(score.mean()), float(paid.mean())),
        error=standard_error(truth.mean(0) - later.mean(0)),
        freedom=int(known.sum()) - 1,
        score_error=standard_error(score.mean(0) - paid.mean(0))
        if each and now.each.all()
        else pooled_error(score.mean(1), paid.mean(1)),
        slope=slope(truth, score) if each else 0.0,
        when=(before.stretch, now.stretch),
    )


def unpaired(before: Series, now: Series) -> Fall | None:
    """Two stretches by all their values (Welch's t); None where one has fewer than two."""
    known = [~np.isnan(part.truth) & ~np.isnan(part.score) & part.each[:, None] for part in (before, now)]
    if min(int(found.sum()) for found in known) < 2:
        return None
    (truth, score), (later, paid) = (
        (part.truth[found], part.score[found]) for part, found in zip((before, now), known, strict=True)
    )
    shares = [_share(values) for values in (truth, later)]
    parts = sum(share**2 / (len(values) - 1) for share, values in zip(shares, (truth, later), strict=True))
    return Fall(
        truth=(float(truth.mean()), float(later.mean())),
        score=(float(score.mean()), float(paid.mean())),
        error=math.sqrt(sum(shares)),
        freedom=sum(shares) ** 2 / parts if parts else 1.0,
        score_error=math.sqrt(_share(score) + _share(paid)),
        slope=slope(truth, score),
        when=(before.stretch, now.stretch),
    )


def common_tasks(points: Sequence[Point]) -> list[str]:
    """The tasks that are known in all points, of truth and score."""
    parts = [part for p in points for part in (p.truth, p.score) if isinstance(part, Mapping)]
    return sorted(set.intersection(*map(set, parts)))


def of_tasks(known: Mapping[str, float] | float, tasks: Sequence[str]) -> np.ndarray:
    """(tasks,) figures in their order, NaN where unknown; a mean that alone is known stands for each."""
    found = [known.get(task, math.nan) for task in tasks] if isinstance(known, Mapping) else [known] * len(tasks)
    return np.array(found, dtype=np.float64)


def standard_error(values: np.ndarray) -> float:
    """Of their mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def pooled_error(before: np.ndarray, now: np.ndarray) -> float:
    """Of the difference of two means of values with one variance; 0 where each is one value, which tells nothing of it."""
    freedom = len(before) + len(now) - 2
    if not freedom:
        return 0.0
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in (before, now))
    return math.sqrt(squares / freedom * (1 / len(before) + 1 / len(now)))


def _share(values: np.ndarray) -> float:
    """Variance of their mean."""
    return float(values.var(ddof=1)) / len(values)


def slope(truth: np.ndarray, score: np.ndarray) -> float:
    """Of the least-squares line of the score on the truth, arrays of one shape, within [0, 1]: for a truth of 0 or 1 the mean score of
    successes less that of failures. 0 where the truth is always the same."""
    if np.ptp(truth) < NEARLY:
        return 0.0
    away = truth - truth.mean()
    return float(np.clip((away * score).sum() / (away**2).sum(), 0.0, 1.0))
