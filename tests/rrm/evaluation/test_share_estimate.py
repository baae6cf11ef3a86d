"""Shares of all runs from labels of a few: by hand, and whether the interval holds whatever the judge is worth."""

from __future__ import annotations

import numpy as np
import pytest

from rrm.evaluation.share_estimate import chances_of, difference, drawn, estimate


def test_by_hand() -> None:
    """Four labels of eight runs, half of them unlabelled: each added label counts half."""
    scores, labels = np.array([0.2, 0.4, 0.6, 0.8] * 2), np.array([0.0, 0.0, 1.0, 1.0])
    share = estimate(scores, np.arange(4), labels)
    f, y = np.array([-0.3, -0.1, 0.1, 0.3, 0, 0, 0, 0]), np.array([0, 0, 1, 1, 0, 0, 1, 1])
    w = np.array([1.0] * 4 + [0.5] * 4) / 6
    slope = (w**2 @ (f * (y - 0.5))) / (w**2 @ f**2)
    assert share.weight == pytest.approx(slope) and share.value == pytest.approx(0.5)
    assert share.error == pytest.approx(np.sqrt(w**2 @ (y - slope * f - 0.5) ** 2 * 4 / 3 * 0.5))


def test_all_labelled_is_exact_and_no_judge_changes_nothing() -> None:
    labels = np.array([1.0, 0, 0, 0, 1])
    share = estimate(np.linspace(0, 1, 5), np.arange(5), labels)
    assert (share.value, share.low, share.high) == pytest.approx((0.4, 0.4, 0.4)) and share.to_halve == 0
    without = estimate(np.full(50, np.nan), np.arange(5), labels)
    assert without.weight == 0 and (without.low, without.high) == without.labels_alone


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("knows", [0.0, 2.5])
def test_intervals_hold_and_are_narrower_where_the_judge_knows(share: float, knows: float) -> None:
    random, covered, widths = np.random.default_rng(0), 0, []
    for draw in range(300):
        labels = (random.random(400) < share).astype(float)
        scores = 1 / (1 + np.exp(-3 * (random.normal(size=400) + knows * (labels - 0.5))))  # not calibrated
        chances = chances_of(scores, 40)
        places = np.array(drawn(chances, list(np.argsort(scores)), draw))
        found = estimate(scores, places, labels[places], chances[places])
        covered += found.low <= labels.mean() <= found.high
        widths.append((found.high - found.low) / (found.labels_alone[1] - found.labels_alone[0]))
    assert covered >= 0.93 * 300
    assert np.mean(widths) <= (0.85 if knows else 1.02)


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_intervals_hold_for_a_judge_that_is_sure_and_seldom_wrong(share: float) -> None:
    """One run in ten succeeds, and one score in twenty is wrong: of 30 labels, and of a group's six, 79 % of the intervals held. The four
    added labels pulled the estimate to one half, and labelled scores alike but for noise made a slope of hundreds."""
    random, covered, draws = np.random.default_rng(0), 0, 300
    for draw in range(draws):
        labels = (random.random(1000) < 0.1).astype(float)
        scores = np.clip(np.abs(labels - (random.random(1000) < 0.05)) * 0.98 + random.normal(0.01, 0.003, 1000), 0, 1)
        chances = chances_of(scores, 30)
        chosen, group = np.array(drawn(chances, list(np.argsort(scores)), draw)), random.random(1000) < share
        members = np.flatnonzero(group)
        places = np.searchsorted(members, chosen[group[chosen]])
        if len(places) < 2:
            draws -= 1
            continue
        found = estimate(scores[group], places, labels[group][places], chances[group][places])
        covered += found.low <= labels[group].mean() <= found.high
    assert covered >= 0.95 * draws


def test_chances_are_kept() -> None:
    scores = np.concatenate([np.full(90, 0.01), np.full(9, 0.5), [np.nan]])
    chances = chances_of(scores, 30)
    assert chances.sum() == pytest.approx(30) and chances[95] > chances[0] and chances[-1] == chances[95]
    draws = [drawn(chances, range(100), seed) for seed in range(2000)]
    assert {len(places) for places in draws} == {30}
    times = np.bincount(np.concatenate(draws), minlength=100) / 2000
    assert np.abs(times - chances).max() < 0.05
    assert (chances_of(scores, 100) == 1).all()


def test_differences_and_refusals() -> None:
    one = estimate(np.full(100, 0.5), np.arange(20), np.array([1.0, 0] * 10))
    other = estimate(np.full(100, 0.5), np.arange(20), np.ones(20))
    value, low, high = difference(one, other)
    assert 0 < low < value < high <= 1
    for labels, chances in (([1.0], None), ([1.0, 0.0], [0.5, 0.0])):
        with pytest.raises(ValueError):
            estimate(np.ones(3), np.arange(len(labels)), np.array(labels), chances and np.array(chances))


def test_intervals_hold_of_one_set_in_which_order_tells_the_outcome() -> None:
    """Systematic draws have about 1/π samples of one set, and all intervals could be wrong: of 120 runs of tau-bench 62 % held."""
    labels = np.tile([1.0, 1, 1, 0], 60)
    scores, order = np.full(240, 0.5), list(range(240))
    chances, covered = chances_of(scores, 60), 0
    for draw in range(300):
        places = np.array(drawn(chances, order, draw))
        found = estimate(scores, places, labels[places], chances[places])
        covered += found.low <= labels.mean() <= found.high
    assert 0.92 * 300 <= covered < 300
