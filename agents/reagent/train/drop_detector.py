"""Whether a series has fallen below its best by more than chance would have it, and a score beside it has not followed. Pure.

The best of many noisy evaluations is too high, and the next one lies below it with no policy any worse. So what is compared is means of
one point and of several, task by task where the tasks are the same, and a fall must be beyond the noise at a level that is shared
among all the comparisons of a look. The best may have been short, at the end of a rise: so no stretch before is longer than the one it is
compared with, and each may be as short as one point.

A score that differs with the truth by its slope is expected to fall by the slope times the truth's fall. It has not followed where it
fell by less than half of that, and what is missing is beyond the noise of truth and score together, at the same shared level.
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
FEWEST = 10
"""Tasks: fewer prove nothing."""
NEARLY = 1e-9
"""Differences smaller than this are rounding."""
Score = Mapping[str, float] | tuple[float, ...]
"""By task, or by update; or means that alone are known, of the updates since the last point, each with its noise."""
Figures = np.ndarray
"""(places,) one for each stretch before."""


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
    """Means before less means now, and their standard errors."""

    value: Figures
    error: Figures
    freedom: Figures
    """Degrees of freedom of the error; NaN where there is no comparison."""

    def certain(self, level: float) -> np.ndarray:
        """Where it is above 0 beyond chance, one-sided."""
        return self.value > np.maximum(self.error * critical(self.freedom, level), NEARLY)


@dataclass(frozen=True)
class Compared:
    """Every stretch before with the last one."""

    truth: tuple[Figures, Figures]
    """Before, and now; of what both have."""
    score: tuple[Figures, Figures]
    fallen: MeanDifference
    """Of the truth."""
    paid_less: MeanDifference
    """Of the score."""
    missing: MeanDifference
    """Of what the score was to fall by, and did not: `expected`, as a difference, less `paid_less`."""
    slope: Figures
    """What the score moves by as the truth moves by 1, in the stretch before, within [0, 1]; 0 where it never moved; NaN where it is
    not known."""

    @property
    def known(self) -> np.ndarray:
        """Where there is a comparison."""
        return ~np.isnan(self.fallen.freedom)

    def unseen(self, least: float, level: float) -> np.ndarray:
        """Where the truth has fallen for certain, by so much at least, and the score has not followed."""
        half = expected(self.slope) * self.fallen.value / 2
        # of a score that tells nothing nothing can be missing: it has followed where it fell by half, and beyond its own noise
        blind = self.slope < LEAST_SLOPE
        asked = np.where(blind, np.fmax(half, self.paid_less.error), half)
        silent = (self.paid_less.value < asked - NEARLY) & (blind | self.missing.certain(level))
        return (self.fallen.value >= least - NEARLY) & self.fallen.certain(level) & silent


def expected(slope: Figures) -> Figures:
    """Slopes a score is held to: of one that tells little, or nobody knows how much, the least."""
    return np.fmax(slope, LEAST_SLOPE)


def critical(freedom: Figures | float, level: float) -> Figures:
    """Student's t that noise exceeds with this probability."""
    from scipy.special import stdtrit

    return -stdtrit(freedom, level)


class DropDetector:
    """A series, and whether its end lies below an earlier stretch with a score that has not followed.

    Args:
        least: the smallest fall that matters.
        paired: whether points are of the same tasks; else their values are drawn anew each time.
    """

    def __init__(self, least: float, *, paired: bool) -> None:
        self.least, self.paired = least, paired
        self._points: list[Point] = []

    def take(self, point: Point) -> Look:
        """Look from the series' end, this point the last."""
        self._points.append(point)
        points = self._points
        series = Paired.of(points) if self.paired else Unpaired.of(points)
        found: list[tuple[int, int, Compared]] = []
        for last in LENGTHS:
            for first in LENGTHS[: LENGTHS.index(last) + 1]:
                if first + last <= len(points) and (one := series.compare(first, last)).known.any():
                    found.append((first, last, one))
        falls = []
        for first, last, one in found:
            level = LEVEL / (len(found) * int(one.known.sum()))
            falls += [_fall(points, first, last, one, int(at)) for at in np.flatnonzero(one.unseen(self.least, level))]
        return Look(sum(int(one.known.sum()) for *_, one in found), max(falls, key=lambda f: f.size, default=None))


def _fall(points: Sequence[Point], first: int, last: int, found: Compared, at: int) -> Fall:
    def of(pair: tuple[Figures, Figures]) -> tuple[float, float]:
        return float(pair[0][at]), float(pair[1][at])

    when = stretch(points[at : at + first]), stretch(points[-last:])
    return Fall(of(found.truth), of(found.score), float(found.fallen.error[at]), when)


def stretch(points: Sequence[Point]) -> str:
    """From when to when."""
    return points[0].when if len(points) == 1 else f"{points[0].when} to {points[-1].when}"


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


def sums(values: np.ndarray) -> np.ndarray:
    """Of the first 0, 1, 2 … along the first axis; NaN counts as 0."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.nancumsum(values, axis=0)])


def windows(running: np.ndarray, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """From running sums: of every stretch of `first` before the last `last` points, (places, …), and of that, (1, …)."""
    end = len(running) - last
    return running[first:end] - running[: end - first], running[-1:] - running[-1 - last : -last]


def slope(n: Figures, t: Figures, s: Figures, tt: Figures, ts: Figures) -> Figures:
    """Of the least-squares line of scores on truths, from their number, sums and sums of products, within [0, 1]: for a truth of 0 or 1
    the mean score of successes less that of failures. 0 where the truth is always the same."""
    away = tt - t * t / np.maximum(n, 1)
    return np.clip(
        np.divide(ts - t * s / np.maximum(n, 1), away, out=np.zeros_like(away), where=away > NEARLY), 0.0, 1.0
    )


def _mean(score: Mapping[str, float]) -> tuple[float, ...]:
    return (sum(score.values()) / len(score),) if score else (0.0,)


@dataclass(frozen=True)
class Paired:
    """Points of the same tasks: each task's mean over the points of a stretch at which it is known."""

    known: np.ndarray
    """Running sums, (points + 1, tasks); so are the next four."""
    truth: np.ndarray
    score: np.ndarray
    squares: np.ndarray
    """Of the truth."""
    products: np.ndarray
    means: list[tuple[float, ...]] | None
    """Of the scores of each point, where at some point they alone are known; None where all are by task."""

    @classmethod
    def of(cls, points: Sequence[Point]) -> Paired:
        """Of points in order."""
        truth, score = aligned(points)
        parts = (~np.isnan(truth), truth, score, truth * truth, truth * score)
        means = [_mean(p.score) if isinstance(p.score, Mapping) else p.score or (0.0,) for p in points]
        alone = not all(isinstance(p.score, Mapping) for p in points)
        known, digits, scores, squares, products = map(sums, parts)
        return cls(known, digits, scores, squares, products, means if alone else None)

    def compare(self, first: int, last: int) -> Compared:
        """Every stretch of `first` points with the last `last`, by the tasks that both have, `FEWEST` at least."""
        (n, later), *others = (
            windows(part, first, last) for part in (self.known, self.truth, self.score, self.squares, self.products)
        )
        (t, t_now), (s, s_now), (tt, _), (ts, _) = others
        both = (n > 0) & (later > 0)
        tasks = both.sum(1)
        enough = tasks >= FEWEST

        def mean(values: np.ndarray) -> Figures:
            return np.where(enough, (values * both).sum(1) / np.maximum(tasks, 1), math.nan)

        def difference(values: np.ndarray) -> MeanDifference:
            value = mean(values)
            squares = (((values - value[:, None]) ** 2) * both).sum(1)
            error = np.sqrt(squares / np.maximum(tasks - 1, 1) / np.maximum(tasks, 1))
            return MeanDifference(value, error, np.where(enough, tasks - 1.0, math.nan))

        def each(sums_of: np.ndarray, number: np.ndarray) -> np.ndarray:
            return np.where(both, sums_of / np.maximum(number, 1), 0.0)

        truth, truth_now = each(t, n), each(t_now, later)
        truths, fell = (mean(truth), mean(truth_now)), difference(truth - truth_now)
        if self.means is not None:
            return by_means(truths, fell, self.means, first, last)
        score, score_now = each(s, n), each(s_now, later)
        rise = slope(*((part * both).sum(1) for part in (n, t, s, tt, ts)))
        missing = difference(expected(rise)[:, None] * (truth - truth_now) - (score - score_now))
        return Compared(truths, (mean(score), mean(score_now)), fell, difference(score - score_now), missing, rise)


def by_means(
    truths: tuple[Figures, Figures], fell: MeanDifference, means: Sequence[tuple[float, ...]], first: int, last: int
) -> Compared:
    """Truths by task with scores of which means alone are known: how they differ with the truth nobody knows."""
    every = np.array([(len(found), sum(found)) for found in means], dtype=np.float64)
    (n, s), (later, s_now) = (part.T for part in windows(sums(every), first, last))
    before, now = s / n, np.broadcast_to(s_now / later, s.shape)
    noise, freedom = noise_std(np.concatenate([np.array(found) for found in means]))
    less = MeanDifference(before - now, noise * np.sqrt(1 / n + 1 / later), np.full(len(n), freedom))
    error = LEAST_SLOPE * fell.error
    missing = MeanDifference(
        LEAST_SLOPE * fell.value - less.value,
        np.hypot(error, less.error),
        welch_df(error, fell.freedom, less.error, less.freedom),
    )
    return Compared(truths, (before, now), fell, less, missing, np.full(len(n), math.nan))


def noise_std(means: np.ndarray) -> tuple[float, float]:
    """Standard deviation of a series' noise, and its degrees of freedom: from differences of neighbours, of which a level that
    changes now and then, or slowly, touches few (von Neumann, 1941)."""
    steps = np.diff(means)
    return float(np.sqrt((steps**2).mean() / 2)), 2 * len(steps) / 3


def welch_df(one: Figures, its: Figures, other: Figures, others: Figures) -> Figures:
    """Degrees of freedom of an error of two parts (Welch and Satterthwaite); of none at all, those of the first."""
    parts = one**4 / its + other**4 / others
    return np.divide((one**2 + other**2) ** 2, parts, out=np.array(its, dtype=np.float64), where=parts > 0)


@dataclass(frozen=True)
class Unpaired:
    """Points whose values are drawn anew each time: all values of a stretch (Welch's t). Points without scores by key have none."""

    moments: np.ndarray
    """(points + 1, 6) running: number, sums of truth and score, of truth², truth · score, score²."""

    @classmethod
    def of(cls, points: Sequence[Point]) -> Unpaired:
        """Of points in order."""
        found = []
        for p in points:
            said = p.score if isinstance(p.score, Mapping) else {}
            t, s = np.array([(v, said[k]) for k, v in p.truth.items() if k in said], dtype=np.float64).reshape(-1, 2).T
            found.append([len(t), t.sum(), s.sum(), t @ t, t @ s, s @ s])
        return cls(sums(np.array(found)))

    def compare(self, first: int, last: int) -> Compared:
        """Every stretch of `first` points with the last `last`, of two values each at least."""
        before, now = (part.T for part in windows(self.moments, first, last))
        now = np.broadcast_to(now, before.shape)
        enough = (before[0] >= 2) & (now[0] >= 2)
        before, now = (np.where(enough, part, math.nan) for part in (before, now))
        number, t, s, tt, ts, _ = before
        rise = slope(number, t, s, tt, ts)

        def difference(a: Figures | float, b: float) -> MeanDifference:
            """Of a · truth + b · score."""
            means, shares, freedoms = [], [], []
            for n, t, s, tt, ts, ss in (before, now):
                means.append((a * t + b * s) / n)
                squares = a * a * tt + 2 * a * b * ts + b * b * ss - n * means[-1] ** 2
                shares.append(np.maximum(squares, 0.0) / (n - 1) / n)
                freedoms.append(n - 1)
            freedom = welch_df(np.sqrt(shares[0]), freedoms[0], np.sqrt(shares[1]), freedoms[1])
            return MeanDifference(means[0] - means[1], np.sqrt(shares[0] + shares[1]), freedom)

        truths, scores = ((before[k] / before[0], now[k] / now[0]) for k in (1, 2))
        return Compared(
            truths, scores, difference(1.0, 0.0), difference(0.0, 1.0), difference(expected(rise), -1.0), rise
        )
