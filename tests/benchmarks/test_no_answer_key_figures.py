"""The figures of the study without an answer key, from run folders as a training writes them, against hand computations; and its bars."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import accept_6
from benchmarks.acceptance import Bar
from benchmarks.studies import no_answer_key_tables as tables
from benchmarks.studies.no_answer_key import Study
from benchmarks.studies.no_answer_key_arms import ARMS, JUDGE
from benchmarks.studies.no_answer_key_figures import (
    GUARDS,
    as_digits,
    by_n,
    collect,
    derived,
    fell_at,
    final,
    gamed,
    regained,
)
from benchmarks.studies.study import two_way_interval, two_way_ratio
from reagent.train.config import load_agent_config
from reagent.train.run import append_line
from rrm.evaluation.choosing import success_of
from rrm.run_folder import claim_folder

TASKS = 200
MADE = {"command": "c", "commit": "abc", "policy": "p", "judge": JUDGE, "overrides": []}


def solved(share: float) -> str:
    """The first tasks are solved."""
    return "".join("1" if n < round(share * TASKS) else "0" for n in range(TASKS))


def by_task(row: str) -> dict[str, float]:
    return {f"search-heldout-0-{n}": float(digit) for n, digit in enumerate(row)}


def made(
    runs: Path,
    arm: str,
    number: int,
    curve: Sequence[float],
    *,
    ungraded: float = 0.0,
    guards: Sequence[tuple[str, int]] = (),
) -> None:
    """A run's folder: two updates between evaluations, the last of them after the last update."""
    folder = runs / arm / f"seed{number}"
    config = load_agent_config("lab", Study(runs, "/judge").options(arm, number))
    claim_folder(config, folder)
    for update in range(2 * len(curve)):
        row = {
            "update": update,
            "episodes": 64 * (update + 1),
            "episode/ungraded": ungraded,
            "feedback/judge_tokens": 100.0,
        }
        append_line(folder / "metrics.jsonl", row)
    for n, share in enumerate(curve):
        row = {"update": 2 * n + 1, "episodes": 128 * (n + 1), "by_task": by_task(solved(share)), "judge_tokens": 7}
        append_line(folder / "eval.jsonl", row)
    for guard, update in guards:
        append_line(
            folder / "guards.jsonl", {"update": update, "episodes": 0, "guard": guard, "action": "warn", "text": "t"}
        )
    options = Study(runs, f"{runs}/judge").options(arm, number)
    (folder / "done.json").write_text(
        json.dumps({"seconds": 120.0, "commit": "abc", "commits": ["abd", "abc"], "options": options})
    )


def begun(runs: Path, share: float = 0.25) -> Path:
    runs.mkdir(exist_ok=True)
    (runs / "start.json").write_text(json.dumps({"by_task": by_task(solved(share))}))
    return runs


def test_digits_stand_in_the_order_of_the_tasks() -> None:
    found = {f"search-heldout-0-{n}": float(n == 10) for n in range(11)}
    assert as_digits(dict(sorted(found.items()))) == "00000000001"
    with pytest.raises(ValueError, match="held-out"):
        as_digits({"search-heldout-0-1": 1.0})
    with pytest.raises(ValueError, match="more than once"):
        as_digits({"search-heldout-0-0": 0.5})


def test_a_run_says_what_it_took(tmp_path: Path) -> None:
    begun(tmp_path)
    made(tmp_path, "tenth", 0, [0.4, 0.6], ungraded=0.875)
    made(tmp_path, "nothing", 0, [0.2, 0.1])
    made(tmp_path, "tenth-repeated", 0, [0.3, 0.5])
    made(tmp_path, "outcome-again", 0, [0.3, 0.5], guards=[("length", 3)])
    arms = collect(tmp_path)["arms"]
    # four updates of 16 tasks, an eighth of them graded; no outcome is paid; 38 tasks over and over
    assert [arms[name]["labels"] for name in ("tenth", "nothing", "tenth-repeated")] == [[8], [0], [38]]
    (run,) = arms["outcome-again"]["runs"]
    assert (run["seed"], run["episodes"], run["judge_tokens"], run["minutes"]) == (100, 256, 414, 2.0)
    assert run["guards"] == [{"guard": "length", "update": 3}]
    assert arms["tenth"]["success"]["value"] == pytest.approx(0.6)


def test_a_run_is_recorded_with_the_options_it_was_made_with(tmp_path: Path) -> None:
    """Not with what its arm says by now; and nothing in a record says where the runs lay."""
    made(begun(tmp_path), "gamed", 1, [0.4])
    done = tmp_path / "gamed" / "seed1" / "done.json"
    said = json.loads(done.read_text())
    for changed in (said["options"], [*said["options"], "max_updates=1"], ["algorithm=ppo", *said["options"]]):
        done.write_text(json.dumps(said | {"options": changed}))
        (run,) = collect(tmp_path)["arms"]["gamed"]["runs"]
        assert (run["options"] == Study.anywhere().options("gamed", 1)) == (changed == said["options"])
        assert "output_dir=RUNS/gamed/seed1" in run["options"] and str(tmp_path) not in json.dumps(run)
    trained = {
        "seconds": 1.0,
        "commit": "abc",
        "commits": ["abc"],
        "options": Study(tmp_path, f"{tmp_path}/judge").options_of_judge("steps"),
    }
    folder = tmp_path / "judges" / "steps"
    folder.mkdir(parents=True)
    (folder / "done.json").write_text(json.dumps(trained))
    assert collect(tmp_path)["judges"]["steps"]["options"] == Study.anywhere().options_of_judge("steps")


def test_the_area_is_under_the_curve_from_the_start(tmp_path: Path) -> None:
    made(begun(tmp_path, 0.2), "outcome", 0, [0.4, 0.8])
    # (0.2 + 0.4) / 2 over the first half, (0.4 + 0.8) / 2 over the second
    assert collect(tmp_path)["arms"]["outcome"]["area"]["value"] == pytest.approx(0.45)


def test_arms_are_compared_on_the_runs_both_have(tmp_path: Path) -> None:
    begun(tmp_path)
    for n, share in enumerate((0.8, 0.6, 0.1)):
        made(tmp_path, "outcome", n, [share])
    for n, share in enumerate((0.7, 0.5)):
        made(tmp_path, "judge", n, [share])
    found = collect(tmp_path)
    apart = found["differences"]["judge - outcome"]
    assert (apart["value"], apart["seeds"], apart["each"]) == (pytest.approx(-0.1), 2, [-0.1, -0.1])
    assert found["ratios"]["judge / outcome"]["value"] == pytest.approx(0.6 / 0.7)
    assert "judge - nothing" not in found["differences"] and found["field"] is None


def test_runs_are_paired_by_their_numbers(tmp_path: Path) -> None:
    """A run that failed leaves a gap, and is paired with none: those both have are alike here."""
    begun(tmp_path)
    for arm, numbers in (("judge", (0, 2, 3)), ("outcome", (0, 1, 2)), ("outcome-again", (1, 2)), ("unified", (2,))):
        for n in numbers:
            made(tmp_path, arm, n, [(0.8, 0.6, 0.4, 0.2)[n]])
            (tmp_path / arm / f"seed{n}" / "field.json").write_text(json.dumps({"by_task": by_task(solved(n / 4))}))
    found = collect(tmp_path)
    alike, again = (found["differences"][f"{arm} - outcome"] for arm in ("judge", "outcome-again"))
    assert (alike["each"], alike["seeds"]) == ([0.0, 0.0], 2)
    assert (again["each"], again["seeds"]) == ([0.0, 0.0], 2)
    assert found["ratios"]["judge / outcome"]["value"] == 1.0
    field = found["field"]
    assert field["seeds"] == 1 and {field["end"][arm]["value"] for arm in ("outcome", "unified")} == {0.5}
    (tmp_path / "judge" / "seed0" / "done.json").unlink()
    (tmp_path / "judge" / "seed2" / "done.json").unlink()
    assert "judge - outcome" not in collect(tmp_path)["differences"]


def test_a_ratio_varies_as_its_tables_do() -> None:
    rng = np.random.default_rng(0)
    below = (rng.random((6, 100)) < 0.7).astype(float)
    same = two_way_ratio(below, below)
    assert same["value"] == same["low"] == same["high"] == 1.0
    above = (rng.random((6, 100)) < 0.5).astype(float)
    assert two_way_ratio(above, np.ones_like(above)) == pytest.approx(two_way_interval(above, within=(0, 1)))
    assert two_way_ratio(above, np.zeros_like(above)) == {"value": None, "low": None, "high": None}
    # of one seed and paired tasks: the delta method, var(above − ratio · below) / (n · mean below²)
    one, other = above[:1], below[:1]
    found = two_way_ratio(one, other)
    half = 1.96 * float(np.std(one - found["value"] * other)) / math.sqrt(100) / float(other.mean())
    assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.1)


def test_what_noise_costs_and_the_judge_regains(tmp_path: Path) -> None:
    begun(tmp_path)
    for arm, share in (("outcome", 0.7), ("noisy", 0.5), ("noisy+judge", 0.65)):
        for n in range(2):
            made(tmp_path, arm, n, [share])
    found = collect(tmp_path)["regained"]
    assert set(found) == {"noisy+judge"}
    one = found["noisy+judge"]
    assert (one["value"], one["lost"]["value"]) == (pytest.approx(0.75), pytest.approx(0.2))
    assert one["back"]["value"] == pytest.approx(0.15)
    assert one["above_half"]["value"] == pytest.approx(0.05)
    made(tmp_path / "other", "outcome", 0, [0.4])
    for arm in ("noisy", "noisy+judge"):
        made(begun(tmp_path / "other"), arm, 0, [0.5])
    assert collect(tmp_path / "other")["regained"]["noisy+judge"]["value"] is None


@pytest.mark.parametrize(
    ("curve", "guard", "fell", "in_time"),
    [
        ((0.3, 0.6, 0.5, 0.4, 0.2), 1, 3, True),
        ((0.3, 0.6, 0.5, 0.4, 0.2), 3, 3, False),
        ((0.3, 0.6, 0.5, 0.4, 0.2), None, 3, False),
        ((0.3, 0.6, 0.55, 0.58, 0.4), 2, None, None),
        ((0.3, 0.6, 0.5, 0.58, 0.5), None, None, None),
    ],
)
def test_a_gamed_run_is_caught_before_it_fell_twice(
    curve: Sequence[float], guard: int | None, fell: int | None, in_time: bool | None
) -> None:
    evaluations = [{"update": n, "success": solved(share), "score": n / 10} for n, share in enumerate(curve)]
    run = {"evaluations": evaluations, "guards": [{"guard": "drift", "update": guard}] if guard is not None else []}
    found = gamed(run, GUARDS)
    assert (found["best"], found["best_update"], found["fell_update"]) == (pytest.approx(0.6), 1, fell)
    assert found["in_time"] is in_time and (found["score_first"], found["score_last"]) == (0.0, 0.4)
    assert gamed(run, ["success"])["guard"] is None  # one that does not count


def test_a_policy_that_never_changes_hardly_ever_fell() -> None:
    """13 evaluations of 200 tasks: looks of 1 % each. By the rule of two running below the best so far most of these runs had."""
    rng, fell = np.random.default_rng(0), 0
    for _ in range(6):
        rates = rng.beta(0.5, 0.5, TASKS)
        rows = [{"update": n, "success": "".join(str(int(rng.random() < p)) for p in rates)} for n in range(13)]
        fell += fell_at({"evaluations": rows}) is not None
    assert fell <= 1


def test_choosing_follows_from_its_raw_attempts() -> None:
    # the judge prefers what is right, the longest is wrong, and the answers are as frequent as each other
    raw = {f"q{n}": [[0.9, 1.0, "a", 10.0], [0.1, 0.0, "b", 20.0]] for n in range(TASKS)}
    found = by_n(raw, 2)["2"]
    means = {name: one["value"] for name, one in found["success"].items()}
    assert means == {"judge": 1.0, "majority": 0.5, "longest": 0.0, "shortest": 1.0, "random": 0.5, "oracle": 1.0}
    assert found["judge_minus"]["majority"]["low"] == 0.5


# ---- bars ----


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
    ],
)
def test_real_attempts_have_one_try_at_their_bar(tasks: dict[str, Any], ok: bool, said: str) -> None:
    made = {"command": "c", "commit": "abc", "seed": 0}
    *_, last = accept_6.real_bars({"made": made, "best_of_n": tasks})
    assert last.ok is ok and last.measured.startswith(said)


def test_the_rival_by_length_is_the_better_of_two() -> None:
    """Here the shortest is as good as the judge."""
    report = real_report(0.1)
    report["metrics"]["shortest"] = report["metrics"]["judge"]
    report["differences"]["shortest"] = {"outcome": {"value": 0.0, "low": -0.01, "high": 0.01}}
    shown, ok = accept_6.ahead(success_of(report))
    assert not ok and "− shortest 0.000" in shown and "longest" not in shown


@pytest.fixture(scope="module")
def hoped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A record in which the headline is as hoped for, with all its seeds."""
    runs = begun(tmp_path_factory.mktemp("study") / "runs")
    for arm, share in (("outcome", 0.7), ("judge", 0.68), ("nothing", 0.15), ("length", 0.2), ("tenth+judge", 0.66)):
        for n in range(ARMS[arm].seeds):
            made(runs, arm, n, [share + 0.01 * (n % 2)])
    for n in range(ARMS["gamed"].seeds):
        made(runs, "gamed", n, [0.3, 0.6, 0.5, 0.4], guards=[("length", 0), ("drift", 5)])
        made(runs, "honest", n, [0.3, 0.6], guards=[("length", 1)] * (n > 0) + [("kl", 2)] * (n == 4))
    return json.dumps(MADE | collect(runs))


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
    gamed_arm |= {"runs": gamed_arm["runs"][:4], "seeds": [0, 1, 2, 3]}
    for name in ("judge", "gamed"):
        found["arms"][name]["success"] = two_way_interval(final(found["arms"][name]), within=(0, 1))
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
    assert next(accept_6.gamed_bars(found)).ok is ok


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


def test_the_tables_have_a_row_for_all_that_was_measured(hoped: str) -> None:
    found = json.loads(hoped)
    found["choosing"]["lab"] = {
        "attempts": 2, "policy_tokens": 4000, "judge_tokens": 2000,
        "by_n": by_n({f"q{n}": [[0.9, 1.0, "a", 10.0], [0.1, 0.0, "b", 20.0]] for n in range(TASKS)}, 2),
    }  # fmt: skip
    arms, comparisons, choosing, gamed_runs = (
        make(found) for make in (tables.arms, tables.comparisons, tables.choosing, tables.gamed)
    )
    for rows in (arms, comparisons, choosing, gamed_runs):
        assert {len(row) for row in rows} == {len(rows[0])}
    judge = next(row for row in arms if row[1] == "`judge`")
    assert judge[2] == "judge alone, no outcome" and judge[3].startswith("0.685") and judge[-3:] == ["0 k", "2.0", "10"]
    assert comparisons[1][0] == "judge / outcome" and len(comparisons) == 1 + len(found["ratios"]) + len(
        found["differences"]
    )
    assert choosing[1][0] == "2" and choosing[1][-2:] == ["4 k", "2 k"]
    assert [row[2] for row in gamed_runs[1:]] == ["drift, 5"] * 5
