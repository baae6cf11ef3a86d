"""Padding of micro-batches from a mean and a spread: by hand, and against lengths that are drawn and dealt."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from reagent.rollout.batch import microbatches
from reagent.train.config import AgentConfig
from reagent.train.padding_estimate import normal_score, padded, spread_of


def config_of(budget: int = 16384, minibatches: int = 1, **tree: Any) -> AgentConfig:
    """One update of episodes of at most 640 tokens."""
    optim = {"microbatch_tokens": budget, "minibatches": minibatches}
    return AgentConfig.model_validate(
        {"cpu": True, "max_updates": 1, "rollout": {"max_episode_tokens": 640}, "optim": optim, **tree}
    )


def test_where_the_longest_of_n_is_expected() -> None:
    """Φ⁻¹ of 13/18, 21/26 and 9/10 from a table of the normal distribution."""
    assert normal_score(1, 1) == 0.0
    assert [normal_score(n, n) for n in (2, 3, 6)] == pytest.approx([0.58946, 0.86942, 1.28155], abs=1e-5)
    assert normal_score(2, 6) == pytest.approx(-normal_score(5, 6))
    # the exact expectation of the longer of two is 1/√π, of the longest of six 1.26721 (Harter 1961)
    assert [normal_score(n, n) for n in (2, 6)] == pytest.approx([0.56419, 1.26721], rel=0.05)


def test_the_spread_is_read_off_the_longest_row() -> None:
    assert spread_of(200.0, 200.0 + 60 * 1.28155, 6) == pytest.approx(60, abs=1e-3)
    assert spread_of(200.0, 200.0, 6) == 0.0
    assert spread_of(200.0, 200.0, 1) is None


def test_two_rows_are_as_wide_as_the_longer() -> None:
    found = padded(config_of(), 2, 200.0, 60.0)
    assert (found.own, found.forwards, found.widest) == (400.0, found.learning, pytest.approx(found.learning))
    assert found.learning == pytest.approx(2 * (200 + 60 * 0.58946), abs=1e-2)
    alone = padded(config_of(minibatches=2), 2, 200.0, 60.0)  # each is learned from by itself
    assert alone.learning == 400.0 and alone.forwards == found.forwards


def test_six_rows_in_two_minibatches_by_hand() -> None:
    found = padded(config_of(budget=600, minibatches=2), 6, 200.0, 60.0)
    # each minibatch: two of 252.17 (a third would make 756), and one of 200 − 52.17
    assert found.learning == pytest.approx(2 * (2 * 252.165 + 147.835), abs=1e-2)
    # all six: 276.89 and 238.60 of the scores 1.28155 and 0.64335, then ±0.20189, then the two shortest
    assert found.forwards == pytest.approx(2 * (276.893 + 212.113 + 161.399), abs=1e-2)
    assert found.widest == 600  # three of the update's longest would be 831
    assert padded(config_of(minibatches=2), 6, 200.0, 60.0).widest == pytest.approx(3 * 276.893, abs=1e-2)


def test_equal_lengths_have_no_padding() -> None:
    for rows in (1, 2, 7):
        found = padded(config_of(budget=600, minibatches=2), rows, 200.0, 0.0)
        assert found.learning == found.forwards == found.own == rows * 200.0
    assert found.widest == 600 and padded(config_of(), 2, 200.0, 0.0).widest == 400


def test_lengths_of_unknown_spread_are_not_padded_and_may_fill_a_micro_batch() -> None:
    found = padded(config_of(budget=2560, minibatches=4), 1, 200.0, None)
    assert (found.own, found.learning, found.forwards, found.widest) == (200.0, 200.0, 200.0, 2560)
    assert padded(config_of(budget=300), 4, 200.0, None).widest == 640  # a row longer than the budget stands alone


def test_no_row_is_longer_than_the_limit() -> None:
    found = padded(config_of(), 2, 630.0, 60.0)
    assert found.learning == 2 * 640 and found.widest == 2 * 640
    alone = padded(config_of(budget=300), 2, 630.0, 60.0)
    assert alone.learning == alone.own == 2 * 630 and alone.widest == 640
    assert padded(config_of(), 3, 700.0, None).own == 3 * 640


def test_the_widest_micro_batch_is_that_of_the_whole_training() -> None:
    widest = [padded(config_of(max_updates=n), 6, 200.0, 60.0).widest for n in (1, 10, 10**6)]
    assert widest == pytest.approx(
        [6 * 276.893, 6 * (200 + 60 * normal_score(60, 60)), 6 * (200 + 60 * 5.03)], rel=2e-2
    )
    assert sorted(widest) == widest
    assert padded(config_of(budget=1500, max_updates=10), 6, 200.0, 60.0).widest == 1500


@pytest.mark.parametrize(("rows", "minibatches", "budget"), [(4, 2, 4096), (12, 2, 2560), (64, 4, 2048)])
def test_as_drawn_and_dealt(rows: int, minibatches: int, budget: int) -> None:
    """The mean over updates whose lengths are drawn, dealt as a training deals them."""
    drawn, learning, forwards, widest, updates = random.Random(0), 0, 0, 0, 300
    for _ in range(updates):
        lengths = torch.tensor([round(drawn.gauss(200, 50)) for _ in range(rows)])

        def dealt(index: range, lengths: torch.Tensor = lengths) -> list[int]:
            return [len(group) * int(lengths[group].max()) for group in microbatches(lengths, index, budget)]

        learned = [dealt(range(part, rows, minibatches)) for part in range(minibatches)]
        learning += sum(map(sum, learned))
        forwards += sum(dealt(range(rows)))
        widest = max(widest, *map(max, learned))
    found = padded(config_of(budget, minibatches, max_updates=updates), rows, 200.0, 50.0)
    assert found.learning == pytest.approx(learning / updates, rel=0.02)
    assert found.forwards == pytest.approx(forwards / updates, rel=0.02)
    assert found.widest == pytest.approx(widest, rel=0.06)
