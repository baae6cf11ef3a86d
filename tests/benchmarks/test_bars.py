"""Bars as data: what a record holds, lacks or holds otherwise; every test and path they name; the command; derived figures; the house."""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record
from benchmarks.bars import bar as printed
from benchmarks.bars import derived as d
from benchmarks.bars import house, judge, recorded, registry, tables
from benchmarks.bars.bar import Bar, Outcome
from benchmarks.bars.recorded import Recorded, at, read
from benchmarks.bars.registry import sets

APART = {"value": 0.1, "low": 0.02, "high": 0.2}
TOUCHING = {"value": 0.1, "low": 0.0, "high": 0.2}
FOUND = {"small": {"auroc": 0.81, "ece": 0.1, "tfidf": 0.7, "less": APART, "near": TOUCHING, "ready": True, "by": {"a": 0.5, "b": 2},
                   "few": {"value": 0.9, "low": None, "high": None}, "lost": None, "nan": float("nan")}}  # fmt: skip


def bar(path: str, *wanted: Any, gpu: bool = False) -> Recorded:
    """A bar of the made-up record."""
    return Recorded("w", "made_up", path, *wanted, gpu=gpu)


@pytest.mark.parametrize(
    ("one", "result", "measured", "wanted"),
    [
        (bar("small.auroc", "≥", 0.8), "pass", "0.810", "≥ 0.8"),
        (bar("small.auroc", "≥", 0.82), "FAIL", "0.810", "≥ 0.82"),
        (bar("small.ece", "≤", 0.1), "pass", "0.100", "≤ 0.1"),
        (bar("small.ece", "≤", 0.08), "FAIL", "0.100", "≤ 0.08"),
        (bar("small.less", "≥", 0.1), "pass", "0.100 [0.020, 0.200]", "≥ 0.1"),
        (bar("small.few", "≥", 0.5), "pass", "0.900 [too few questions]", "≥ 0.5"),
        (bar("small.less", "interval >"), "pass", "0.100 [0.020, 0.200]", "interval above 0"),
        (bar("small.near", "interval >"), "FAIL", "0.100 [0.000, 0.200]", "interval above 0"),
        (bar("small.few", "interval >"), "FAIL", "0.900 [too few questions]", "interval above 0"),
        (bar("small.auroc", "interval >"), "FAIL", "0.810", "interval above 0"),
        (bar("small.auroc", ">", "small.tfidf"), "pass", "0.810", "> 0.700 (small.tfidf)"),
        (bar("small.tfidf", ">", "small.auroc"), "FAIL", "0.700", "> 0.810 (small.auroc)"),
        (bar("small.auroc", ">", "small.rules"), "FAIL", "no small.rules in made_up.json", "> ? (small.rules)"),
        (bar("small.by", "reported"), "reported", "a 0.500, b 2", "reported"),
        (bar("small.by", "≥", 0), "FAIL", "a 0.500, b 2", "≥ 0"),
        (bar("small.ready", "≥", 0), "FAIL", "True", "≥ 0"),
        (bar("small.nan", "≥", 0), "FAIL", "nan", "≥ 0"),
        (bar("small.lost", "reported"), "FAIL", "no small.lost in made_up.json", "reported"),
        (bar("small.auroc.deep", "≥", 0), "FAIL", "no small.auroc.deep in made_up.json", "≥ 0"),
        (bar("base.auroc", "≥", 0.8), "FAIL", "no base.auroc in made_up.json", "≥ 0.8"),
        (bar("base.auroc", "≥", 0.8, gpu=True), "waits for a GPU", "no base.auroc in made_up.json", "≥ 0.8"),
        (bar("small.auroc", "≥", 0.8, gpu=True), "pass", "0.810", "≥ 0.8"),
        (bar("small.auroc", "≥", 0.9, gpu=True), "FAIL", "0.810", "≥ 0.9"),
    ],
)
def test_a_bar_is_read_from_its_record(one: Recorded, result: str, measured: str, wanted: str) -> None:
    assert [(b.result, b.measured, b.wanted) for b in [one.read(FOUND)]] == [(result, measured, wanted)]


def test_without_its_record_a_bar_is_missed_or_waits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    bars = [bar("small.auroc", "≥", 0.8), bar("small.auroc", "≥", 0.8, gpu=True)]
    assert [b.result for b in read(bars)] == ["FAIL", "waits for a GPU"]
    record.write(tmp_path / "made_up.json", FOUND)
    assert [b.result for b in read(bars)] == ["pass", "pass"]


def run(*words: str) -> int:
    """Exit code of the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bars", *words])
        try:
            registry.main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0


@pytest.mark.parametrize(("least", "code"), [(0.8, 0), (0.82, 1)])
def test_the_command_prints_counts_and_every_bar(
    least: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bars = (bar("small.auroc", "≥", least), bar("base.auroc", "≥", 0, gpu=True), bar("small.by", "reported"))
    monkeypatch.setattr(judge, "BARS", bars)
    monkeypatch.setattr(recorded, "load", {"made_up": FOUND}.get)
    assert run("judge") == code
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    first = "FAIL" if code else "pass"
    assert (told["set"], told["counts"]) == ("judge", {"all": 3, first: 1, "waits for a GPU": 1, "reported": 1})
    assert [one["result"] for one in told["bars"]] == [first, "waits for a GPU", "reported"]
    assert told["bars"][0] == {"what": "w", "measured": "0.810", "wanted": f"≥ {least}", "result": first}


def test_without_a_name_the_sets_are_listed_with_their_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*sets()]
    assert {"judge", "right", "house", "agents", "speed", "gsm8k"} <= sets().keys()
    assert all(len(line.split()) > 3 for line in lines)


def test_a_set_that_there_is_not_names_those_there_are() -> None:
    with pytest.raises(SystemExit, match="'judges'; there are judge, house, agents"):
        registry.bars_of("judges")


MADE = {"command": "python -m benchmarks.x", "commit": (record.commit() or "0123456789ab").rstrip("+"), "seed": 0}


@pytest.mark.parametrize(
    ("one", "found", "ok"),
    [
        (Recorded("w", "r", "", "made", "command seed"), MADE, True),
        (Recorded("w", "r", "", "made", "command seed"), MADE | {"seed": None}, False),
        (Recorded("w", "r", "", "made", "command"), MADE | {"command": ""}, False),
        (Recorded("w", "r", "", "made", "command"), MADE | {"commit": None}, False),
        (Recorded("w", "r", "", "made", "command"), MADE | {"commit": MADE["commit"] + "+"}, False),
        (Recorded("w", "r", "", "made", "command"), MADE | {"commit": "0" * 39 + "1"}, False),
        (Recorded("w", "r", "runs.*", "made", "commits"), {"runs": [{"commits": [MADE["commit"]]}]}, True),
        (Recorded("w", "r", "runs.*", "made", "commits"), {"runs": [{"commits": [MADE["commit"]]}, {"commits": []}]}, False),
        (Recorded("w", "r", "off", "within", 0.2), {"off": -0.19}, True),
        (Recorded("w", "r", "off", "within", 0.2), {"off": -0.21}, False),
        (Recorded("w", "r", "less", "interval ≤"), {"less": TOUCHING}, True),
        (Recorded("w", "r", "less", "interval ≤"), {"less": APART}, False),
        (Recorded("w", "r", "runs.*.gap", "≤", 1), {"runs": [{"gap": 1}, {"gap": 0}]}, True),
        (Recorded("w", "r", "runs.*.gap", "≤", 1), {"runs": [{"gap": 1}, {"gap": 2}]}, False),
        (Recorded("w", "r", "runs.*.gap", "≤", 1), {"runs": [{"gap": 1}, {}]}, False),
        (Recorded("w", "r", "runs.*.gap", "≤", 1), {"runs": []}, False),
        (Recorded("w", "r", "arms.*.n", "=", "arms.a.n"), {"arms": {"a": {"n": 3}, "b": {"n": 3}}}, True),
        (Recorded("w", "r", "arms.*.n", "=", "arms.a.n"), {"arms": {"a": {"n": 3}, "b": {"n": 4}}}, False),
        (Recorded("w", "r", "ready", "=", True), {"ready": False}, False),
        (Recorded("w", "r", lambda found: found["a"] / found["b"], "≥", 2), {"a": 4, "b": 2}, True),
        (Recorded("w", "r", lambda found: found["a"] / found["b"], "≥", 2), {"a": 4}, False),
        (Recorded("w", "r", lambda found: found["a"] / found["b"], "≥", 2), {"a": 4, "b": 0}, False),
    ],
)  # fmt: skip
def test_a_bar_holds_for_every_figure_at_its_path(one: Recorded, found: Any, ok: bool) -> None:
    assert one.read(found).ok is ok


def test_paths() -> None:
    found = {"a": {"u-lambda-0.1": 3, "2": [5, 6]}, "rows": [{"w": 1, "x": 7}, {"w": 2, "x": 8}, {"w": 2, "x": 9}]}
    told = {
        "a.u-lambda-0.1": 3, "a.2.#": 2, "a.2": [5, 6], "rows.#": 3, "rows.*.x": [7, 8, 9], "rows.w=2.x": [8, 9], "rows.w=3.x": None,
        "rows.w=2.y": None, "rows.1.w=2.x": [8], "rows.1.x": 8, "rows.7.x": None, "": found, "a.b.c": None,
    }  # fmt: skip
    assert {path: at(found, path) for path in told} == told


UNMADE = {"judges", "qwen_gsm8k_gpu", "reading"}
"""Records that wait for a GPU, for the judges, or for hours of a processor."""


def test_every_path_that_a_bar_names_stands_in_its_record() -> None:
    bars = [one for name in sets() for one in registry.figures_of(name)]
    found = {name: record.load(name) for name in {one.record for one in bars}}
    assert {name for name, held in found.items() if held is None} <= UNMADE
    paths = [(one.record, path) for one in bars for path in (one.path, one.threshold) if isinstance(path, str)
             and not (path is one.threshold and one.wanted == "made")]  # fmt: skip
    lost = {(name, path) for name, path in paths if (held := found[name]) is not None and at(held, path) is None}
    lost = {(name, path) for name, path in lost if not path.endswith(".#")} | {
        (name, path) for name, path in paths if path.endswith(".#") and found[name] and not at(found[name], path)
    } - {("serve_speed", "scripted.wrong.#"), ("serve_speed", "lab.wrong.#")}  # no wrong answer is what is wanted
    assert lost == set()


def test_every_test_that_a_bar_names_exists() -> None:
    for of, what, tests in tables.TESTS:
        assert of in sets(), what
        for node in tests.split():
            file, _, name = node.partition("::")
            path = record.ROOT / file
            assert path.exists(), f"{what!r} names {file}"
            if name:
                defined = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
                assert name in defined, f"{what!r} names {node}"


def test_every_set_has_bars_and_says_each_once() -> None:
    for name in sets():
        told = Counter([one.what for one in registry.figures_of(name)])
        told += Counter(what for of, what, _ in tables.TESTS if of == name)
        assert (told or name == "house") and max(told.values(), default=1) == 1, told.most_common(1)
    assert {of for of, *_ in tables.FIGURES} | {of for of, *_ in tables.TESTS} <= sets().keys()


PASSED = Outcome("passed")


@pytest.mark.parametrize(
    ("outcomes", "ok", "shown"),
    [
        ([PASSED, PASSED], True, "2 passed"),
        ([PASSED, Outcome("skipped", "no browser")], True, "1 passed, 1 skipped (no browser)"),
        ([PASSED, Outcome("skipped")], False, "1 passed, 1 skipped (without a reason)"),
        ([Outcome("skipped", "no browser")], False, "1 skipped (no browser)"),
        ([PASSED, Outcome("failed", "test_a")], False, "1 passed, 1 failed (test_a)"),
        ([], False, "no such test ran"),
    ],
)
def test_tests_that_were_skipped_say_why_or_miss_their_bar(outcomes: list[Outcome], ok: bool, shown: str) -> None:
    told = printed._verdict("w", outcomes)
    assert (told.ok, told.measured) == (ok, shown)


ROUNDS = [{"64": {"per_s": n}, "in_process": {"per_s": 10.0}} for n in (9.0, 5.0, 12.0)]
WAITING = {"hf": {"seconds": {"quick": [90.0], "slow": [100.0], "lock-step": [150.0]}}}
RUNS = [{"options": {"model": "lab"}, "rollouts": [{"turns": 8, "ours_over_trl": 2.5}, {"turns": 2, "ours_over_trl": 1.0}],
         "decode": [{"ours_over_plain": 1.1}, {"ours_over_plain": 0.9}]}]  # fmt: skip
MEMORY = [{"rows": 0, "peak_mib": 1.0}, {"rows": 2**10, "peak_mib": 2.0}, {"rows": 2**11, "peak_mib": 2.0}]
SERVED = {"of": {"local": [0.1, None, 0.5], "served": [0.11, None, 0.5]}}


@pytest.mark.parametrize(
    ("figure", "found", "value"),
    [
        (d.over("a.b", "c"), {"a": {"b": {"value": 3.0}}, "c": 2.0}, 1.5),
        (d.off("a", "c"), {"a": 3.0, "c": 4.0}, -0.25),
        (d.less("a", "c"), {"a": 3.0, "c": 4.0}, -1.0),
        (d.total("a.*.n"), {"a": {"x": {"n": 1}, "y": {"n": 2}}}, 3),
        (d.distinct("a.*"), {"a": [1, 1, 2]}, 2),
        (d.seeds("a.*"), {"a": [{"seed": 0}, {"seed": 0}]}, 1),
        (d.kept_at_64, {"speed": {"rounds": ROUNDS}}, 0.9),
        (d.faults("x"), {"x": {"kinds": {"drip": 3, "score": 9, "large": 0}}}, 1),
        (d.lost("hf", "slow"), {"waiting": WAITING}, 0.1),
        (d.lost("hf", "lock-step"), {"waiting": WAITING}, 0.4),
        (d.vllm_over_trl, {"rollouts": [{"turns": 8, "seconds": {"trl": [30.0, 9.0, 31.0], "vllm": [10.0]}}]}, 3.0),
        (d.rollout("lab", "rollouts", "ours_over_trl", turns=8), {"runs": RUNS}, 2.5),
        (d.rollout("lab", "decode", "ours_over_plain"), {"runs": RUNS}, 1.1),
        (d.server_ratio, {"pairs": [{"rrm": n, "server": 2.0} for n in (1.0, 2.0, 9.0)]}, 1.0),
        (d.alternate, {"pairs": [{"first": one} for one in "aba"]}, True),
        (d.alternate, {"pairs": [{"first": one} for one in "abb"]}, False),
        (d.growth("fresh"), {"fresh": MEMORY}, 2**9),
        (d.growth("fresh", steepest=True), {"fresh": MEMORY}, 2**10),
        (d.greedy("p"), {"p": {"hf": [[1], [2]], "vllm": [[1], [3]]}}, 1),
        (d.greedy("p", "gap"), {"p": {"hf_logprobs": [[-1.0, -2.0]], "vllm_logprobs": [[-1.0, -2.5]]}}, 0.5),
        (d.moved, {"greedy": {"hf": [[1], [2]]}, "trained": {"hf": [[1], [3]]}}, 1),
        (d.served("of", "apart"), SERVED, 0.01),
        (d.served("of", "apart"), {"of": {"local": [0.1], "served": [None]}}, float("inf")),
        (d.served("of", "apart"), {"of": {"local": [0.1, 0.2], "served": [0.1]}}, None),
        (d.served("of", "rows"), SERVED, 2),
        (d.served("of", "spread"), SERVED, 0.4),
        (d.ended("s"), {"s": {"scored": 1, "truncated": 2, "judge_error": 1}}, 0.75),
        (d.ended("s", "scored"), {"s": {"scored": 1, "truncated": 3}}, 0.25),
        (d.as_it_stands, {"quickstart_script": "other"}, False),
        (d.in_time, {"gamed": [{"in_time": True}, {"in_time": False}, {"in_time": None}]}, 0.5),
        (d.fell, {"gamed": [{"in_time": True}, {"in_time": None}]}, 1),
        (d.alarmed, {"guards_counted": ["kl"], "arms": {"honest": {"runs": [{"guards": [{"guard": "kl"}]}, {"guards": [{"guard": "length"}]}]}}}, 1),
    ],
)  # fmt: skip
def test_a_derived_figure_by_hand(figure: Any, found: Any, value: Any) -> None:
    assert Recorded("w", "r", figure, "reported").figure(found) == (value if value is None else pytest.approx(value))


def test_names_that_were_are_found_by_kind_and_package(tmp_path: Path) -> None:
    (tmp_path / "rrm" / "judge").mkdir(parents=True)
    (tmp_path / "rrm" / "judge" / "phantoms.py").write_text(
        "class Purse:\n    among: int\n    def hear(self) -> None:\n        self.follow = among = 1\n"
    )
    found = list(house.names("rrm", tmp_path / "rrm"))
    met = {kind: house.banned(kind, table, found) for kind, table in house.BANNED.items()}
    assert met == {
        "module": ["phantoms in rrm/judge/phantoms.py → hallucinated_steps"],
        "class": ["Purse in rrm/judge/phantoms.py → CostTracker"],
        "function": ["hear in rrm/judge/phantoms.py → run_requests"],
        "key": ["among in rrm/judge/phantoms.py → n_compared", "follow in rrm/judge/phantoms.py → consistency_rows"],
    }
    other = [house.Name("class", text, "reagent", "f.py") for text in ("Plan", "Rows")]
    assert house.banned("class", house.BANNED["class"], other) == ["Rows in f.py → AlgoBatch"]


@pytest.mark.parametrize(
    ("text", "result", "measured"),
    [
        ("EXCEPTIONS = {'a': ['b', 'c'], 'd': ['e']}", "FAIL", "3"),
        ("EXCEPTIONS: set[str] = {'a'}", "FAIL", "1"),
        ("EXCEPTIONS = ()", "pass", "0"),
        ("OTHERS = ()", "FAIL", "not measured: no EXCEPTIONS in tests/test_architecture.py"),
        (None, "FAIL", "not measured: no EXCEPTIONS in tests/test_architecture.py"),
    ],
)
def test_exceptions_of_the_imports_test_are_counted(
    tmp_path: Path, text: str | None, result: str, measured: str
) -> None:
    path = tmp_path / "test_architecture.py"
    if text is not None:
        path.write_text(text)
    told = house.exceptions(path)
    assert (told.result, told.measured) == (result, measured)


def test_the_house_measures_all_of_it() -> None:
    told: list[Bar] = list(house.bars(run=False))
    whats = [one.what for one in told]
    assert len(told) == len(set(whats)) == 22 and {one.result for one in told} <= {"pass", "FAIL", "reported"}
    assert {one.wanted for one in told} >= {"≤ 6", "≤ 10", "≤ 12", "≤ 46,000", "≤ 25,000", "≤ 14,000"}
    assert house.counted("w", 7, 6).ok is False and house.counted("w", 6, 6).ok is True


def whole(judges: tuple[str, ...]) -> dict[str, Any]:
    """A record in which every bar of these judges is passed."""
    made: dict[str, Any] = {}
    for one in judge.BARS:
        *way, last = one.path.split(".")
        if way[0] not in judges:
            continue
        at = made
        for key in way:
            at = at.setdefault(key, {})
        limit = one.threshold if isinstance(one.threshold, float | int) else 0.5
        at.setdefault(
            last, {"value": limit + 0.1, "low": 0.05, "high": 1.0} if one.wanted in (">", "interval >") else limit
        )
    for name in judges:
        for source in made[name]["false_success"].values():
            source["tfidf"] = 0.5
    return made


def test_the_judges_set_waits_for_base_alone() -> None:
    results = {(b.what.partition(":")[0], b.result) for b in (one.read(whole(("small",))) for one in judge.BARS)}
    assert results == {("small", "pass"), ("small", "reported"), ("base", "waits for a GPU")}
    assert "FAIL" not in {one.read(whole(("small", "base"))).result for one in judge.BARS}


def test_the_judges_set_asks_more_of_base() -> None:
    assert len({one.what for one in judge.BARS}) == len(judge.BARS)
    limits = {one.path: one.threshold for one in judge.BARS}
    for path, small, base in (
        ("sanity.recall", 0.70, 0.80),
        ("calls.tau_home.auroc", 0.80, 0.85),
        ("agentprocessbench.first_error", 0.60, 0.696),
        ("speed.rss_gb", 1.5, 2.0),
        ("full.step_and_kind", None, 0.5),
    ):
        assert (limits.get(f"small.{path}"), limits[f"base.{path}"]) == (small, base)
