"""The bars of `make accept-9` miss what was not measured, and what the raw rows do not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from study_records import MADE, RUN, changed, rows

from benchmarks import accept_9
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
from benchmarks.studies.smollm2_qa_sittings import packed


def made(arm: str, seed: int) -> dict[str, Any]:
    """A training of the multi-hop study as its arm says."""
    options = ["algorithm=ppo", *TRAINING, *ARMS[arm], f"seed={seed}"]
    return RUN | {"seed": seed, "options": options}


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
    asked, held = packed(
        {name: [{"seed": k, "rows": one} for k, one in enumerate(runs)] for name, runs in answered.items()}
    )
    made_with = {"warm": {}, "made_with": {"overrides": []}}
    sittings = [
        made_with | {"trainings": trainings, "asked": {"held_out": asked}, "rows": {"held_out": held, "musique": {}}}
    ]
    return {"sittings": sittings, "figures": figures_of(sittings)}


ATTEMPTS = {f"q{q}": [[s / 8, float(s == q % 8), str(s), 10.0 + s] for s in range(8)] for q in range(30)}


CELLS = [
    {"task": task, "label": label, "figures": {"success": 0.1, "judge": {"mean": 0.2}}}
    for task in ("hotpotqa", "2wiki") for label in ("direct", "naive_rag", "tool_call")
]  # fmt: skip
pytestmark = pytest.mark.usefixtures("drawn_once")
OF = {accept_9.QA: accept_9.qa_bars, accept_9.TABLE: accept_9.table_bars}


@pytest.fixture(scope="module")
def good(drawn_once: None) -> dict[str, dict[str, Any]]:
    """A record of each study as it should be."""
    choosing = {"attempts": 8, "by_n": by_n(ATTEMPTS, 8), "auroc_within": auroc_within(ATTEMPTS)}
    return {
        accept_9.QA: {**MADE, **sat(ANSWERED), "choosing": choosing},
        accept_9.TABLE: {**MADE, "questions": 24, "kills": 1, "rows": CELLS},
    }


def missed(monkeypatch: pytest.MonkeyPatch, name: str, found: Any) -> list[str]:
    monkeypatch.setattr(accept_9, "load", {name: found}.get)
    return [bar.what for bar in OF[name]() if bar.ok is False]


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
        (accept_9.QA, ("sittings", 0, "trainings", "judge", 0, "updates"), 39, "the trainings"),
        (accept_9.QA, ("sittings", 0, "rows", "held_out", "grpo", 0, "rows", "f1", 499), 1.0, "figures from the rows"),
        (accept_9.QA, ("figures", "held_out", "shuffled", "f1_less_start_by_seed", 1, "value"), 0.08, "filled less shuffled"),
        (accept_9.QA, ("figures", "held_out", "filled", "f1_less_control", "low"), 0.0, "filled less shuffled"),
        (accept_9.QA, ("choosing",), {}, "one of 8 attempts"),
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
    asked, short = packed({START: [{"seed": 0, "rows": rows(50, 400)}]})
    few = changed(
        changed(found, ("sittings", 0, "rows", "held_out"), short), ("sittings", 0, "asked", "held_out"), asked
    )
    few["sittings"][0]["trainings"] = runs
    few["figures"] = figures_of(few["sittings"])
    monkeypatch.setattr(accept_9, "load", {name: few}.get)
    assert any("held-out questions" in bar.what for bar in bars() if bar.ok is False)
    found["sittings"][0]["trainings"] = {}
    monkeypatch.setattr(accept_9, "load", {name: found}.get)
    assert list(bars()) == []


@pytest.mark.parametrize("grpo", [[rows(50), rows(52)], [rows(45), rows(45)]])
def test_training_that_gains_nothing_beyond_chance_is_missed(
    good: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, grpo: list[list[dict[str, Any]]]
) -> None:
    answered = ANSWERED | {"grpo": grpo}
    qa = good[accept_9.QA] | sat(answered)
    assert missed(monkeypatch, accept_9.QA, qa) == ["4 multi-hop QA: GRPO on outcomes less its warm start, F1"]
