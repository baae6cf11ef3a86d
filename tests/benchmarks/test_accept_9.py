"""The bars of `make accept-9` miss what was not measured, and what the raw rows do not say."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks import accept_9, record
from benchmarks.studies import smollm2_gsm8k as gsm8k
from benchmarks.studies import smollm2_gsm8k_figures as of_gsm8k
from benchmarks.studies.no_answer_key_figures import by_n
from benchmarks.studies.smollm2_qa import (
    ARMS,
    FEW,
    FEW_SEEDS,
    GPU_SEEDS,
    RIVAL,
    SEEDS,
    START,
    TRAINING,
    figures_of,
)
from benchmarks.studies.smollm2_qa_reading import auroc_within
from rrm.evaluation import bootstrap

HERE = (record.commit() or "0123456789ab").rstrip("+")
MADE = {"command": "python -m benchmarks.x", "commit": HERE, "environment": {"torch": "2"}, "seeds": {"grpo": 2}}
RUN = {"commits": [HERE], "updates": 40}


def made(arm: str, seed: int) -> dict[str, Any]:
    """A training of the multi-hop study as its arm says."""
    options = ["algorithm=ppo", *TRAINING, *ARMS[arm], f"seed={seed}"]
    return RUN | {"seed": seed, "options": options}


def rows(right: int, of: int = 500) -> list[dict[str, Any]]:
    return [
        {"id": f"q{n:03d}", "source": "2wiki", "f1": float(n < right), "em": float(n < right), "correct": float(n < right),
         "answer": "x", "searches": 1, "calls": 1, "malformed": 0, "tokens": 9}
        for n in range(of)
    ]  # fmt: skip


ANSWERED = {
    START: [rows(50)],
    RIVAL: [rows(40)],
    "direct": [rows(10)],
    "grpo": [rows(90), rows(80)],
    "filled": [rows(90), rows(80)],
    "shuffled": [rows(52), rows(48)],
    "judge": [rows(50)],
    "ppo": [rows(60)],
}


def sat(answered: dict[str, list[list[dict[str, Any]]]]) -> dict[str, Any]:
    """What one sitting with these answers puts into a record."""
    trainings = {arm: [made(arm, seed) for seed in range(n)] for arm, n in SEEDS.items()}
    held = {name: [{"seed": k, "rows": one} for k, one in enumerate(runs)] for name, runs in answered.items()}
    sittings = [
        {"warm": {}, "made_with": {"overrides": []}, "trainings": trainings, "rows": {"held_out": held, "musique": {}}}
    ]
    return {"sittings": sittings, "figures": figures_of(sittings)}


ATTEMPTS = {f"q{q}": [[s / 8, float(s == q % 8), str(s), 10.0 + s] for s in range(8)] for q in range(30)}


def solved(**runs: list[int]) -> dict[str, list[dict[str, Any]]]:
    """Rows of GSM8K's record: of each policy how many problems each seed solves."""
    return {
        name.replace("_", "-"): [{"seed": k, "by": "evaluate", "rows": rows(n)} for k, n in enumerate(right)]
        for name, right in runs.items()
    }


def words_of(found: dict[str, list[dict[str, Any]]], arms: tuple[str, ...] = ("grpo",)) -> dict[str, Any]:
    """GSM8K's record with these rows."""
    trainings = {
        arm: [
            RUN | {"seed": run["seed"], "options": ["seed=0", *gsm8k.TRAINING, *gsm8k.ARMS[arm]]} for run in found[arm]
        ]
        for arm in arms
    }
    shown = gsm8k.SHOWN if arms == ("grpo",) else gsm8k.FEW
    made = {"overrides": [], "shown": shown, "questions": {"held_out": 500}, "trainings": trainings}
    return MADE | made | {"figures": of_gsm8k.figures(found), "rows": found}


SOLVED = solved(start=[60], grpo=[90, 95])
CELLS = [
    {"task": task, "label": label, "figures": {"success": 0.1, "judge": {"mean": 0.2}}}
    for task in ("hotpotqa", "2wiki") for label in ("direct", "naive_rag", "tool_call")
]  # fmt: skip
OF = {accept_9.QA: accept_9.qa_bars, accept_9.GSM8K: accept_9.gsm8k_bars, accept_9.TABLE: accept_9.table_bars}


@pytest.fixture(scope="module", autouse=True)
def drawn_once() -> Iterator[None]:
    """Nearly all the time of a record's figures goes into drawing 500 questions 10,000 times, for each of some sixty intervals the
    same. The figures themselves are made anew each time."""
    draw_counts = bootstrap.draw_counts
    draw = functools.cache(lambda *of: tuple(draw_counts(*of)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "draw_counts", lambda n_questions, n, seed: draw(n_questions, n, seed))
        yield


@pytest.fixture(scope="module")
def good(drawn_once: None) -> dict[str, dict[str, Any]]:
    """A record of each study as it should be."""
    choosing = {"attempts": 8, "by_n": by_n(ATTEMPTS, 8), "raw": ATTEMPTS, "auroc_within": auroc_within(ATTEMPTS)}
    return {
        accept_9.QA: {**MADE, **sat(ANSWERED), "choosing": choosing},
        accept_9.GSM8K: words_of(SOLVED),
        accept_9.TABLE: {**MADE, "questions": 24, "kills": 1, "rows": CELLS},
    }


def missed(monkeypatch: pytest.MonkeyPatch, name: str, found: Any) -> list[str]:
    monkeypatch.setattr(accept_9, "load", {name: found}.get)
    return [bar.what for bar in OF[name]() if bar.ok is False]


def changed(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    found = copy.deepcopy(found)
    *way, last = path
    at = found
    for key in way:
        at = at[key]
    at[last] = value
    return found


@pytest.mark.parametrize("name", OF)
def test_good_records_pass_and_absent_ones_fail(
    good: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert missed(monkeypatch, name, good[name]) == []
    assert missed(monkeypatch, name, None)


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        (accept_9.QA, ("commit",), "abc+", "the record"),
        (accept_9.QA, ("sittings", 0, "trainings", "grpo"), [made("grpo", 0)], "the trainings"),
        (accept_9.QA, ("sittings", 0, "trainings", "grpo", 1, "seed"), 0, "less its warm start"),
        (accept_9.QA, ("sittings", 0, "trainings", "grpo", 1, "seed"), 0, "the trainings"),
        (accept_9.QA, ("sittings", 0, "trainings", "filled"), [made("filled", 0)], "groups that differ"),
        (accept_9.QA, ("sittings", 0, "trainings", "shuffled"), [made("filled", 0), made("filled", 1)], "as their arms say"),
        (accept_9.QA, ("sittings", 0, "trainings", "grpo", 0, "options"), ["algorithm=grpo"], "as their arms say"),
        (accept_9.QA, ("sittings", 0, "rows", "held_out", "grpo", 1, "seed"), 0, "as their arms say"),
        (accept_9.QA, ("sittings", 0, "trainings", "judge"), [], "as their arms say"),
        (accept_9.QA, ("sittings", 0, "trainings", "nobody"), [made("grpo", 0)], "as their arms say"),
        (accept_9.QA, ("sittings", 0, "made_with"), {"overrides": ["max_updates=2"]}, "as their arms say"),
        (accept_9.QA, ("sittings", 0, "made_with"), {"overrides": [], "shown": 56}, "as their arms say"),
        (accept_9.QA, ("sittings", 0, "rows", "held_out", "grpo", 0, "rows"), rows(90, 499), "as their arms say"),
        (accept_9.QA, ("choosing", "auroc_within", "value"), 0.9, "one of 8 attempts"),
        (accept_9.QA, ("sittings", 0, "trainings", "judge", 0, "updates"), 39, "the trainings"),
        (accept_9.QA, ("sittings", 0, "rows", "held_out", "grpo", 0, "rows"), rows(95), "figures from the rows"),
        (accept_9.QA, ("figures", "held_out", "shuffled", "f1_less_start_by_seed", 1, "value"), 0.08, "filled less shuffled"),
        (accept_9.QA, ("figures", "held_out", "filled", "f1_less_control", "low"), 0.0, "filled less shuffled"),
        (accept_9.QA, ("choosing",), {}, "one of 8 attempts"),
        (accept_9.QA, ("choosing", "raw", "q0", 0), [9.0, 1.0, "0", 1.0], "one of 8 attempts"),
        (accept_9.GSM8K, ("rows", of_gsm8k.START, 0, "rows"), rows(70), "the warm start"),
        (accept_9.GSM8K, ("rows", "grpo", 1, "seed"), 0, "less the warm start"),
        (accept_9.GSM8K, ("overrides",), ["environment.eval_tasks=60"], "less the warm start"),
        (accept_9.GSM8K, ("questions", "held_out"), 844, "less the warm start"),
        (accept_9.GSM8K, ("trainings", "grpo"), [RUN | {"seed": 0, "options": []}], "the trainings"),
        (accept_9.GSM8K, ("trainings", "grpo", 0, "seed"), 2, "less the warm start"),
        (accept_9.GSM8K, ("shown",), 300, "the warm start"),
        (accept_9.GSM8K, ("rows",), {}, "the warm start"),
        (accept_9.GSM8K, ("rows", "grpo", 0, "rows"), rows(90, 499), "less the warm start"),
        (accept_9.TABLE, ("rows", 0), {"task": "hotpotqa", "label": "direct", "failure": {"kind": "NoFile"}}, "cells"),
        (accept_9.TABLE, ("rows", 0, "figures", "judge"), None, "cells"),
        (accept_9.TABLE, ("kills",), 0, "cells"),
    ],
)  # fmt: skip
def test_what_the_record_does_not_hold_is_missed(
    good: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    path: tuple[Any, ...],
    value: Any,
    said: str,
) -> None:
    assert any(said in what for what in missed(monkeypatch, name, changed(good[name], path, value)))


def test_more_runs_than_are_wanted_are_enough(good: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(monkeypatch, accept_9.GSM8K, words_of(solved(start=[60], grpo=[90, 95, 93]))) == []


def test_an_arm_is_held_against_its_control_where_both_have_their_seeds() -> None:
    def gains(*values: float) -> dict[str, Any]:
        return {"f1_less_start_by_seed": [{"value": value} for value in values]}

    above = {"value": 0.03, "low": 0.01, "high": 0.05}
    cases = (
        (gains(0.02, 0.04) | {"f1_less_control": above}, gains(0.0, 0.01), True),
        (gains(0.02, 0.04) | {"f1_less_control": above}, gains(0.0, 0.03), False),
        (gains(0.02) | {"f1_less_control": above}, gains(0.0, 0.01), False),  # one seed shows nothing
        (gains(0.02, 0.04), {}, False),  # no warm start beside them
        ({}, {}, False),
    )
    for arm, control, ok in cases:
        (bar,) = accept_9.control_bars({"filled": arm, "shuffled": control}, SEEDS)
        assert bar.ok is ok
    assert [bar.ok for bar in accept_9.control_bars({}, SEEDS)] == [False]


@pytest.mark.parametrize(
    ("name", "bars", "seeds", "arm", "gains"),
    [
        (accept_9.QA_GPU, accept_9.gpu_bars, GPU_SEEDS, "wide", {"wide": 90, "wide-ppo": 60}),
        (accept_9.QA_FEW, accept_9.few_bars, FEW_SEEDS, "bare", {"bare": 90, "ppo": 60}),
    ],
)
def test_other_ways_have_bars_where_an_arm_was_trained_so(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    bars: Callable[[], Iterator[accept_9.Bar]],
    seeds: dict[str, int],
    arm: str,
    gains: dict[str, int],
) -> None:
    arms = {one: [rows(gains.get(one, 50))] * n for one, n in seeds.items()}
    found = MADE | sat({START: [rows(50)]} | arms)
    if name == accept_9.QA_FEW:
        found["sittings"][0]["made_with"]["shown"] = FEW
    runs = {one: [made(one, seed) for seed in range(n)] for one, n in seeds.items()}
    for trainings, missing in (
        (runs, []),
        (runs | {arm: runs[arm][:1]}, ["the trainings", "as their arms say", "less its warm start"]),
    ):
        found["sittings"][0]["trainings"] = trainings
        monkeypatch.setattr(accept_9, "load", {name: found}.get)
        bad = [bar.what for bar in bars() if bar.ok is False]
        assert len(bad) == len(missing) and all(said in what for said, what in zip(missing, bad, strict=True))
    short = [{**one, "rows": rows(50, 400)} for one in found["sittings"][0]["rows"]["held_out"][START]]
    few = changed(found, ("sittings", 0, "rows", "held_out"), {START: short})
    few["sittings"][0]["trainings"] = runs
    few["figures"] = figures_of(few["sittings"])
    monkeypatch.setattr(accept_9, "load", {name: few}.get)
    assert any("held-out questions" in bar.what for bar in bars() if bar.ok is False)
    found["sittings"][0]["trainings"] = {}
    monkeypatch.setattr(accept_9, "load", {name: found}.get)
    assert list(bars()) == []


@pytest.mark.parametrize(
    ("wide", "control", "missing"),
    [
        ([90, 95, 99], [60, 62, 64], []),
        ([90, 95, 63], [60, 62, 64], ["wide less wide-shuffled"]),  # one seed among the control's
        ([90, 95, 99], [60, 62], ["the trainings", "the warm start", "less the warm start", "wide less wide-shuffled"]),
        ([60, 60, 60], [60, 62, 64], ["less the warm start", "wide less wide-shuffled"]),
    ],
)
def test_a_wide_arm_on_gsm8k_is_held_against_its_control(
    good: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    wide: list[int],
    control: list[int],
    missing: list[str],
) -> None:
    found = words_of(solved(start=[60], wide=wide, wide_shuffled=control), ("wide", "wide-shuffled"))
    records = {accept_9.GSM8K: good[accept_9.GSM8K], f"{accept_9.GSM8K}_wide": found}
    monkeypatch.setattr(accept_9, "load", records.get)
    bad = [bar.what for bar in accept_9.gsm8k_bars() if bar.ok is False]
    narrow = changed(found, ("trainings", "wide", 1, "options"), gsm8k.TRAINING)
    asked = {"wide": len(wide), "wide-shuffled": len(control)}
    assert accept_9.gsm8k_unlike(found, asked, gsm8k.FEW) == ""
    assert (
        accept_9.gsm8k_unlike(narrow, asked, gsm8k.FEW) == "wide, seed 1: rollout.tasks_per_update not as the arm says"
    )
    dealt = changed(found, ("trainings", "wide", 0, "options"), [*gsm8k.TRAINING, *gsm8k.ARMS["wide-shuffled"]])
    assert "feedback.mode" in accept_9.gsm8k_unlike(dealt, asked, gsm8k.FEW)
    shown = [bar for bar in accept_9.gsm8k_bars() if "over seeds too" in bar.measured]
    (bar,) = shown
    assert ("; too few seeds of wide-shuffled answered" in bar.measured) == (len(control) < 3)
    assert len(bad) == len(missing) and all(said in what for said, what in zip(missing, bad, strict=True))


def test_each_arm_from_few_solutions_has_a_bar(
    good: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = ("grpo", "filled", "filled-shuffled")
    found = words_of(solved(start=[60], grpo=[61, 59], filled=[90, 95], filled_shuffled=[61, 59]), arms)
    records = {accept_9.GSM8K: good[accept_9.GSM8K], f"{accept_9.GSM8K}_few": found}
    monkeypatch.setattr(accept_9, "load", records.get)
    bad = [bar.what for bar in accept_9.gsm8k_bars() if bar.ok is False]
    greedy, sampled = "4 GSM8K from 300 solutions", "4 GSM8K from 300 solutions, sampled as attempts are"
    gains = [f"{sampled}: after GRPO less the warm start ({arm})" for arm in arms[:2]]
    control = f"{sampled}: filled less filled-shuffled (rewards dealt anew)"
    assert bad == [f"{greedy}: after GRPO less the warm start (grpo)", *gains, control]
    other = solved(start=[20], grpo=[60, 62], filled=[60, 62], filled_shuffled=[21, 19])
    found["sampled"] = {"temperature": 1.0, "figures": of_gsm8k.figures(other), "rows": other}
    assert [bar.what for bar in accept_9.gsm8k_bars() if bar.ok is False] == bad[:1]
    for wrong, why in (
        ({"figures": found["figures"]}, "not what the raw rows say"),
        ({"rows": (lost := {k: other[k] for k in ("start", "grpo")}), "figures": of_gsm8k.figures(lost)}, "of filled"),
        ({"rows": (one := other | {"filled": other["filled"][:1]}), "figures": of_gsm8k.figures(one)}, "by sampling"),
    ):
        bent = found | {"sampled": found["sampled"] | wrong}
        assert why in accept_9.gsm8k_unlike(bent, gsm8k.FEW_SEEDS, gsm8k.FEW)
    records[f"{accept_9.GSM8K}_few"] = words_of(solved(start=[60], grpo=[61, 59], filled=[90, 95]), arms[:2])
    bad = [bar.what for bar in accept_9.gsm8k_bars() if bar.ok is False]
    assert len(bad) == 8 and "filled less filled-shuffled" in bad[4]


@pytest.mark.parametrize("grpo", [[rows(50), rows(52)], [rows(45), rows(45)]])
def test_training_that_gains_nothing_beyond_chance_is_missed(
    good: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, grpo: list[list[dict[str, Any]]]
) -> None:
    answered = ANSWERED | {"grpo": grpo}
    qa = good[accept_9.QA] | sat(answered)
    assert missed(monkeypatch, accept_9.QA, qa) == ["4 multi-hop QA: GRPO on outcomes less its warm start, F1"]
    words = words_of(solved(start=[60], grpo=[60, 60]))
    assert missed(monkeypatch, accept_9.GSM8K, words) == ["4 GSM8K: after GRPO less the warm start (grpo)"]


def test_a_warm_start_below_a_tenth_is_missed(good: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(solved(start=[40], grpo=[90, 95]))
    assert missed(monkeypatch, accept_9.GSM8K, words) == ["4 GSM8K, one or two operations: the warm start"]
