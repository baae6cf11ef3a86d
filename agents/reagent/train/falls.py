"""Whether a series has fallen below its best by more than chance would have it. Pure.

The best of many noisy evaluations is too high, and the next one lies below it with no policy any worse. So what is compared is means of
several points on either side, task by task where the tasks are the same, and the fall must be beyond the noise at a level that is shared
among all the earlier stretches it is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

AVERAGED = 8
"""Points on either side at most; fewer while there are fewer than twice as many."""
LEVEL = 0.01
"""One-sided level of a look, shared among its comparisons."""
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
class Fall:
    """A mean that was and one that is."""

    truth: tuple[float, float]
    score: tuple[float, float]
    error: float
    """Standard error of the truth's difference."""
    freedom: float
    """Its degrees of freedom."""
    slope: float
    """What the score moves by as the truth moves by 1, in the stretch before, within [0, 1]; 0 where it is not known."""
    when: tuple[str, str]

    @property
    def size(self) -> float:
        """By how much the truth is lower."""
        return self.truth[0] - self.truth[1]

    @property
    def followed(self) -> bool:
        """Whether the score fell too, by half as much at least as it differs with the truth elsewhere."""
        fallen = self.score[0] - self.score[1]
        return fallen > NEARLY and fallen >= self.slope * self.size / 2 - NEARLY

    def certain(self, comparisons: int) -> bool:
        """Whether it is beyond chance, as one of so many comparisons."""
        return self.size > self.error * critical(self.freedom, comparisons)


def critical(freedom: float, comparisons: int) -> float:
    """Student's t that noise exceeds in `LEVEL` of looks, each of so many comparisons."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, LEVEL / comparisons))


class Falls:
    """A series, and whether its end lies below an earlier stretch.

    Args:
        least: the smallest fall that matters.
        paired: whether points are of the same tasks; else their values are drawn anew each time.
    """

    def __init__(self, least: float, *, paired: bool) -> None:
        self.least, self.paired = least, paired
        self._points: list[Point] = []

    def take(self, point: Point) -> Fall | None:
        """The largest certain fall to the series' end, this point the last; None where there is none."""
        self._points.append(point)
        points, width = self._points, min(AVERAGED, len(self._points) // 2)
        if not width:
            return None
        compare, now = paired if self.paired else unpaired, points[-width:]
        starts = range(len(points) - 2 * width + 1)
        found = [fall for at in starts if (fall := compare(points[at : at + width], now))]
        certain = [f for f in found if f.size >= self.least - NEARLY and f.certain(len(found))]
        return max(certain, key=lambda f: f.size, default=None)


def paired(before: Sequence[Point], now: Sequence[Point]) -> Fall | None:
    """Two stretches by the tasks that all their points have; None where those are fewer than `FEWEST`."""
    tasks = common_tasks([*before, *now])
    if len(tasks) < FEWEST:
        return None
    truths = [np.array([of_tasks(p.truth, tasks) for p in part]) for part in (before, now)]
    scores = [np.array([of_tasks(p.score, tasks) for p in part]) for part in (before, now)]
    by_task = all(isinstance(p.score, Mapping) for p in before)
    return Fall(
        truth=(float(truths[0].mean()), float(truths[1].mean())),
        score=(float(scores[0].mean()), float(scores[1].mean())),
        error=standard_error(truths[0].mean(0) - truths[1].mean(0)),
        freedom=len(tasks) - 1,
        slope=slope(truths[0], scores[0]) if by_task else 0.0,
        when=(_stretch(before), _stretch(now)),
    )


def unpaired(before: Sequence[Point], now: Sequence[Point]) -> Fall | None:
    """Two stretches by all their values (Welch's t); None where one has fewer than two."""
    pairs = [
        [(p.truth[key], p.score[key]) for p in part if isinstance(p.score, Mapping) for key in p.truth]
        for part in (before, now)
    ]
    if min(map(len, pairs)) < 2:
        return None
    (truth, score), (later, paid) = (np.array(found).T for found in pairs)
    shares = [float(values.var(ddof=1)) / len(values) for values in (truth, later)]
    parts = sum(share**2 / (len(values) - 1) for share, values in zip(shares, pairs, strict=True))
    return Fall(
        truth=(float(truth.mean()), float(later.mean())),
        score=(float(score.mean()), float(paid.mean())),
        error=math.sqrt(sum(shares)),
        freedom=sum(shares) ** 2 / parts if parts else 1.0,
        slope=slope(truth, score),
        when=(_stretch(before), _stretch(now)),
    )


def common_tasks(points: Sequence[Point]) -> list[str]:
    """The tasks that are known in all points, of truth and score."""
    parts = [part for p in points for part in (p.truth, p.score) if isinstance(part, Mapping)]
    return sorted(set.intersection(*map(set, parts)))


def of_tasks(known: Mapping[str, float] | float, tasks: Sequence[str]) -> np.ndarray:
    """(tasks,) figures in their order; a mean that alone is known stands for each."""
    found = [known[task] for task in tasks] if isinstance(known, Mapping) else [known] * len(tasks)
    return np.array(found, dtype=np.float64)


def standard_error(values: np.ndarray) -> float:
    """Of their mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def slope(truth: np.ndarray, score: np.ndarray) -> float:
    """Of the least-squares line of the score on the truth, arrays of one shape, within [0, 1]: for a truth of 0 or 1 the mean score of
    successes less that of failures. 0 where the truth is always the same."""
    if np.ptp(truth) < NEARLY:
        return 0.0
    away = truth - truth.mean()
    return float(np.clip((away * score).sum() / (away**2).sum(), 0.0, 1.0))


def _stretch(points: Sequence[Point]) -> str:
    return points[0].when if len(points) == 1 else f"{points[0].when} to {points[-1].when}"
