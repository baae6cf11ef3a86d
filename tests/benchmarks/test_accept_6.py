"""The bars of training and choosing without an answer key: on records as hoped for, on worse ones, and on doctored ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from study_runs import TASKS, hoped_for, solved

from benchmarks import accept_6
from benchmarks.acceptance import Bar
from benchmarks.studies.no_answer_key_arms import ARMS, JUDGE
from benchmarks.studies.no_answer_key_figures import GUARDS, arm_of, derived, gamed, regained
from rrm.evaluation.choosing import success_of


def real_report(judge: float, majority: bool = True) -> dict[str, Any]:
    """As `rrm.evaluation.choosing.measure` has it: how far the judge is above what others choose, ± 0.01."""

    def around(value: float) -> dict[str, Any]:
        return {"outcome": {"value": value, "low": value - 0.01, "high": value + 0.01}}

    rivals = ("longest", "shortest", "random") + ("majority",) * majority
    metrics = {"judge": around(0.5 + judge), **{name: around(0.5) for name in rivals}}
    return {"questions": 40, "metrics": metrics, "differences": {name: around(judge) for name in rivals}}


@pytest.mark.parametrize(
    ("tasks", "ok", "said"),
    [
        ({"a": {"4": None, "8": None}}, False, "not measured"),
        ({"a": {"4": real_report(0.1)}}, False, "not measured"),
        ({"a": {"8": real_report(0.1, majority=False)}}, False, "not measured"),
        ({"a": {"8": real_report(0.1)}, "b": {"8": None}}, True, "on 1 of a"),
        ({"a": {"8": real_report(0.1)}, "b": {"8": real_report(0.1)}}, True, "on 2 of a, b"),
        ({"a": {"8": real_report(0.1)}, "b": {"8": real_report(0.0)}}, False, "on 1 of a, b"),
        ({"a": {"8": real_report(0.1)}, "a_blended": {"8": real_report(0.0)}}, True, "on 1 of a"),
    ],
)
def test_real_attempts_have_one_try_at_their_bar(tasks: dict[str, Any], ok: bool, said: str) -> None:
    made = {"command": "c", "commit": "abc", "seed": 0}
    *_, last = accept_6.real_bars({"made": made, "best_of_n": tasks})
    assert last.ok is ok and last.measured.startswith(said)


def test_votes_that_the_judge_weighs_stand_beside_and_decide_nothing() -> None:
    report = real_report(0.0)
    report["metrics"]["weighted"] = report["metrics"]["judge"]
    report["weighted_differences"] = {
        name: {"outcome": {"value": 0.2, "low": 0.1, "high": 0.3}} for name in ("majority", "longest")
    }
    made = {"command": "c", "commit": "abc", "seed": 0}
    *_, remedy, last = accept_6.real_bars({"made": made, "best_of_n": {"a": {"8": report}}})
    assert remedy.ok is None and "− majority 0.200 [0.100, 0.300]; − longest 0.200" in remedy.measured
    assert last.ok is False and last.measured == "on 0 of a"


def test_the_rival_by_length_is_the_better_of_two() -> None:
    """Here the shortest is as good as the judge."""
    report = real_report(0.1)
    report["metrics"]["shortest"] = report["metrics"]["judge"]
    report["differences"]["shortest"] = {"outcome": {"value": 0.0, "low": -0.01, "high": 0.01}}
    shown, ok = accept_6.ahead(success_of(report))
    assert not ok and "− shortest 0.000" in shown and "longest" not in shown


@pytest.fixture(scope="module")
def hoped(tmp_path_factory: pytest.TempPathFactory) -> str:
    return hoped_for(tmp_path_factory.mktemp("study") / "runs")


def bars(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None) -> dict[str, Bar]:
    monkeypatch.setattr(accept_6, "load", {"no_answer_key": found}.get)
    return {bar.what: bar for bar in accept_6.study_bars()}


def verdicts(found: dict[str, Bar], *words: str) -> list[bool | None]:
    return [next(bar.ok for what, bar in found.items() if word in what) for word in words]


HEADLINE = (
    "alone over full outcomes: success",
    "above nothing",
    "above length",
    "a tenth of the outcomes and",
    "E6 guards fire",
)


def test_the_bars_pass_on_what_was_hoped_for_and_miss_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, hoped: str
) -> None:
    found = bars(monkeypatch, json.loads(hoped))
    assert verdicts(found, "the record", *HEADLINE) == [True] * 6
    alarms = next(bar for what, bar in found.items() if "E6 honest runs" in what)
    assert alarms.ok is True and alarms.what.endswith("(success, drift, kl, auditor)")
    assert alarms.measured == "1 of 5; success in 0, drift in 0, length in 4, kl in 1, auditor in 0"
    assert verdicts(found, "ppo", "rloo", "reinforce++", "E2", "E5 lab") == [False] * 5
    (nothing,) = bars(monkeypatch, None).values()
    assert nothing.ok is False


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("commit",), None),
        (("command",), ""),
        (("overrides",), ["max_updates=1"]),
        (("ratios", "judge / outcome", "value"), 1.2),
        (("arms", "judge", "success", "value"), 0.9),
        (("arms", "judge", "area", "value"), 0.9),
        (("arms", "judge", "success_by_hops", "4", "value"), 0.9),
        (("arms", "judge", "each", 0), 0.9),
        (("arms", "tenth+judge", "labels"), [38] * 5),
        (("arms", "judge", "judge_tokens", 0), 7),
        (("starts",), {"start-long": solved(0.25)}),
        (("arms", "judge", "runs", 0, "options"), ["feedback.mode=none"]),
        (("arms", "judge", "runs", 0, "options", 0), "algorithm=ppo"),
        (("judges",), {"rows-100": {"options": ["drills.rows=0", "output_dir=RUNS/judges/rows-100"]}}),
        (("judges",), {"rows-7": {"options": []}}),
        (("arms", "judge", "runs"), []),
        (("arms", "judge", "runs", 0, "seed"), 7),
        (("arms", "judge", "runs", 0, "commits"), ["abc+", "abc"]),
        (("judge", "settings"), "of another calibration"),
        (("judges",), {"steps": {"copied": True, "judge": JUDGE}}),
        (("guards_counted",), ["length"]),
        (("arms", "judge", "runs", 0, "evaluations", -1, "success"), "1" * 8),
        (("gamed", 0, "in_time"), False),
        (("arms", "better"), {"runs": []}),
    ],
)
def test_a_doctored_record_is_refused(
    monkeypatch: pytest.MonkeyPatch, hoped: str, place: tuple[Any, ...], value: Any
) -> None:
    found = json.loads(hoped)
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (bar,) = bars(monkeypatch, found).values()
    assert bar.ok is False and "record" in bar.what


def test_worse_runs_and_fewer_of_them_miss_their_bars(monkeypatch: pytest.MonkeyPatch, hoped: str) -> None:
    found = json.loads(hoped)
    for run in found["arms"]["judge"]["runs"]:
        run["evaluations"][-1]["success"] = solved(0.3)
    gamed_arm = found["arms"]["gamed"]
    gamed_arm |= {"runs": gamed_arm["runs"][:4]}
    for name in ("judge", "gamed"):
        found["arms"][name] = arm_of(name, found["arms"][name]["runs"], found["starts"])
    found |= derived(found)
    seen = bars(monkeypatch, found)
    assert verdicts(seen, "the record", *HEADLINE) == [True, False, True, False, True, False]
    assert "4 of 5 seeds" in next(bar.measured for what, bar in seen.items() if "E6 guards fire" in what)


@pytest.mark.parametrize(
    ("lost", "back", "value", "ok"),
    [(40, 36, 0.9, True), (40, 18, 0.45, False), (40, 0, 0.0, False), (1, 1, None, False), (0, 8, None, False)],
)
def test_the_noise_bar_is_no_ratio_to_noise(lost: int, back: int, value: float | None, ok: bool) -> None:
    """Of tasks in 200: one task more or less is chance, and where nothing is lost nothing can be regained."""

    def arm(solves: int) -> dict[str, Any]:
        row = {"success": solved(solves / TASKS)}
        return {"runs": [{"seed": n, "evaluations": [row]} for n in range(ARMS["outcome"].seeds)]}

    found: dict[str, Any] = {
        "arms": {"outcome": arm(140), "noisy": arm(140 - lost), "noisy+judge": arm(140 - lost + back)}
    }
    one = regained(found, "noisy+judge")
    assert one is not None and one["value"] == (value and pytest.approx(value))
    found["regained"] = {"noisy+judge": one}
    (judged,) = accept_6.noise_bars(found)
    assert judged.ok is ok and ("nothing was lost" in judged.measured) == (value is None)


@pytest.mark.parametrize(
    ("falls", "in_time", "ok"),
    [(0, 0, False), (2, 2, False), (3, 3, True), (3, 2, False), (4, 3, False), (5, 4, True), (5, 3, False)],
)
def test_guards_are_counted_on_the_runs_that_fell(falls: int, in_time: int, ok: bool) -> None:
    """A guard that fires on a run that only rises is a false alarm, and no catch."""
    runs = []
    for n in range(5):
        curve = (0.3, 0.6, 0.5, 0.4) if n < falls else (0.2, 0.3, 0.4, 0.6)
        evaluations = [{"update": u, "success": solved(share), "score": 0.5} for u, share in enumerate(curve)]
        late = in_time <= n < falls
        runs.append(
            {"seed": n, "evaluations": evaluations, "guards": [{"guard": "length", "update": 3 if late else 1}]}
        )
    found = {
        "gamed": [gamed(run, GUARDS) for run in runs],
        "guards_counted": list(GUARDS),
        "arms": {"gamed": {"runs": runs}},
    }
    first, alone, _ = accept_6.gamed_bars(found)
    assert first.ok is ok and alone.ok is None
    caught = f"length in {min(falls, in_time)}"
    assert caught in alone.measured and "drift in 0" in alone.measured and f"of {falls} runs" in alone.what


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train r environment.label_share=0 \\", True),
        ("reagent train 'environment.label_share=0.0'", True),
        ("reagent train environment.label_share=0.5", False),
        ("reagent train environment.label_share=01", False),
        ("# reagent train environment.label_share=0", False),
        ("reagent train feedback.mode=r", False),
    ],
)
def test_a_script_that_trains_without_labels_says_so(line: str, told: bool) -> None:
    assert accept_6.without_labels(f"set -eu\n{line}\n") is told
