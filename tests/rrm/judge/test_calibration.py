"""Calibration: hand-computed maps, monotone, and honest when nothing can be fitted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrm.errors import RRMError
from rrm.judge.calibration import PRIOR_LABELS, Calibration, Isotonic, Platt, fit, fit_by_reading, half_of


def test_platt_by_hand() -> None:
    # logit(0.8) = ln 4; 2·ln 4 − 1
    assert Platt(a=2, b=-1, rows=1)(0.8) == pytest.approx(1 / (1 + math.exp(-(2 * math.log(4) - 1))))


def test_the_raw_value_of_one_half() -> None:
    # 2·logit(p) − 1 = 0: p = sigmoid(1/2); 4p − 1 = 0: p = 1/4
    assert half_of(Platt(a=2, b=-1, rows=1)) == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert half_of(Platt(a=4, b=-1, rows=1, reads="score")) == pytest.approx(0.25)
    assert half_of(Isotonic(x=[0.2, 0.4], y=[0.0, 1.0], rows=1)) == pytest.approx(0.3)
    assert half_of(Isotonic(x=[0.2, 0.4], y=[0.0, 0.4], rows=1)) == pytest.approx(1)
    assert half_of(Isotonic(x=[0.2, 0.4], y=[0.6, 0.7], rows=1)) == pytest.approx(0)


@given(st.floats(0, 1), st.floats(0, 1))
def test_platt_is_monotone_and_stays_inside(x: float, y: float) -> None:
    platt = Platt(a=0.7, b=0.3, rows=1)
    low, high = sorted((x, y))
    assert 0 <= platt(low) <= platt(high) <= 1


def test_fit_recovers_a_known_miscalibration() -> None:
    rng = np.random.default_rng(0)
    raw = rng.uniform(0.02, 0.98, 20_000)
    truth = 1 / (1 + np.exp(-(0.5 * np.log(raw / (1 - raw)) - 1)))
    fitted = fit(raw.tolist(), (rng.uniform(size=20_000) < truth).astype(float).tolist())
    assert isinstance(fitted, Platt)
    assert fitted.a == pytest.approx(0.5, abs=0.05)
    assert fitted.b == pytest.approx(-1, abs=0.06)


def penalised(z: np.ndarray, y: np.ndarray, q: np.ndarray, weight: float) -> np.ndarray:
    """Slope and intercept that minimise the stated sum, found without the identity that the fit uses."""
    from scipy.optimize import minimize

    def loss(ab: np.ndarray) -> float:
        t = ab[0] * z + ab[1]
        entropy = lambda label: np.logaddexp(0, t) - label * t  # noqa: E731
        return float(entropy(y).sum() + weight * entropy(q).mean())

    return minimize(loss, np.array([1.0, 0.0]), tol=1e-10).x


@pytest.mark.parametrize("rows", [20, 60, 2000])
def test_a_prior_counts_as_twenty_labels_of_the_present_map(rows: int) -> None:
    rng = np.random.default_rng(rows)
    raw, present = rng.uniform(0.05, 0.95, rows), Platt(a=1.4, b=-0.5, rows=300)
    z, q = np.log(raw / (1 - raw)), np.array([present(r) for r in raw])
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-(0.6 * z + 1)))).astype(float)
    fitted, alone = fit(raw.tolist(), y.tolist(), present=q.tolist()), fit(raw.tolist(), y.tolist())
    assert isinstance(fitted, Platt) and isinstance(alone, Platt)
    assert (fitted.a, fitted.b) == pytest.approx(tuple(penalised(z, y, q, PRIOR_LABELS)), abs=0.01)
    far = [abs(each.b - present.b) / abs(alone.b - present.b) for each in (fitted, alone)]
    assert far[0] < (0.7 if rows == 20 else 1.01)
    if rows == 2000:
        assert (fitted.a, fitted.b) == pytest.approx((alone.a, alone.b), abs=0.03)


def test_labels_that_agree_with_the_present_map_leave_it_as_it_is() -> None:
    raw, present = np.linspace(0.05, 0.95, 40), Platt(a=1.4, b=-0.5, rows=300)
    q = [present(r) for r in raw]
    refitted = fit(raw.tolist(), q, present=q)
    assert isinstance(refitted, Platt) and (refitted.a, refitted.b) == pytest.approx((1.4, -0.5), abs=0.01)


def test_a_grade_is_read_as_it_is_by_hand() -> None:
    assert Platt(a=4, b=-2, rows=1, reads="score")(0.8) == pytest.approx(1 / (1 + math.exp(-1.2)))
    assert Platt(a=4, b=-2, rows=1, reads="score")(1.0) == pytest.approx(1 / (1 + math.exp(-2)))


def test_a_few_sure_mistakes_do_not_flatten_the_map_of_grades() -> None:
    """Right runs have 0.8, wrong ones 0.2, but for three wrong ones in a hundred at 1 − 10⁻⁶."""
    raw, labels = [0.8] * 100 + [0.2] * 97 + [1 - 1e-6] * 3, [1.0] * 100 + [0.0] * 100
    off = {method: abs(fit(raw, labels, method)(0.8) - 1.0) for method in ("platt", "platt_score")}
    assert off["platt_score"] < 0.05 < off["platt"]


def test_isotonic_interpolates() -> None:
    assert Isotonic(x=[0.0, 0.5, 1.0], y=[0.1, 0.2, 0.9], rows=3)(0.75) == pytest.approx(0.55)


def test_refuses_one_class_and_falling_scores() -> None:
    with pytest.raises(RRMError, match="successes and failures"):
        fit([0.1] * 20, [0.0] * 20)
    with pytest.raises(RRMError, match="fall as labels rise"):
        fit([0.9] * 10 + [0.1] * 10, [0.0] * 10 + [1.0] * 10)
    with pytest.raises(RRMError, match="do not rise with the labels"):
        fit([0.9] * 10 + [0.1] * 10, [0.0] * 10 + [1.0] * 10, method="isotonic")


def test_round_trip_keeps_the_map() -> None:
    calibration = Calibration(
        modes={"score": Platt(a=1.5, b=0.2, rows=9), "full": Isotonic(x=[0, 1], y=[0, 1], rows=4)}
    )
    again = Calibration.model_validate_json(calibration.model_dump_json())
    assert again == calibration
    assert again.apply("critique", 0.3) == 0.3
    assert again.apply("score", 0.3) == calibration.modes["score"](0.3)


def test_windowed_readings_and_single_steps_have_maps_of_their_own() -> None:
    once, windowed, step = Platt(a=1.5, b=0.2, rows=9), Platt(a=0.5, b=-1, rows=9), Platt(a=2, b=1, rows=9)
    calibration = Calibration(modes={"steps": once, "steps@windowed": windowed, "steps_p_good": step, "score": once})
    assert calibration.apply("steps", 0.7) == once(0.7)
    assert calibration.apply("steps", 0.7, windowed=True) == windowed(0.7)
    assert calibration.p_good(0.7) == step(0.7) and Calibration().p_good(0.7) == 0.7
    # on one scale with the others where nothing was fitted for windows, and said to be uncalibrated
    assert calibration.apply("score", 0.7, windowed=True) == once(0.7)
    assert calibration.covers("steps", windowed=True) and not calibration.covers("score", windowed=True)
    assert Calibration.model_validate_json(calibration.model_dump_json()) == calibration
    with pytest.raises(ValueError, match="should match pattern"):
        Calibration.model_validate({"modes": {"guess": once.model_dump()}})


def readings(
    n: int, shift: float, seed: int = 0, kinds: float = 0.5
) -> tuple[list[float], list[float], list[bool], list[str]]:
    """Log-odds that are right at once and off by `shift` in windows; two rows a question."""
    rng = np.random.default_rng(seed)
    z, many = rng.normal(0, 1.5, n), rng.random(n) < kinds
    y = rng.random(n) < 1 / (1 + np.exp(-(z + shift * many)))
    return (1 / (1 + np.exp(-z))).tolist(), y.astype(float).tolist(), many.tolist(), [f"q{i // 2}" for i in range(n)]


def test_one_map_serves_both_readings_unless_two_are_better_on_other_questions() -> None:
    raw, y, many, questions = readings(160, shift=0.0)
    joint = fit_by_reading(raw, y, many, questions)
    assert not joint.apart and not joint.lacking and joint.maps[False] == joint.maps[True] == fit(raw, y)
    raw, y, many, questions = readings(400, shift=-2.0)
    two = fit_by_reading(raw, y, many, questions)
    assert two.apart and two.maps[False] == fit(*zip(*[(r, k) for r, k, w in zip(raw, y, many, strict=True) if not w], strict=True))  # fmt: skip
    assert two.maps[True](0.5) < two.maps[False](0.5) - 0.2
    apart = [fit_by_reading(*readings(160, shift=0.0, seed=seed)).apart for seed in range(40)]
    assert sum(apart) <= 6  # noise alone wins by a standard error in a sixth of draws at most


def test_a_kind_of_reading_without_enough_rows_has_no_map() -> None:
    raw, y, _, questions = readings(60, shift=0.0)
    few = fit_by_reading(raw, y, [i < 8 for i in range(60)], questions)
    assert set(few.maps) == {False} and few.maps[False] == fit(raw[8:], y[8:]) and "there are 8" in few.lacking[True]
    none = fit_by_reading(raw, y, [True] * 60, questions)
    assert set(none.maps) == {True} and "there are 0" in none.lacking[False]
    assert not fit_by_reading([], [], [], []).maps
    # too few questions to compare out of fold: one map
    assert not fit_by_reading(raw, y, [i % 2 == 0 for i in range(60)], ["same"] * 60).apart


def test_a_kind_whose_scores_fall_takes_the_map_of_all() -> None:
    """Twelve rows in windows that happen to fall are no evidence against the other hundred."""
    raw, y, _, questions = readings(100, shift=0.0)
    fell = [(0.8, 0.0), (0.2, 1.0)] * 6
    both = fit_by_reading(
        raw + [r for r, _ in fell],
        y + [k for _, k in fell],
        [False] * 100 + [True] * 12,
        questions + [f"w{i}" for i in range(12)],
    )
    assert not both.apart and both.maps[True] == both.maps[False]
    with pytest.raises(RRMError, match="fall"):
        fit([r for r, _ in fell], [k for _, k in fell])


def test_a_kind_whose_scores_clearly_fall_has_no_map() -> None:
    raw, y, _, questions = readings(300, shift=0.0)
    fell_raw, fell_y, _, _ = readings(100, shift=0.0, seed=1)
    for method in ("platt", "platt_score"):
        both = fit_by_reading(
            raw + fell_raw, y + [1 - k for k in fell_y], [False] * 300 + [True] * 100,
            questions + [f"w{i}" for i in range(100)], method,
        )  # fmt: skip
        assert both.apart and set(both.maps) == {False} and "fall" in both.lacking[True]
        assert both.maps[False] == fit(raw, y, method)
