"""Bars as data: what a record holds, lacks or holds otherwise, the command's table and JSON line, and the set of the judges."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import pytest

from benchmarks import acceptance, record
from benchmarks.bars import judge, registry, right
from benchmarks.bars.registry import Recorded, read, sets

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
    monkeypatch.setattr(acceptance, "RESULTS", tmp_path)
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
    monkeypatch.setattr(registry, "load", {"made_up": FOUND}.get)
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
    assert {"judge", "accept-1", "accept-10"} <= sets().keys()
    assert all(len(line.split()) > 3 for line in lines)


def test_a_set_that_there_is_not_names_those_there_are() -> None:
    with pytest.raises(SystemExit, match="'judges'; there are judge, right, accept-1"):
        registry.bars_of("judges")


@pytest.mark.parametrize("name", sets())
def test_every_set_has_bars(name: str) -> None:
    module = importlib.import_module(sets()[name])
    assert getattr(module, "BARS", ()) or callable(module.bars)


def test_an_old_acceptance_is_a_set() -> None:
    bars = registry.bars_of("accept-7", run=False)
    assert len(bars) > 40 and {b.result for b in bars} <= {"pass", "FAIL", "reported"}


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


def test_every_test_that_a_section_names_exists() -> None:
    """A file of another name made a section's whole bar `0 of 13`."""
    named = [f"tests/{path}" for path in right.CHAT_TESTS.values()]
    for section in (right.FORMATS, right.SILENT, right.AGENT_FAULTS, right.HOSTILE, right.MACHINES):
        named += [one for tests in section.values() for one in tests.split()]
    for one in named:
        path, _, test = one.partition("::")
        assert (right.ROOT / path).is_file() and f"def {test}" in (right.ROOT / path).read_text(), one
