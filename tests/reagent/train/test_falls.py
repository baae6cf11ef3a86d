"""Falls beyond chance, by hand: paired and not, in stretches of several lengths, and whether a score followed one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from trainer_setup import TASKS, by_task, succeed

from reagent.train.drop_detector import LEVEL, DropDetector, Point, Series, critical


def point(truth: Sequence[float], score: Sequence[float] | None = None, when: str = "") -> Point:
    return Point(when, by_task(truth), (0.5,) if score is None else by_task(score))


def compared(before: Sequence[Point], now: Sequence[Point], paired: bool = True) -> Any:
    return Series([*before, *now], paired).compare(0, len(before), len(now))


def test_a_paired_fall_by_hand() -> None:
    """100 tasks, 50 solved, later 30 of them: 20 differences of 1, the rest 0."""
    before, now = succeed(50), succeed(30)
    first = point(before, [0.35 + 0.3 * v for v in before])
    comparison = compared([first], [point(now, [0.43 + 0.3 * v for v in now])])
    error = math.sqrt(100 / 99 * 0.2 * 0.8) / 10
    assert list(comparison.truth) == [0.5, 0.3] and comparison.fallen.freedom == 99
    assert comparison.fallen.error == pytest.approx(error) and comparison.slope == pytest.approx(0.3)
    assert list(comparison.score) == [pytest.approx(0.5), pytest.approx(0.52)]
    assert comparison.paid_less.error == pytest.approx(0.3 * error)
    # what was to be less by 0.06 is more by 0.02; by tasks the two move alike, so that nothing of it is noise
    assert comparison.missing.value == pytest.approx(0.08) and comparison.missing.error == pytest.approx(0.0, abs=1e-9)
    assert comparison.unseen(0.05, 0.01) and not comparison.unseen(0.05, 1e-8) and not comparison.unseen(0.21, 0.01)
    for less, followed in ((0.031, True), (0.029, False)):  # half of 0.3 · 0.2 is wanted
        later = point(now, [0.41 - less + 0.3 * v for v in now])
        assert compared([first], [later]).unseen(0.05, 0.01) == (not followed)
    assert compared([point(before[:9])], [point(now[:9])]) is None  # of nine tasks


def test_a_score_that_misses_its_share_within_its_noise_is_not_blamed() -> None:
    """0.02 is missing to a half and 0.05 to the whole; the noise of 0.5 a task has a standard error of 0.05."""
    before, now = succeed(50), succeed(30)
    first = point(before, [0.35 + 0.3 * v for v in before])
    for noise, blamed in ((0.5, False), (0.05, True)):
        swings = [noise if i % 2 else -noise for i in range(100)]
        later = point(now, [0.40 + 0.3 * v + w for v, w in zip(now, swings, strict=True)])
        comparison = compared([first], [later])
        assert comparison.missing.value == pytest.approx(0.05)
        assert comparison.missing.error == pytest.approx(noise * math.sqrt(100 / 99) / 10)
        assert comparison.unseen(0.05, 0.01) == blamed


def test_a_score_that_tells_nothing_of_success_follows_only_beyond_its_own_noise() -> None:
    """0.02 is what a slope of 0.1 would be asked for when success falls by 0.4."""
    before, now = succeed(80), succeed(40)

    def unseen(later: list[float]) -> bool:
        return bool(compared([point(before, [0.9] * 100)], [point(now, later)]).unseen(0.05, 0.01))

    for fallen, followed in ((1e-6, False), (0.019, False), (0.021, True)):  # alike in all tasks: no noise
        assert unseen([0.9 - fallen] * 100) != followed
    swings = [0.5 if i % 2 else -0.5 for i in range(100)]  # standard error 0.05 of their mean
    for fallen, followed in ((0.045, False), (0.055, True)):
        assert unseen([0.9 - fallen + v for v in swings]) != followed


def means(truths: Sequence[float], scores: Sequence[tuple[float, ...]]) -> list[Point]:
    return [Point("", by_task(succeed(round(100 * t))), s) for t, s in zip(truths, scores, strict=True)]


def test_the_noise_of_means_alone_is_that_of_neighbours() -> None:
    """Steps of 0.1, 0.1 and 0.3: a variance of 0.11 / 3 / 2, with two degrees of freedom."""
    points = means([0.8, 0.4], [(0.5, 0.6), (0.5, 0.8)])
    comparison = compared(points[:1], points[1:])
    noise = math.sqrt(0.11 / 6)
    assert math.isnan(comparison.slope) and comparison.paid_less.value == pytest.approx(-0.1)
    assert comparison.paid_less.error == pytest.approx(noise) and comparison.paid_less.freedom == 2
    assert comparison.missing.value == pytest.approx(0.1 * 0.4 + 0.1) and not comparison.unseen(0.05, 0.01)
    still = means([0.8, 0.4], [(0.5, 0.5), (0.5, 0.5)])
    assert compared(still[:1], still[1:]).unseen(0.05, 0.01)
    follows = means([0.8, 0.4], [(0.5, 0.5), (0.48, 0.48)])
    assert not compared(follows[:1], follows[1:]).unseen(0.05, 0.01)


def test_an_honest_judge_whose_mean_alone_is_known_is_not_blamed() -> None:
    """Success falls by 0.1, its means by 0.03 with noise of 0.01; one that rises by 0.1 is."""
    for scores, blamed in ((0.47, False), (0.6, True)):
        rng, falls = np.random.default_rng(0), DropDetector(0.05, paired=True)
        seen = []
        for n in range(13):
            rates = 0.12 + 0.76 * (np.arange(200) % 10 > 3) - 0.1 * (n >= 5)
            said = tuple((0.5 if n < 5 else scores) + 0.01 * rng.standard_normal(4))
            seen.append(falls.take(Point(str(n), by_task(rng.random(200) < rates), said)).fall)
        assert any(seen) == blamed


def test_a_task_counts_at_the_points_at_which_it_is_known() -> None:
    """Each of 20 is unknown at one of four points; two are unknown throughout the first two."""
    points = [by_task([value] * 20) for value in (1.0, 0.5, 0.5, 0.0)]
    for n in range(20):
        del points[n % 4][f"t{n}"]
    for name in ("t0", "t1"):
        points[0].pop(name, None), points[1].pop(name, None)
    comparison = compared([Point("", p, p) for p in points[:2]], [Point("", p, p) for p in points[2:]])
    assert comparison.fallen.freedom == 17
    # t0, t4 … of the first point alone 0.5, those of the second alone 1.0, the others their mean
    assert comparison.truth[0] == pytest.approx((4 * 0.5 + 4 * 1.0 + 10 * 0.75) / 18)
    assert compared([Point("", points[0], points[0])], [Point("", {}, {})]) is None


def test_a_look_with_too_few_tasks_concludes_nothing() -> None:
    falls = DropDetector(0.05, paired=True)
    assert falls.take(point([0.5] * 9)).comparisons == falls.take(point([0.1] * 9)).comparisons == 0
    falls = DropDetector(0.05, paired=True)
    looks = [falls.take(Point("", by_task([v] * TASKS), None)) for v in (0.5, 0.4, 0.4)]  # no score: any fall counts
    assert [look.comparisons for look in looks] == [0, 1, 3] and looks[1].fall is not None


def test_an_unpaired_fall_by_hand() -> None:
    """Welch: variances 0.01 and 0.04 of two values each."""
    apart = [0.1 * math.sqrt(2) / 2, 0.2 * math.sqrt(2) / 2]
    before, now = ([m - a, m + a] for m, a in zip((0.6, 0.5), apart, strict=True))
    later = Point("", dict(zip("ab", now, strict=True)), dict(zip("ab", now, strict=True)))
    comparison = compared([point(before, before)], [later], paired=False)
    assert comparison.fallen.value == pytest.approx(0.1) and comparison.slope == pytest.approx(1.0)
    assert comparison.fallen.error == comparison.paid_less.error == pytest.approx(math.sqrt(0.025))
    assert comparison.fallen.freedom == pytest.approx(0.025**2 / (0.005**2 + 0.02**2))
    assert comparison.missing.value == pytest.approx(0.0) and not comparison.unseen(0.05, 0.5)


def test_a_short_best_is_seen_and_a_long_end_is_averaged() -> None:
    falls = DropDetector(0.05, paired=True)
    results = [falls.take(point([v] * TASKS, when=str(n))).fall for n, v in enumerate([0.3, 0.5, 0.46, 0.44, 0.46])]
    assert [f is not None for f in results] == [False, False, False, True, True]
    assert results[3] is not None and results[3].when == ("1", "3") and results[3].size == pytest.approx(0.06)
    assert results[4] is not None and results[4].when == ("1", "3 to 4") and results[4].size == pytest.approx(0.05)


def test_the_level_is_shared_among_pairs_of_lengths_and_then_places() -> None:
    """At the third point: two places of (1, 1), one of (1, 2)."""
    beyond = {lost: lost / math.sqrt(100 / 99 * lost * (100 - lost) / 100) for lost in (7, 8)}  # Student's t
    assert LEVEL == 0.01 and critical(99, LEVEL) < beyond[7] < critical(99, LEVEL / 4) < beyond[8]
    for lost, seen in ((7, False), (8, True)):
        falls = DropDetector(0.05, paired=True)
        for n in (50, 50):
            assert falls.take(point(succeed(n))).fall is None
        assert (falls.take(point(succeed(50 - lost))).fall is not None) == seen


def test_of_two_falls_the_score_that_did_not_follow_one_is_told() -> None:
    """The larger one, from the first point, the score has followed."""
    falls = DropDetector(0.05, paired=True)
    results = [falls.take(point(succeed(n), [s] * 100)).fall for n, s in ((80, 0.9), (70, 0.5), (50, 0.6))]
    assert results[0] is None and results[1] is None
    assert results[2] is not None and results[2].truth == (0.7, 0.5)
    assert results[2].score == (pytest.approx(0.5), pytest.approx(0.6))


def test_a_policy_that_rises_and_then_falls_is_seen_at_the_second_lower_evaluation() -> None:
    """Noise-free, 200 tasks: up to 0.8 by tenths and down again."""
    falls, seen = DropDetector(0.05, paired=True), list[float]()
    for solved in (20, 40, 60, 80, 100, 120, 140, 160, 140, 120):
        if falls.take(point(succeed(solved, 200), [0.9] * 200)).fall:
            seen.append(solved / 200)
    assert seen == [0.7, 0.6]
