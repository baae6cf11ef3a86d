"""Falls beyond chance, by hand: paired and not, in stretches of several lengths, and whether a score followed one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from by_task import TASKS, by_task, succeed

from reagent.train.falls import DOUBT, LEVEL, Fall, Falls, Point, Series, critical, paired, unpaired


def point(truth: Sequence[float], score: Sequence[float] = (), when: str = "") -> Point:
    return Point(when, by_task(truth), by_task(score) if score else 0.5)


def compared(before: Point, now: Point, of: Any = paired) -> Fall:
    series = Series.of([before, now])
    fall = of(series[:1], series[1:])
    assert fall is not None
    return fall


def test_a_paired_fall_by_hand() -> None:
    """100 tasks, 50 solved, later 30 of them: 20 differences of 1, the rest 0."""
    before, now = succeed(50), succeed(30)
    first = point(before, [0.35 + 0.3 * v for v in before])
    fall = compared(first, point(now, [0.43 + 0.3 * v for v in now]))
    assert fall.truth == (0.5, 0.3) and fall.freedom == 99
    assert fall.error == pytest.approx(math.sqrt(100 / 99 * 0.2 * 0.8) / 10)
    assert fall.slope == pytest.approx(0.3) and fall.score == (pytest.approx(0.5), pytest.approx(0.52))
    assert fall.score_error == pytest.approx(0.3 * fall.error)
    assert fall.certain(1) and not fall.certain(10**6)
    assert not fall.followed
    # a half of 0.3 · 0.2 is wanted, give or take half a standard error of 0.012
    for less, followed in ((0.03 - 0.012 * DOUBT + 0.001, True), (0.03 - 0.0121 * DOUBT - 0.001, False)):
        later = point(now, [0.41 - less + 0.3 * v for v in now])
        assert compared(first, later).followed == followed
    series = Series.of([point(before[:9]), point(now[:9])])
    assert paired(series[:1], series[1:]) is None  # of nine tasks


def test_a_score_that_tells_nothing_of_success_follows_only_beyond_its_own_noise() -> None:
    """0.02 is what a slope of 0.1 would be asked for when success falls by 0.4."""
    before, now = succeed(80), succeed(40)
    for fallen, followed in ((1e-6, False), (0.019, False), (0.021, True)):  # alike in all tasks: no noise
        assert compared(point(before, [0.9] * 100), point(now, [0.9 - fallen] * 100)).followed == followed
    swings = [0.5 if i % 2 else -0.5 for i in range(100)]  # standard error 0.05 of their mean
    for fallen, followed in ((0.045, False), (0.055, True)):
        assert compared(point(before, [0.9] * 100), point(now, [0.9 - fallen + v for v in swings])).followed == followed


def test_means_alone_that_swing_have_not_followed() -> None:
    """Standard error of the difference of two means of two: √(0.02 / 2)."""
    truths, means = [0.8, 0.8, 0.4, 0.4], [0.6, 0.4, 0.55, 0.35]
    series = Series.of([Point("", by_task(succeed(round(100 * t))), s) for t, s in zip(truths, means, strict=True)])
    fall = paired(series[:2], series[2:])
    assert fall is not None and fall.slope == 0.0 and fall.score_error == pytest.approx(math.sqrt(0.02))
    assert fall.score[0] - fall.score[1] == pytest.approx(0.05) and not fall.followed


def test_tasks_that_are_not_in_all_points_of_two_stretches_are_left_out() -> None:
    before, now = by_task([1.0] * 30), by_task([0.5] * 30)
    del before["t0"], now["t1"]
    series = Series.of([Point("", before, before), Point("", now, 0.5)])
    fall = paired(series[:1], series[1:])
    assert fall is not None and fall.freedom == 27 and fall.truth == (1.0, 0.5)


def test_an_unpaired_fall_by_hand() -> None:
    """Welch: variances 0.01 and 0.04 of two values each."""
    apart = [0.1 * math.sqrt(2) / 2, 0.2 * math.sqrt(2) / 2]
    before, now = ([m - a, m + a] for m, a in zip((0.6, 0.5), apart, strict=True))
    later = Point("", dict(zip("ab", now, strict=True)), dict(zip("ab", now, strict=True)))
    fall = compared(point(before, before), later, unpaired)
    assert fall.size == pytest.approx(0.1) and fall.error == fall.score_error == pytest.approx(math.sqrt(0.025))
    assert fall.freedom == pytest.approx(0.025**2 / (0.005**2 + 0.02**2)) and fall.slope == pytest.approx(1.0)


def test_a_short_best_is_seen_and_a_long_end_is_averaged() -> None:
    falls = Falls(0.05, paired=True)
    found = [falls.take(point([v] * TASKS, when=str(n))) for n, v in enumerate([0.3, 0.5, 0.46, 0.44, 0.46])]
    assert [f is not None for f in found] == [False, False, False, True, True]
    assert found[3] is not None and found[3].when == ("1", "3") and found[3].size == pytest.approx(0.06)
    assert found[4] is not None and found[4].when == ("1", "3 to 4") and found[4].size == pytest.approx(0.05)


def test_the_level_is_shared_among_pairs_of_lengths_and_then_places() -> None:
    """At the third point: two places of (1, 1), one of (1, 2)."""
    beyond = {lost: lost / math.sqrt(100 / 99 * lost * (100 - lost) / 100) for lost in (7, 8)}  # Student's t
    assert LEVEL == 0.01 and critical(99, 1) < beyond[7] < critical(99, 4) < beyond[8]
    for lost, seen in ((7, False), (8, True)):
        falls = Falls(0.05, paired=True)
        for n in (50, 50):
            assert falls.take(point(succeed(n))) is None
        assert (falls.take(point(succeed(50 - lost))) is not None) == seen


def test_of_two_falls_the_score_that_did_not_follow_one_is_told() -> None:
    """The larger one, from the first point, the score has followed."""
    falls = Falls(0.05, paired=True)
    found = [falls.take(point(succeed(n), [s] * 100)) for n, s in ((80, 0.9), (70, 0.5), (50, 0.6))]
    assert found[0] is None and found[1] is None
    assert (
        found[2] is not None
        and found[2].truth == (0.7, 0.5)
        and found[2].score == (pytest.approx(0.5), pytest.approx(0.6))
    )


def test_a_policy_that_rises_and_then_falls_is_seen_at_the_second_lower_evaluation() -> None:
    """Noise-free, 200 tasks: up to 0.8 by tenths and down again."""
    falls, seen = Falls(0.05, paired=True), list[float]()
    for solved in (20, 40, 60, 80, 100, 120, 140, 160, 140, 120):
        if falls.take(point(succeed(solved, 200), [0.9] * 200)):
            seen.append(solved / 200)
    assert seen == [0.7, 0.6]
