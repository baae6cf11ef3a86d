"""Agreement of raters against published and computed figures."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from rrm.evaluation.agreement import Unit, agreement


def units(raters: dict[str, list[str | None]]) -> list[Unit]:
    columns = zip(*raters.values(), strict=True)
    return [
        Unit(i, {w: v for w, v in zip(raters, column, strict=True) if v is not None})
        for i, column in enumerate(columns)
    ]


def test_alpha_is_that_of_the_book() -> None:
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C: four observers, twelve units, gaps: 0.743."""
    rows = {
        "A": "1 2 3 3 2 1 4 1 2 . . .",
        "B": "1 2 3 3 2 2 4 1 2 5 . 3",
        "C": ". 3 3 3 2 3 4 2 2 5 1 .",
        "D": "1 2 3 3 2 4 4 1 2 5 1 .",
    }
    found = agreement(
        units({who: [None if v == "." else v for v in row.split()] for who, row in rows.items()}), resamples=100
    )
    assert found["alpha"]["value"] == pytest.approx(0.743, abs=5e-4)
    assert (found["units"], found["single"]) == (11, 1) and len(found["pairs"]) == 6


def test_kappa_is_scikit_learns_and_alpha_that_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["good", "bad", "tie"], size=300, p=[0.5, 0.3, 0.2])
    said = {who: [str(t if rng.random() < 0.7 else rng.choice(["good", "bad", "tie"])) for t in truth] for who in "abc"}
    found = agreement(units({who: list(labels) for who, labels in said.items()}), resamples=300)
    for pair, (a, b) in zip(found["pairs"], combinations("abc", 2), strict=True):
        assert pair["raters"] == [a, b] and pair["units"] == 300
        assert pair["kappa"]["value"] == pytest.approx(cohen_kappa_score(said[a], said[b]))
        assert pair["kappa"]["low"] < pair["kappa"]["value"] < pair["kappa"]["high"]
        assert pair["same"]["value"] == pytest.approx(np.mean(np.array(said[a]) == np.array(said[b])))
    assert 0.3 < found["alpha"]["value"] < 0.7


def test_an_interval_is_over_clusters_and_absent_where_too_little_carries_it() -> None:
    one = [Unit(i // 10, {"a": str(i % 2), "b": str((i + i // 50) % 2)}) for i in range(100)]
    assert agreement(one, resamples=100)["alpha"]["low"] is not None
    assert agreement([Unit(0, unit.ratings) for unit in one], resamples=100)["alpha"]["low"] is None
    wide = agreement(one, resamples=2000)["same"]
    narrow = agreement([Unit(i, unit.ratings) for i, unit in enumerate(one)], resamples=2000)["same"]
    assert wide["high"] - wide["low"] > 1.5 * (narrow["high"] - narrow["low"])


def test_where_all_say_the_same_there_is_nothing_to_agree_on() -> None:
    found = agreement([Unit(i, {"a": "good", "b": "good"}) for i in range(30)], resamples=100)
    assert (
        found["alpha"]["value"] is None
        and found["pairs"][0]["kappa"]["value"] is None
        and found["same"]["value"] == 1.0
    )
    empty = agreement([Unit(0, {"a": "good"})])
    assert (empty["units"], empty["single"], empty["alpha"]["value"], empty["pairs"]) == (0, 1, None, [])
    assert not math.isnan(found["same"]["low"])
