"""Bars of studies: records as they should be pass, and what is worse, too little, doctored or made otherwise is missed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from study_records import HERE, MADE, RUN, changed, rows
from study_runs import hoped_for, solved

from benchmarks.bars import registry
from benchmarks.integrations import apart
from benchmarks.studies import records, smollm2_qa
from benchmarks.studies import smollm2_gsm8k as study
from benchmarks.studies import smollm2_gsm8k_figures as of_gsm8k
from benchmarks.studies.no_answer_key_arms import JUDGE
from benchmarks.studies.no_answer_key_figures import arm_of, derived
from benchmarks.studies.smollm2_qa_sittings import packed

pytestmark = pytest.mark.usefixtures("drawn_once")


def missed(name: str, record: str, found: Any, run: bool = True) -> list[str]:
    """What is missed of a record by the bars of a set; `run`: figures are made anew as well."""
    bars = (bar.read(found, run) for bar in registry.figures_of(name) if bar.record == record)
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
    found = json.loads(json.dumps(hoped))
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
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
    assert [what for what in worse if what not in usual] == [
        "E1 judge over outcome: success",
        "E1 the judge alone above length, intervals apart",
        "gamed: seeds",
    ]


# ---- multi-hop questions ----


def made(arm: str, seed: int) -> dict[str, Any]:
    """A training of the multi-hop study as its arm says."""
    options = ["algorithm=ppo", *smollm2_qa.TRAINING, *smollm2_qa.ARMS[arm], f"seed={seed}"]
    return RUN | {"seed": seed, "options": options}


def answered(**right: list[int]) -> dict[str, Any]:
    """A record of one sitting, of each arm how many questions each seed answers."""
    usual = {"direct": [10], smollm2_qa.RIVAL: [40], smollm2_qa.START: [50], "judge": [50], "ppo": [60]}
    asked, held = packed(
        {name: [{"seed": k, "rows": rows(n)} for k, n in enumerate(of)] for name, of in (usual | right).items()}
    )
    trainings = {arm: [made(arm, seed) for seed in range(n)] for arm, n in smollm2_qa.SEEDS.items()}
    one = {"warm": {}, "made_with": {"overrides": []}, "trainings": trainings}
    sittings = [one | {"asked": {"held_out": asked}, "rows": {"held_out": held, "musique": {}}}]
    return MADE | {"sittings": sittings, "figures": smollm2_qa.figures_of(sittings)}


@pytest.fixture(scope="module")
def good_qa(drawn_once: None) -> dict[str, Any]:
    return answered(grpo=[90, 80], filled=[90, 80], shuffled=[52, 48])


UNLIKE = "multi-hop: trainings or figures that are not the study's"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("commit",), "abc+", "multi-hop: the record"),
        (("sittings", 0, "trainings", "grpo"), [made("grpo", 0)], "multi-hop: grpo: seeds trained"),
        (("sittings", 0, "trainings", "grpo", 1, "seed"), 0, "multi-hop: grpo: seeds trained"),
        (("sittings", 0, "trainings", "shuffled"), [made("filled", 0), made("filled", 1)], UNLIKE),
        (("sittings", 0, "trainings", "grpo", 0, "options"), ["algorithm=grpo"], UNLIKE),
        (("sittings", 0, "rows", "held_out", "grpo", 1, "seed"), 0, UNLIKE),
        (("sittings", 0, "trainings", "judge"), [], UNLIKE),
        (("sittings", 0, "trainings", "nobody"), [made("grpo", 0)], UNLIKE),
        (("sittings", 0, "made_with"), {"overrides": ["max_updates=2"]}, UNLIKE),
        (("sittings", 0, "made_with"), {"overrides": [], "shown": 56}, UNLIKE),
        (("sittings", 0, "trainings", "judge", 0, "updates"), 39, "multi-hop: updates of each training"),
        (("sittings", 0, "trainings", "judge", 0, "commits"), ["abc+"], "multi-hop: the commits of each training"),
        (("sittings", 0, "rows", "held_out", "grpo", 0, "rows", "f1", 499), 1.0, UNLIKE),
        (("figures", "held_out", "shuffled", "f1_less_start_by_seed", 1, "value"), 0.08,
         "multi-hop: every seed of filled above every one of shuffled"),
        (("figures", "held_out", "filled", "f1_less_control", "low"), 0.0, "multi-hop: filled less shuffled (rewards dealt anew)"),
        (("figures", "held_out", "grpo", "seeds_less_start"), 1, "multi-hop: grpo: seeds less the warm start"),
    ],
)  # fmt: skip
def test_what_a_multi_hop_record_does_not_hold_is_missed(
    good_qa: dict[str, Any], path: tuple[Any, ...], value: Any, said: str
) -> None:
    found = changed(good_qa, path, value)
    if said != UNLIKE:
        assert said in missed("multihop", "smollm2_qa", found, run=False)
    else:
        assert next(records.multihop.wrong(found))


def test_a_good_multi_hop_record_passes_and_an_absent_one_is_missed(good_qa: dict[str, Any]) -> None:
    assert missed("multihop", "smollm2_qa", good_qa) == []
    assert all(missed("multihop", record, None) for record in ("smollm2_qa", "smollm2_qa_gpu"))


def test_training_that_gains_nothing_beyond_chance_is_missed(drawn_once: None) -> None:
    found = answered(grpo=[51, 50], filled=[90, 80], shuffled=[52, 48])
    assert missed("multihop", "smollm2_qa", found, run=False) == ["multi-hop: grpo less its warm start"]


# ---- GSM8K ----


def solving(sampled: dict[str, list[int]] | None = None, **right: list[int]) -> dict[str, Any]:
    """A record of GSM8K: of each policy how many problems each seed solves, greedily and sampled."""
    greedy, other = (
        {name.replace("_", "-"): [{"seed": k, "by": "evaluate", "rows": rows(n)} for k, n in enumerate(of)] for name, of in one.items()}
        for one in (right, sampled or {})
    )  # fmt: skip
    trainings = {
        arm: [RUN | {"seed": run["seed"], "options": ["seed=0", *study.TRAINING, *study.ARMS[arm]]} for run in of]
        for arm, of in greedy.items()
        if arm != of_gsm8k.START
    }
    shown = study.SHOWN if greedy.keys() == {"start", "grpo"} else study.FEW
    found = MADE | {"overrides": [], "shown": shown, "questions": {"held_out": 500}, "trainings": trainings}
    found |= {"figures": of_gsm8k.figures(greedy), "answered": of_gsm8k.who(greedy)}
    if sampled:
        told = {"figures": of_gsm8k.figures(other, greedy["start"]), "answered": of_gsm8k.who(other)}
        found["sampled"] = {"temperature": 1.0, **told}
    return found


GREEDY = {"start": [60], "grpo": [90, 95], "filled": [90, 95], "filled_shuffled": [61, 59]}
SAMPLED = {"start": [20], "grpo": [60, 62], "filled": [80, 82], "filled_shuffled": [21, 19]}
WIDE = {"start": [60], "wide": [90, 95, 99], "wide_shuffled": [60, 62, 64]}
OF = {"usual": "smollm2_gsm8k_gpu", "few": "smollm2_gsm8k_few", "wide": "smollm2_gsm8k_wide"}


@pytest.mark.parametrize(
    ("which", "found", "said"),
    [
        ("usual", {"start": [60], "grpo": [90, 95]}, []),
        ("usual", {"start": [60], "grpo": [90, 95, 93]}, []),  # more seeds are enough
        ("usual", {"start": [60], "grpo": [60, 60]}, ["grpo less its warm start"]),
        ("usual", {"start": [40], "grpo": [90, 95]}, ["the warm start, one or two operations"]),
        ("usual", {"start": [60], "grpo": [90]}, ["grpo: seeds answered", "grpo: seeds trained"]),
        ("few", GREEDY | {"sampled": SAMPLED}, []),
        ("few", GREEDY | {"sampled": SAMPLED, "grpo": [61, 59]}, ["grpo less its warm start"]),
        ("few", GREEDY | {"sampled": SAMPLED | {"filled": [80, 20]}}, ["sampled: every seed of filled above every one of filled-shuffled"]),
        ("few", GREEDY | {"sampled": SAMPLED | {"filled": [80]}}, ["sampled: filled: seeds answered", "trainings or figures that are not the study's"]),
        ("wide", WIDE, []),
        ("wide", WIDE | {"wide": [90, 95, 63]}, ["every seed of wide above every one of wide-shuffled"]),
        ("wide", WIDE | {"wide_shuffled": [60, 62]}, ["wide-shuffled: seeds answered", "wide-shuffled: seeds trained"]),
        ("wide", WIDE | {"wide": [60, 60, 60]}, ["every seed of wide above every one of wide-shuffled", "wide less its warm start", "wide less wide-shuffled (rewards dealt anew)"]),
    ],
)  # fmt: skip
def test_a_gsm8k_record_passes_or_is_missed_where_it_is_worse(
    which: str, found: dict[str, Any], said: list[str]
) -> None:
    bad = missed("gsm8k", OF[which], solving(**found))
    assert sorted(what.split(": ", 1)[1].removeprefix("sampled: ") for what in bad) == sorted(
        one.removeprefix("sampled: ") for one in said
    )


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("answered", "grpo", 1, "seed"), 0, "seeds of grpo"),
        (("answered",), {}, "seeds of grpo"),
        (("overrides",), ["environment.eval_tasks=60"], "overrides"),
        (("trainings", "grpo", 0, "seed"), 2, "seeds of grpo"),
        (("trainings", "grpo", 0, "options"), study.TRAINING[1:], "grpo, seed 0: not as the arm says"),
        (("trainings", "filled", 0, "options"), [*study.TRAINING, *study.ARMS["filled-shuffled"]], "filled, seed 0: not as the arm says"),
        (("shown",), 1000, "solutions"),
        (("sampled", "temperature"), 0.7, "temperature"),
        (("sampled", "answered"), {}, "sampled seeds of grpo"),
    ],
)  # fmt: skip
def test_a_gsm8k_record_that_is_not_the_study_says_why(path: tuple[Any, ...], value: Any, said: str) -> None:
    found = solving(SAMPLED, **GREEDY)
    assert records.gsm8k(study.FEW)(found) == []
    assert said in records.gsm8k(study.FEW)(changed(found, path, value))
    hotter = changed(found, ("trainings", "grpo", 1, "options"), [*found["trainings"]["grpo"][1]["options"], "rollout.temperature=0.7"])  # fmt: skip
    assert "temperature" in records.gsm8k(study.FEW)(hotter)


@pytest.mark.parametrize(("path", "value"), [(("questions", "held_out"), 844), (("figures", "grpo", "questions"), 499)])
def test_all_answer_every_held_out_question(path: tuple[Any, ...], value: int) -> None:
    found = changed(solving(start=[60], grpo=[90, 95]), path, value)
    assert "1,000 solutions: questions that each answered" in missed("gsm8k", OF["usual"], found)


def test_an_absent_record_is_missed_and_one_of_a_gpu_waits() -> None:
    bars = {
        which: [bar for bar in registry.figures_of("gsm8k") if bar.record == record] for which, record in OF.items()
    }
    results = {which: {bar.read(None).result for bar in of} for which, of in bars.items()}
    assert results == {"usual": {"FAIL"}, "few": {"FAIL"}, "wide": {"waits for a GPU"}}


# ---- adapters ----

ALONE: dict[str, float | None] = {"a": 0.25, "b": 0.5}
AT_ONCE: dict[str, float | None] = {"a": 0.25, "b": 0.5 + 1e-5}
NAMES = ("inspect", "verl", "verl_reply", "verl_tokens", "trl", "serve")
EQUAL: dict[str, Any] = json.loads(
    json.dumps(
        {
            **MADE,
            "versions": {"torch": "2"},
            "transcripts": 2,
            "ways": {name: {"apart": 0.0, "apart_at_once": apart(ALONE, AT_ONCE)} for name in NAMES},
            "scores": {"judge": {"alone": ALONE, "at_once": ALONE}}
            | {name: {"alone": ALONE, "at_once": AT_ONCE} for name in NAMES},
        }
    )
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
