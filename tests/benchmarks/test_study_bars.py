"""Bars of studies: records as they should be pass, and what is worse, too little, doctored or made otherwise is missed."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from study_runs import hoped_for, solved

from benchmarks import record
from benchmarks.bars import registry
from benchmarks.integrations import apart
from benchmarks.studies import records
from benchmarks.studies.no_answer_key_arms import JUDGE
from benchmarks.studies.no_answer_key_figures import arm_of, derived

HERE = (record.commit() or "0123456789ab").rstrip("+")
MADE = {"command": "python -m benchmarks.x", "commit": HERE, "environment": {"torch": "2"}, "seeds": {"grpo": 2}}


def changed(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A record with another value at a place."""
    found = copy.deepcopy(found)
    *way, last = path
    at = found
    for key in way:
        at = at[key]
    at[last] = value
    return found


def missed(name: str, of: str, found: Any, run: bool = True) -> list[str]:
    """What is missed of a record by the bars of a set; `run`: figures are made anew as well."""
    bars = (bar.read(found, run) for bar in registry.figures_of(name) if bar.record == of)
    return [bar.what for bar in bars if bar.ok is False or bar.waits]


# ---- without an answer key ----


@pytest.fixture(scope="module")
def hoped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = json.loads(hoped_for(tmp_path_factory.mktemp("study") / "runs")) | {"commit": HERE}
    for arm in found["arms"].values():
        for run in arm["runs"]:
            run["commits"] = [HERE]
    return found


def test_the_record_that_was_hoped_for_passes_but_for_what_it_lacks(hoped: dict[str, Any]) -> None:
    bad = missed("answerless", "no_answer_key", hoped)
    lacks = ("ppo", "rloo", "reinforce++", "noisy", "E2", "E5")
    assert len(bad) == 14 and all(any(one in what for one in lacks) for what in bad)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("commit",), None, "the record"),
        (("command",), "", "the record"),
        (("overrides",), ["max_updates=1"], "overrides"),
        (("ratios", "judge / outcome", "value"), 1.2, "ratios"),
        (("arms", "judge", "success", "value"), 0.9, "figures of judge"),
        (("arms", "judge", "success_by_hops", "4", "value"), 0.9, "figures of judge"),
        (("arms", "tenth+judge", "labels"), [38] * 5, "figures of tenth+judge"),
        (("starts",), {}, "the record"),
        (("arms", "judge", "runs", 0, "options"), ["feedback.mode=none"], "options of judge"),
        (("arms", "judge", "runs", 0, "options", 0), "algorithm=ppo", "options of judge"),
        (("judges",), {"rows-100": {"options": ["drills.rows=0"]}}, "the judge rows-100"),
        (("judges",), {"rows-7": {"options": []}}, "the judge rows-7"),
        (("judges",), {"steps": {"copied": True, "judge": JUDGE}}, "the judge steps"),
        (("arms", "judge", "runs"), [], "no runs of judge"),
        (("arms", "judge", "runs", 0, "seed"), 7, "seeds of judge"),
        (("arms", "judge", "runs", 0, "commits"), ["abc+", "abc"], "the commits of each run"),
        (("judge", "settings"), "of another calibration", "another judge"),
        (("guards_counted",), ["length"], "guards_counted"),
        (("arms", "judge", "runs", 0, "evaluations", -1, "success"), "1" * 8, "not of 200 tasks"),
        (("gamed", 0, "in_time"), False, "gamed"),
        (("arms", "better"), {"runs": []}, "no runs of better"),
    ],
)
def test_a_doctored_record_is_refused(hoped: dict[str, Any], place: tuple[Any, ...], value: Any, said: str) -> None:
    found = changed(hoped, place, value)
    if said not in missed("answerless", "no_answer_key", found, run=False):
        assert said in next(records.no_answer_key.wrong(found))


def test_worse_runs_and_fewer_of_them_are_missed(hoped: dict[str, Any]) -> None:
    found = json.loads(json.dumps(hoped))
    for run in found["arms"]["judge"]["runs"]:
        run["evaluations"][-1]["success"] = solved(0.3)
    found["arms"]["gamed"]["runs"].pop()
    for name in ("judge", "gamed"):
        found["arms"][name] = arm_of(name, found["arms"][name]["runs"], found["starts"])
    found |= derived(found)
    worse, usual = (missed("answerless", "no_answer_key", one, run=False) for one in (found, hoped))
    new = ["E1 judge over outcome: success", "E1 the judge alone above length, intervals apart", "gamed: seeds"]
    assert [what for what in worse if what not in usual] == new


# ---- adapters ----

ALONE: dict[str, float | None] = {"a": 0.25, "b": 0.5}
AT_ONCE: dict[str, float | None] = {"a": 0.25, "b": 0.5 + 1e-5}
NAMES = ("inspect", "verl", "verl_reply", "verl_tokens", "trl", "serve")
WAYS = {name: {"apart": 0.0, "apart_at_once": apart(ALONE, AT_ONCE)} for name in NAMES}
SCORES = {"judge": {"alone": ALONE, "at_once": ALONE}, **{name: {"alone": ALONE, "at_once": AT_ONCE} for name in NAMES}}
EQUAL: dict[str, Any] = json.loads(  # no two rows are one object
    json.dumps({**MADE, "versions": {"torch": "2"}, "transcripts": 2, "ways": WAYS, "scores": SCORES})
)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("scores", "verl", "alone", "b"), 0.6, ["verl alone"]),
        (("scores", "verl_tokens", "alone"), {"a": 0.25}, ["verl_tokens alone"]),
        (("scores", "inspect", "alone", "c"), 0.5, ["inspect alone"]),
        (("scores", "serve", "at_once", "a"), 0.2, ["serve at_once"]),
        (("scores", "trl"), {}, ["trl alone", "trl at_once"]),
        (("scores", "judge", "alone"), {**ALONE, "a": 0.3}, [f"{name} alone" for name in NAMES]),
        (("ways", "verl", "apart"), 1e-9, ["verl alone"]),
    ],
)
def test_scores_that_do_not_bear_out_the_differences_are_named(
    path: tuple[Any, ...], value: Any, said: list[str]
) -> None:
    assert missed("integrations", "integrations", EQUAL) == []
    assert records.integrations(changed(EQUAL, path, value)) == said


@pytest.mark.parametrize("way", ["inspect", "verl", "verl_reply", "verl_tokens", "serve"])
def test_a_way_that_is_apart_or_was_not_measured_is_missed(way: str) -> None:
    what = f"scores directly and through {way}: apart"
    far = changed(EQUAL, ("ways", way, "apart"), 2e-6)
    none = changed(EQUAL, ("ways",), {name: one for name, one in EQUAL["ways"].items() if name != way})
    assert all(what in missed("integrations", "integrations", found) for found in (far, none))
