"""The bars of GSM8K in `make accept-9` miss what was not measured, and what is not the study."""

from __future__ import annotations

from typing import Any

import pytest
from study_records import MADE, RUN, changed, rows

from benchmarks import gsm8k_bars
from benchmarks.gsm8k_bars import GSM8K, Asked
from benchmarks.studies import smollm2_gsm8k as study
from benchmarks.studies import smollm2_gsm8k_figures as of_gsm8k

pytestmark = pytest.mark.usefixtures("drawn_once")
FEW, WIDE = f"{GSM8K}_few", f"{GSM8K}_wide"
ARMS_OF_FEW = ("grpo", "filled", "filled-shuffled")
RISES = "4 GSM8K: after GRPO less the warm start (grpo)"


def solved(**runs: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Rows of a record: of each policy how many problems each seed solves."""
    return {
        name.replace("_", "-"): [{"seed": k, "by": "evaluate", "rows": rows(n)} for k, n in enumerate(right)]
        for name, right in runs.items()
    }


def words_of(found: dict[str, list[dict[str, Any]]], arms: tuple[str, ...] = ("grpo",)) -> dict[str, Any]:
    """A record with these rows."""
    trainings = {
        arm: [
            RUN | {"seed": run["seed"], "options": ["seed=0", *study.TRAINING, *study.ARMS[arm]]} for run in found[arm]
        ]
        for arm in arms
    }
    shown = study.SHOWN if arms == ("grpo",) else study.FEW
    made = {"overrides": [], "shown": shown, "questions": {"held_out": 500}, "trainings": trainings}
    return MADE | made | {"figures": of_gsm8k.figures(found), "answered": of_gsm8k.who(found)}


def sampled_of(
    found: dict[str, list[dict[str, Any]]], start: list[dict[str, Any]], at: float | None = 1.0
) -> dict[str, Any]:
    """A record's part of sampled answers."""
    return {"temperature": at, "figures": of_gsm8k.figures(found, start), "answered": of_gsm8k.who(found)}


@pytest.fixture(scope="module")
def good(drawn_once: None) -> dict[str, Any]:
    """A record as it should be."""
    return words_of(solved(start=[60], grpo=[90, 95]))


def missed(monkeypatch: pytest.MonkeyPatch, **records: Any) -> list[str]:
    """What is missed of records: `usual`, `few`, `wide`."""
    names = {"usual": GSM8K, "few": FEW, "wide": WIDE}
    monkeypatch.setattr(gsm8k_bars, "load", {names[key]: found for key, found in records.items()}.get)
    return [bar.what for bar in gsm8k_bars.gsm8k_bars() if bar.ok is False]


def test_a_good_record_passes_and_an_absent_one_fails(good: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(monkeypatch, usual=good) == []
    assert len(missed(monkeypatch)) == 2
    assert missed(monkeypatch, usual=words_of(solved(start=[60], grpo=[90, 95, 93]))) == []  # more seeds are enough


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("figures",), {}, "operations: the warm start"),
        (("answered", "grpo", 1, "seed"), 0, "less the warm start"),
        (("overrides",), ["environment.eval_tasks=60"], "less the warm start"),
        (("questions", "held_out"), 844, "less the warm start"),
        (("trainings", "grpo"), [RUN | {"seed": 0, "options": []}], "the trainings"),
        (("trainings", "grpo"), [RUN | {"seed": 0, "options": []}], "less the warm start"),
        (("trainings", "grpo", 0, "seed"), 2, "less the warm start"),
        (("shown",), 300, "operations: the warm start"),
        (("answered",), {}, "less the warm start"),
        (("figures", "grpo", "questions"), 499, "less the warm start"),
    ],
)  # fmt: skip
def test_what_the_record_does_not_hold_is_missed(
    good: dict[str, Any], monkeypatch: pytest.MonkeyPatch, path: tuple[Any, ...], value: Any, said: str
) -> None:
    assert any(said in what for what in missed(monkeypatch, usual=changed(good, path, value)))


@pytest.mark.parametrize(
    ("wide", "control", "missing"),
    [
        ([90, 95, 99], [60, 62, 64], []),
        ([90, 95, 63], [60, 62, 64], ["wide less wide-shuffled"]),  # one seed among the control's
        ([90, 95, 99], [60, 62], ["the trainings", "wide less wide-shuffled"]),
        ([60, 60, 60], [60, 62, 64], ["less the warm start", "wide less wide-shuffled"]),
    ],
)
def test_a_wide_arm_is_held_against_its_control(
    good: dict[str, Any], monkeypatch: pytest.MonkeyPatch, wide: list[int], control: list[int], missing: list[str]
) -> None:
    found = words_of(solved(start=[60], wide=wide, wide_shuffled=control), ("wide", "wide-shuffled"))
    bad = missed(monkeypatch, usual=good, wide=found)
    assert len(bad) == len(missing) and all(said in what for said, what in zip(missing, bad, strict=True))
    (gain,) = [bar for bar in gsm8k_bars.gsm8k_bars() if "(wide)" in bar.what]
    (apart,) = [bar for bar in gsm8k_bars.gsm8k_bars() if "wide less" in bar.what]
    assert "over seeds too" in gain.measured and "over questions alone" not in gain.measured
    assert ("; too few seeds of wide-shuffled answered" in apart.measured) == (len(control) < 3)

    def unlike(of: dict[str, Any]) -> str:
        return Asked("", of, {"wide": 3, "wide-shuffled": len(control)}, study.FEW).unlike(("wide", "wide-shuffled"))

    narrow = changed(found, ("trainings", "wide", 1, "options"), study.TRAINING)
    dealt = changed(found, ("trainings", "wide", 0, "options"), [*study.TRAINING, *study.ARMS["wide-shuffled"]])
    assert unlike(found) == "" and "feedback.mode" in unlike(dealt)
    assert unlike(narrow) == "wide, seed 1: rollout.tasks_per_update not as the arm says"


def test_each_arm_from_few_solutions_has_a_bar(good: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    greedily = solved(start=[60], grpo=[61, 59], filled=[90, 95], filled_shuffled=[61, 59])
    found, start = words_of(greedily, ARMS_OF_FEW), greedily[of_gsm8k.START]
    greedy, sampled = "4 GSM8K from 300 solutions", "4 GSM8K from 300 solutions, sampled as attempts are"
    gains = [f"{sampled}: after GRPO less the warm start ({arm})" for arm in ARMS_OF_FEW[:2]]
    control = f"{sampled}: filled less filled-shuffled (rewards dealt anew)"
    lone = f"{greedy}: after GRPO less the warm start (grpo)"
    assert missed(monkeypatch, usual=good, few=found) == [lone, *gains, control]
    other = solved(start=[20], grpo=[60, 62], filled=[80, 82], filled_shuffled=[21, 19])
    found["sampled"] = sampled_of(other, start)
    assert missed(monkeypatch, usual=good, few=found) == [lone]
    told = {bar.what: bar for bar in gsm8k_bars.gsm8k_bars()}
    assert "over questions alone: other seeds may differ by more" in told[gains[0]].measured
    beside = [told[f"{sampled}: after GRPO ({arm}) less the warm start's greedy answers"] for arm in ARMS_OF_FEW[:2]]
    assert [bar.measured[:5] for bar in beside] == ["0.002", "0.042"] and {bar.ok for bar in beside} == {None}
    for wrong, bad in (
        ({k: other[k] for k in ("start", "grpo")}, [gains[1], control]),  # what was asked so has its bar
        (other | {"filled": other["filled"][:1]}, [gains[1], control]),
        (other | {"filled-shuffled": other["filled-shuffled"][:1]}, [control]),
    ):
        assert missed(monkeypatch, usual=good, few=found | {"sampled": sampled_of(wrong, start)}) == [lone, *bad]
    alone = words_of(solved(start=[60], grpo=[61, 59], filled=[90, 95]), ARMS_OF_FEW[:2])
    bad = missed(monkeypatch, usual=good, few=alone)
    wanted = [f"{greedy}: the trainings", lone, f"{greedy}: filled less filled-shuffled (rewards dealt anew)"]
    assert bad == [*wanted, *gains, control]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"figures": {}}, "[] questions of 500"),
        ({"temperature": 0.7}, "sampled at 0.7, trained at [1.0]"),
        ({"temperature": None}, "sampled at None"),
        ({"trained": 0.7}, "sampled at 1.0, trained at [0.7, 1.0]"),
        ({"answered": {}}, "too few seeds of grpo, filled, filled-shuffled answered"),
    ],
)
def test_sampled_answers_are_of_the_trainings_temperature_and_spoil_no_greedy_ones(
    wrong: dict[str, Any], why: str
) -> None:
    greedily = solved(start=[60], grpo=[61, 59], filled=[90, 95], filled_shuffled=[61, 59])
    found = words_of(greedily, ARMS_OF_FEW)
    other = solved(start=[20], grpo=[60, 62], filled=[80, 82], filled_shuffled=[21, 19])
    found["sampled"] = sampled_of(other, greedily[of_gsm8k.START])

    def unlike(way: str) -> str:
        return Asked("", found, study.FEW_SEEDS, study.FEW, way).unlike(ARMS_OF_FEW)

    assert {unlike(way) for way in of_gsm8k.TEMPERATURES} == {""}
    if at := wrong.get("trained"):
        found["trainings"]["grpo"][1]["options"].append(f"rollout.temperature={at}")
    else:
        found["sampled"] |= wrong
    assert why in unlike(of_gsm8k.SAMPLED) and unlike(of_gsm8k.GREEDY) == ""


def test_training_that_gains_nothing_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(monkeypatch, usual=words_of(solved(start=[60], grpo=[60, 60]))) == [RISES]


def test_a_warm_start_below_a_tenth_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    able = "4 GSM8K, one or two operations: the warm start"
    assert missed(monkeypatch, usual=words_of(solved(start=[40], grpo=[90, 95]))) == [able]
