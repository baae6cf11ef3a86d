"""Heats: who meets whom, and how places become relative scores."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrm.judge.comparison_batches import ComparisonGraph, draw_heats


def test_a_group_that_fits_is_one_heat_in_an_order_of_its_seed() -> None:
    orders = [tuple(draw_heats(["a", "b", "c"], 4, seed)[0]) for seed in range(20)]
    assert {frozenset(order) for order in orders} == {frozenset("abc")} and len(set(orders)) > 3
    assert draw_heats(["a", "b", "c"], 4, 7) == draw_heats(["a", "b", "c"], 4, 7)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(2, 8), st.integers(0, 99))
def test_heats_hold_everybody_and_overlap(n: int, size: int, seed: int) -> None:
    heats = draw_heats(list(range(n)), size, seed)
    assert {a for heat in heats for a in heat} == set(range(n))
    assert all(len(set(heat)) == len(heat) == min(n, size) for heat in heats)
    times = {sum(a in heat for heat in heats) for a in range(n)}
    if n <= size:
        assert times == {1}
    elif size == 3:
        assert times == {3}
    else:
        assert times == {2} if size % 2 == 0 and n % (size // 2) == 0 else times == {2, 3}
    meetings: ComparisonGraph[int] = ComparisonGraph()
    for heat in heats:
        meetings.add(heat, list(range(len(heat))))
    assert len(meetings.together(range(n))) == 1
    if n > size > 3:
        assert all(set(first) & set(other) for first, other in pairwise(heats))


def test_one_heat_gives_the_share_of_the_others_that_are_behind() -> None:
    meetings: ComparisonGraph[str] = ComparisonGraph()
    meetings.add("cab", [3, 1, 2])
    assert meetings.scores("abc") == [1.0, 0.5, 0.0]
    assert (meetings.earlier, meetings.decided) == (1.0, 3)
    tied: ComparisonGraph[str] = ComparisonGraph()
    tied.add("abcd", [1, 1, 3, 3])
    assert tied.scores("abcd") == pytest.approx([2.5 / 3, 2.5 / 3, 0.5 / 3, 0.5 / 3]) and tied.decided == 4
    same: ComparisonGraph[str] = ComparisonGraph()
    same.add("abc", [1, 1, 1])
    assert same.scores("abc") == [0.5, 0.5, 0.5] and same.decided == 0


def test_both_orders_that_disagree_make_a_tie() -> None:
    meetings: ComparisonGraph[str] = ComparisonGraph()
    meetings.add("ab", [1, 2])
    meetings.add("ba", [1, 2])
    assert meetings.scores("ab") == [0.5, 0.5] and (meetings.earlier, meetings.decided) == (2.0, 2)


def test_attempts_that_never_met_are_ordered_by_whom_they_beat() -> None:
    meetings: ComparisonGraph[str] = ComparisonGraph()
    meetings.add("ab", [1, 2])
    meetings.add("bc", [1, 2])
    a, b, c = meetings.scores("abc")
    assert (a, b, c) == (1.0, 0.5, 0.0)


def test_heats_that_contradict_each_other_are_weighed() -> None:
    meetings: ComparisonGraph[str] = ComparisonGraph()
    for pair in ("ab", "bc", "cd", "da", "ab"):
        meetings.add(pair, [1, 2])
    a, b, c, d = meetings.scores("abcd")
    assert 0.5 < a < 1.0 and a + b + c + d == pytest.approx(2.0) and a > c


def test_what_no_meeting_connects_is_kept_apart() -> None:
    meetings: ComparisonGraph[str] = ComparisonGraph()
    meetings.add("ab", [1, 2])
    meetings.add("cde", [1, 2, 3])
    assert meetings.together("abcdef") == [["c", "d", "e"], ["a", "b"], ["f"]]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(2, 5), st.integers(0, 99))
def test_scores_lie_in_the_unit_interval_and_average_to_a_half(n: int, size: int, seed: int) -> None:
    meetings: ComparisonGraph[int] = ComparisonGraph()
    for heat in draw_heats(list(range(n)), size, seed):
        meetings.add(heat, [1 + sorted(heat).index(a) for a in heat])
    scores = meetings.scores(range(n))
    assert all(0.0 <= s <= 1.0 for s in scores) and sum(scores) / n == pytest.approx(0.5)
    assert all(scores[i] > scores[j] for j in range(n) for i in range(j) if meetings.met(i, j))
    if n <= size:
        assert scores == sorted(scores, reverse=True)


def test_a_heat_needs_two() -> None:
    with pytest.raises(ValueError, match="at least two attempts, got 1"):
        draw_heats(["a"], 4, 0)
