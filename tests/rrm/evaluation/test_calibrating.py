"""What a calibration is worth out of fold, and how well its labels know it."""

from __future__ import annotations

import numpy as np
import pytest

from rrm.evaluation.calibrating import OutOfFold, band, before_and_after, no_order, not_better, out_of_fold
from rrm.judge.calibration import Platt, curve, curves, fit


def drawn(questions: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Four rows of each question: uniform raw scores, labels that are good with probability raw²."""
    rng = np.random.default_rng(seed)
    raw = rng.uniform(0.02, 0.98, 4 * questions)
    return raw, (rng.uniform(size=len(raw)) < raw**2).astype(float), [f"q{i // 4}" for i in range(len(raw))]


def test_a_row_is_scored_by_a_map_of_other_questions() -> None:
    raw, labels, questions = drawn(30)
    plain = [False] * len(raw)
    found = out_of_fold(raw, labels, plain, questions, "platt", seed=3)
    assert found is not None and (found.folds, found.without_map) == (5, 0)
    flipped = labels.copy()
    flipped[:4] = 1 - flipped[:4]  # all of question q0
    other = out_of_fold(raw, flipped, plain, questions, "platt", seed=3)
    assert other is not None and np.allclose(other.scores[:4], found.scores[:4], atol=0)
    assert not np.allclose(other.scores[4:], found.scores[4:])


def test_rows_whose_other_folds_give_no_map_have_their_mean_label() -> None:
    raw = np.array([0.1, 0.9] * 5)
    labels = np.array([0.0, 1.0] * 5)
    found = out_of_fold(raw, labels, [False] * 10, ["a"] * 5 + ["b"] * 5, "platt", seed=0)
    assert found is not None and (found.folds, found.without_map) == (2, 10)  # five rows are too few for a map
    assert found.scores.tolist() == [0.6] * 5 + [0.4] * 5
    assert out_of_fold(raw, labels, [False] * 10, ["a"] * 10, "platt", seed=0) is None


def test_before_and_after_by_hand() -> None:
    labels = np.array([1.0, 0.0] * 20)
    before, after = np.full(40, 0.9), np.array([0.8, 0.2] * 20)
    apart = OutOfFold(after, np.arange(40) // 8, 5, 0)
    found = before_and_after(after, before, apart, labels, [f"q{i // 2}" for i in range(40)], resamples=100, seed=0)
    assert found["before"]["brier"]["value"] == pytest.approx((0.01 + 0.81) / 2)
    assert found["after"]["brier"] == {
        "value": pytest.approx(0.04),
        "low": pytest.approx(0.04),
        "high": pytest.approx(0.04),
    }
    # both in two bins, by what the raw scores are: |0.9 − 1| and |0.9 − 0| before, 0.2 and 0.2 after
    assert (found["before"]["ece"]["value"], found["after"]["ece"]["value"]) == (pytest.approx(0.5), pytest.approx(0.2))
    assert found["difference"]["ece"]["value"] == pytest.approx(-0.3)
    assert (found["before"]["auroc"]["value"], found["after"]["auroc"]["value"]) == (0.5, 1.0)
    assert found["difference"]["brier"]["high"] == pytest.approx(0.04 - 0.41)


def test_maps_that_rise_rank_no_worse_for_differing_between_folds() -> None:
    raw, labels, questions = drawn(10)
    apart = out_of_fold(raw, labels, [False] * len(raw), questions, "platt", seed=0)
    assert apart is not None and apart.folds == 5
    found = before_and_after(raw, raw, apart, labels, questions, resamples=100, seed=0)
    assert found["difference"]["auroc"]["value"] == 0.0
    assert found["before"]["auroc"]["value"] == pytest.approx(found["after"]["auroc"]["value"])
    pairs = [(i, j) for i in range(40) for j in range(40) if labels[i] > labels[j] and apart.fold[i] == apart.fold[j]]
    assert found["before"]["auroc"]["value"] == pytest.approx(np.mean([raw[i] > raw[j] for i, j in pairs]))


def test_a_map_of_few_grades_is_measured_in_as_many_bins_as_the_grades() -> None:
    rng = np.random.default_rng(0)
    raw = rng.choice([0.1, 0.3, 0.5, 0.7, 0.9], 400)  # the truth already: nothing is to be gained
    labels, questions = (rng.uniform(size=400) < raw).astype(float), [f"q{i // 4}" for i in range(400)]
    apart = out_of_fold(raw, labels, [False] * 400, questions, "platt", seed=0)
    assert apart is not None and len(np.unique(apart.scores)) == 25
    found = before_and_after(raw, raw, apart, labels, questions, resamples=100, seed=0)
    by_grade = [abs((apart.scores - labels)[raw == grade].sum()) for grade in np.unique(raw)]
    assert found["after"]["ece"]["value"] == pytest.approx(sum(by_grade) / 400)
    assert found["difference"]["ece"]["value"] < 0.01  # 0.015 with bins of its own
    assert "is not shown to make scores better out of fold: Brier score +0.001 [" in not_better(found["difference"])


def test_what_is_said_of_maps_that_do_not_make_scores_better() -> None:
    def said(value: float | None, low: float | None, high: float | None) -> str:
        return not_better({"brier": {"value": value, "low": low, "high": high}})

    assert said(-0.1, -0.2, -0.01) == said(None, None, None) == ""
    assert "is not shown to make scores better" in said(-0.1, -0.2, 0.0)
    assert "makes scores worse out of fold: Brier score +0.100 [+0.010, +0.200]" in said(0.1, 0.01, 0.2)
    assert "unknown: too few questions or rows" in said(-0.1, None, None)


def test_what_is_said_of_a_judge_that_orders_nothing() -> None:
    def said(value: float | None, low: float | None, high: float | None) -> str:
        return no_order({"auroc": {"value": value, "low": low, "high": high}}, 0.36)

    assert said(0.8, 0.51, 0.9) == said(0.5, None, None) == said(None, None, None) == ""
    assert "AUROC 0.560 [0.450, 0.660], where 0.5 is chance" in said(0.56, 0.45, 0.66)
    assert "towards the rate of success (36%)" in said(0.4, 0.3, 0.5)


@pytest.mark.parametrize("method", ["platt", "platt_score", "isotonic"])
def test_many_weightings_are_fitted_as_each_alone(method: str) -> None:
    raw, labels, _ = drawn(15, seed=4)
    raw[:2] = 0.0, 1.0  # far out on the logit
    weights = np.random.default_rng(1).multinomial(len(raw), [1 / len(raw)] * len(raw), size=8).astype(float)
    at = np.linspace(0.05, 0.95, 7)
    many = curves(raw, labels, weights, method, at)  # pyright: ignore[reportArgumentType]
    for one, weight in zip(many, weights, strict=True):
        rows = np.repeat(np.arange(len(raw)), weight.astype(int))
        alone = curve(raw[rows], labels[rows], method)(at)  # pyright: ignore[reportArgumentType]
        assert one == pytest.approx(alone, abs=5e-3)


def test_separable_rows_have_a_finite_map() -> None:
    raw, labels = np.array([1e-9] * 6 + [1 - 1e-9] * 6), np.array([0.0] * 6 + [1.0] * 6)
    (found,) = curves(raw, labels, np.ones((1, 12)), "platt", np.array([0.2, 0.8]))
    fitted = fit(raw.tolist(), labels.tolist())
    assert isinstance(fitted, Platt) and found == pytest.approx([fitted(0.2), fitted(0.8)], abs=5e-3)


def test_more_labels_leave_a_narrower_interval_about_the_map() -> None:
    widths = []
    for questions in (8, 200):
        raw, labels, names = drawn(questions)
        known = band(raw, labels, names, "platt", resamples=200, seed=0)
        again = band(raw, labels, names, "platt", resamples=200, seed=0)
        assert known is not None and known == again
        assert [point["raw"] for point in known.points] == sorted(point["raw"] for point in known.points) and len(
            known.points
        ) == 3
        assert all(0 <= point["low"] <= point["score"] <= point["high"] <= 1 for point in known.points)
        assert known.widest >= max(point["high"] - point["low"] for point in known.points)
        widths.append(known.widest)
    assert widths[0] > 0.3 and widths[1] < 0.2
    one_good = np.zeros(40)
    one_good[0] = 1.0  # in a third of the draws of twenty questions nobody succeeded
    assert (
        band(np.linspace(0, 1, 40), one_good, [f"q{i // 2}" for i in range(40)], "platt", resamples=100, seed=0) is None
    )
