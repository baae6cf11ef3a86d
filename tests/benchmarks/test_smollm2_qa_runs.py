"""The runs of the question study: what they differ in, what is done once, and the figures of what they answered."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies import smollm2_qa_data as data
from benchmarks.studies.smollm2 import on_device, placed, seeds_in, training
from benchmarks.studies.smollm2_qa import ARMS, SEEDS, Study, chosen, collect, main
from benchmarks.studies.smollm2_qa_figures import difference, figures, ratio, table
from benchmarks.studies.smollm2_qa_sittings import held_alike, none_lost, packed, pooled, trained, unpacked, whole
from reagent.env.task import write_tasks

FACTS = {"epochs": 1}
TASKS = [
    data.task_of(f"Who directed film {n}?", f"Director {n}", "2wiki", [f"Film {n}", f"Director {n}"]) for n in range(3)
]


def answered(f1: Sequence[float], em: Sequence[float]) -> list[dict]:
    return [
        {"id": f"q{n:03d}", "source": "2wiki" if n % 2 else "hotpotqa", "f1": a, "em": b, "answer": "x" if a else None,
         "answered": int(a > 0), "searches": 2, "malformed": 0, "tokens": 30}
        for n, (a, b) in enumerate(zip(f1, em, strict=True))
    ]  # fmt: skip


def test_figures_by_hand() -> None:
    start, rag = answered([0.5, 0.0] * 20, [0.0] * 40), answered([0.25, 0.0] * 20, [0.0] * 40)
    seeds = [answered([1.0, 0.0] * 20, [1.0, 0.0] * 20), answered([0.5, 0.5] * 20, [0.0] * 40)]
    policies = {"tool_call": [start], "naive_rag": [rag], "grpo": seeds}
    found = figures(policies, {"tool_call": [0], "naive_rag": [0], "grpo": [0, 0]}, "tool_call", "naive_rag")
    grpo = found["grpo"]
    assert grpo["f1"]["value"] == 0.5 and grpo["f1_by_seed"] == [0.5, 0.5] and grpo["em_by_seed"] == [0.5, 0.0]
    assert grpo["f1_less_start"]["value"] == 0.25 and grpo["f1_over_rival"]["value"] == 4
    assert grpo["f1_less_start_by_seed"][1]["value"] == 0.25
    # every question gains 0.25 in the mean of both seeds: nothing is left to chance
    assert grpo["f1_less_start"]["low"] == grpo["f1_less_start"]["high"] == 0.25
    assert found["tool_call"]["unanswered"] == 0.5 and "f1_less_start" not in found["tool_call"]
    assert grpo["by_source"]["hotpotqa"] == {"questions": 20, "f1": 0.75, "em": 0.5}
    assert grpo["em_over_rival"]["value"] is None  # the rival was never right


def test_a_gain_is_compared_with_that_of_its_control_each_over_its_own_start() -> None:
    """Two sittings whose warm starts are 0.25 apart: what is left of a gain of 0.5 where the control gains 0.25."""
    low, high = answered([0.0] * 8, [0.0] * 8), answered([0.25] * 8, [0.0] * 8)
    policies = {
        "start": [low, high],
        "arm": [answered([0.5] * 8, [0.0] * 8)],
        "dealt": [answered([0.5] * 8, [0.0] * 8)],
    }
    where = {"start": [0, 1], "arm": [0], "dealt": [1]}
    found = figures(policies, where, "start", "none", {"arm": "dealt"})
    assert found["arm"]["f1_less_control"]["value"] == 0.25 and "f1_less_control" not in found["dealt"]
    del policies["dealt"]
    assert "f1_less_control" not in figures(policies, where, "start", "none", {"arm": "dealt"})["arm"]


def test_a_difference_has_the_interval_of_its_questions() -> None:
    rng = np.random.default_rng(0)
    gains = rng.choice([0.0, 1.0], size=400, p=[0.7, 0.3])
    found = difference(gains[None], np.zeros((1, 400)))
    half = 1.96 * gains.std() / 20
    assert found["low"] is not None and found["high"] is not None
    assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.05)
    assert ratio(gains[None], gains[None]) == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_three_runs_have_an_interval_over_seeds_too() -> None:
    """Every question gains alike within a run, so that over questions nothing is left to chance, and over seeds much is."""
    start, gains = answered([0.0] * 8, [0.0] * 8), (0.1, 0.2, 0.6)
    runs = [answered([gain] * 8, [0.0] * 8) for gain in gains]
    where = {"start": [0], "arm": [0, 0, 0]}
    one = figures({"start": [start], "arm": runs}, where, "start", "none")["arm"]
    assert one["f1_less_start"]["low"] == one["f1_less_start"]["high"] == 0.3
    both = one["f1_less_start_over_seeds"]
    assert both["value"] == 0.3 and both["low"] < 0 < 0.6 < both["high"]  # three seeds, widened by Student's 4.3
    two = figures({"start": [start], "arm": runs[:2]}, where | {"arm": [0, 0]}, "start", "none")["arm"]
    assert "f1_less_start_over_seeds" not in two


def test_runs_are_found_by_their_seeds(tmp_path: Path) -> None:
    for name in ("seed10", "seed2", "seedling", "seed01", "seed\u0663"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed2.begun.json").write_text("{}")
    assert seeds_in(tmp_path) == {2: tmp_path / "seed2", 10: tmp_path / "seed10"}
    assert seeds_in(tmp_path / "none") == {}


def test_runs_of_other_questions_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="same questions"):
        table([answered([1.0], [1.0]), answered([1.0, 0.0], [1.0, 0.0])], "f1")
    other = [{**row, "id": f"b{row['id']}"} for row in answered([1.0] * 40, [1.0] * 40)]
    policies, sat = {"start": [answered([0.5] * 40, [0.0] * 40)], "grpo": [other]}, {"start": [0], "grpo": [0]}
    with pytest.raises(ValueError, match="same questions"):
        figures(policies, sat, "start", "rival")


def test_a_record_holds_questions_once_and_no_answers() -> None:
    one, other = answered([1.0, 0.0, 0.5], [1.0, 0.0, 0.0]), answered([0.0] * 3, [0.0] * 3)
    asked, runs = packed({"a": [{"seed": 0, "rows": one[::-1]}], "b": [{"seed": 3, "rows": other}]})
    assert asked == {"id": ["q000", "q001", "q002"], "source": ["hotpotqa", "2wiki", "hotpotqa"]}
    assert runs["a"][0]["rows"]["f1"] == [1.0, 0.0, 0.5] and runs["a"][0]["rows"]["answered"] == [1, 0, 1]
    assert runs["b"] == [{"seed": 3, "most_said": {"answer": None, "questions": 3}, "rows": runs["b"][0]["rows"]}]
    with pytest.raises(ValueError, match="same questions"):
        packed({"a": [{"seed": 0, "rows": one}], "b": [{"seed": 0, "rows": other[1:]}]})
    assert packed({}) == ({}, {})


def study(folder: Path) -> Study:
    folder.mkdir(exist_ok=True)
    for part in ("train", "held_out"):
        write_tasks(folder / f"{part}.jsonl", TASKS)
    (folder / "counts.json").write_text(json.dumps({"train": 3, "held_out": 3, "musique": 1}))
    return Study(folder, epochs=1)


def test_arms_differ_in_what_they_learn_from_alone(tmp_path: Path) -> None:
    from reagent.train.config import load_agent_config

    made = study(tmp_path)
    configs = {arm: load_agent_config("smollm2", made.options(arm, 0)).model_dump() for arm in ARMS}
    for config in configs.values():
        assert config["environment"]["train"] == {"path": str(tmp_path / "train.jsonl")}
        for key in ("policy", "seed", "max_updates"):
            assert config[key] == configs["grpo"][key]
    for arm in SEEDS:
        assert configs[arm]["rollout"] | {"dynamic_sampling": 0} == configs["grpo"]["rollout"]
    wide, dealt, batch = configs["wide"], configs["wide-shuffled"], {"tasks_per_update": 16}
    assert wide["rollout"] == configs["grpo"]["rollout"] | batch and wide["loss"] == configs["grpo"]["loss"]
    assert configs["wide-judge"]["feedback"] == configs["judge"]["feedback"]
    assert configs["wide-judge"]["environment"] == configs["judge"]["environment"]
    assert configs["wide-ppo"]["algorithm"] == "ppo" and configs["wide-ppo"]["rollout"] == wide["rollout"]
    assert configs["filled"]["rollout"]["dynamic_sampling"] and configs["filled"]["loss"]["advantage_scale"] == "none"
    filled, control = configs["filled"], configs["shuffled"]
    assert filled["feedback"]["mode"] == "none" and control["feedback"]["mode"] == "shuffled"
    bare = configs["bare"]
    paid = bare["environment"].pop("rewards")
    assert not any(paid[name] for name in ("useful", "malformed", "repeated", "unanswered")) and paid["outcome"] == 1.0
    assert configs["bare-shuffled"]["environment"].pop("rewards") == paid
    assert filled["environment"].pop("rewards") == control["environment"].pop("rewards")
    assert bare | {"output_dir": ""} == filled | {"output_dir": ""}
    own = ("feedback", "output_dir")
    for one, other in ((control, filled), (dealt, wide), (configs["bare-shuffled"], bare)):
        assert one["feedback"]["mode"] == "shuffled" and other["feedback"]["mode"] == "none"
        assert {k: v for k, v in one.items() if k not in own} == {k: v for k, v in other.items() if k not in own}
    assert configs["judge"]["environment"]["label_share"] == 0 and configs["judge"]["feedback"]["mode"] == "r"
    assert configs["grpo"]["environment"]["label_share"] == 1 and configs["grpo"]["feedback"]["mode"] == "none"
    assert configs["grpo"]["max_updates"] >= 40 and configs["grpo"]["threads"] == 1
    assert [*made.options("ppo", 0), "threads=2"] == replace(made, threads=2).options("ppo", 0)
    assert configs["grpo"]["cpu"]
    on_gpu = load_agent_config("smollm2", replace(made, device="cuda").options("grpo", 0)).model_dump()
    assert not on_gpu["cpu"] and on_gpu | {"cpu": True} == configs["grpo"]


def test_a_policy_is_evaluated_once_and_on_every_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = study(tmp_path), []

    def noted(arguments: list[str], log: Path, module: str) -> None:
        asked.append(arguments)
        Path(arguments[arguments.index("--output") + 1]).write_text("[]")

    monkeypatch.setattr("benchmarks.studies.smollm2_qa.call", noted)
    for _ in range(2):
        made.evaluate(tmp_path / "rows.json", "naive_rag", tmp_path / "policy", "held_out")
    (one,) = asked
    assert "environment.eval_tasks=3" in one and f"environment.eval={{path: {tmp_path / 'held_out.jsonl'}}}" in one
    assert "environment.name=benchmarks.studies.smollm2_qa_demos:NaiveRag" in one


def test_a_study_of_few_demonstrations_shows_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def noted(arguments: list[str], log: Path, module: str) -> None:
        asked.append(arguments)
        if not module.endswith("_warm"):
            Path(arguments[arguments.index("--output") + 1]).write_text("[]")

    monkeypatch.setattr("benchmarks.studies.smollm2_qa.call", noted)
    for shown in (None, 56):
        folder = tmp_path / str(shown)
        made = replace(study(folder), shown=shown)
        (folder / "start" / "direct").mkdir(parents=True)
        made.begin_with("direct")
    all_of_them, few = (a for a in asked if "--method" in a)
    assert "--shown" not in all_of_them and few[few.index("--shown") + 1] == "56"


def test_what_is_done_is_collected_and_what_is_not_is_left_out(tmp_path: Path) -> None:
    made, rows = study(tmp_path), answered([1.0, 0.0] * 10, [0.0] * 20)
    for method in ("tool_call", "naive_rag"):
        (tmp_path / "start" / method).mkdir(parents=True)
        (tmp_path / "start" / method / "held_out.json").write_text(json.dumps(answered([0.5, 0.0] * 10, [0.0] * 20)))
    folder = tmp_path / "judge" / "seed0"
    folder.mkdir(parents=True)
    updates = [
        {"update": n, "episodes": 24 * (n + 1), "learned/reward": 0.1 * n, "episode/success": None, "time/total_s": 60.0 + n}
        for n in range(3)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(update) + "\n" for update in updates))
    options = [*made.options("judge", 0), "seed=0"]
    (folder / "done.json").write_text(json.dumps({"seconds": 1800, "commits": ["c"], "options": options}))
    (folder / "held_out.json").write_text(json.dumps(rows))
    (tmp_path / "grpo" / "seed0").mkdir(parents=True)  # begun, not done
    (tmp_path / "warm" / "tool_call").mkdir(parents=True)
    (tmp_path / "warm" / "tool_call" / "warm.json").write_text('{"losses": [1.0]}')
    found = collect(made, FACTS)
    assert list(found["figures"]["held_out"]) == ["naive_rag", "tool_call", "judge"]
    assert found["figures"]["held_out"]["judge"]["f1_less_start"]["value"] == 0.25
    (here,) = found["sittings"]
    (judge,), asked = here["rows"]["held_out"]["judge"], here["asked"]["held_out"]
    assert (judge["seed"], judge["most_said"]) == (0, {"answer": "x", "questions": 10})
    assert unpacked(asked, judge["rows"]) == [{k: v for k, v in row.items() if k != "answer"} for row in rows]
    assert here["asked"]["musique"] == {} and found["figures"]["musique"] == {}
    (one,) = trained(found)["judge"]
    assert (one["hours"], one["episodes"], one["update_seconds"]["total"]) == (0.5, 72, 61.0)
    assert one["reward"] == [0.0, 0.1, 0.2] and one["success"] == [None] * 3 and "score" not in one
    assert f"policy.base=runs/{tmp_path.name}/warm/tool_call" in one["options"]
    assert str(tmp_path) not in json.dumps(found, allow_nan=False)  # no path of a machine is recorded


def test_what_is_chosen_among_attempts_is_counted_in_f1(tmp_path: Path) -> None:
    """A transcript's outcome is exact match: of these, two earn a part of F1 and none is exact."""

    def attempt(n: int, said: str, score: float) -> str:
        messages = [{"role": "user", "content": TASKS[0].question}, {"role": "assistant", "content": f"Answer: {said}"}]
        meta = {"judge_score": score, "group_id": TASKS[0].id}
        of = {"task": TASKS[0].question, "question_id": TASKS[0].question_id}
        return json.dumps(
            {"schema_version": 1, "id": f"a{n}", **of, "messages": messages, "outcome": 0.0, "meta": meta}
        )

    assert chosen(tmp_path, TASKS) == {}
    said = (("Director", 0.9), ("Director 1", 0.4), ("nobody", 0.1), ("Director 1", 0.2))
    (tmp_path / "attempts.jsonl").write_text("".join(attempt(n, *one) + "\n" for n, one in enumerate(said)))
    (tmp_path / "figures.json").write_text(
        json.dumps({"choose": {"attempts": 4, "policy_tokens": 9, "judge_tokens": 8}})
    )
    found = chosen(tmp_path, TASKS)
    reached = {name: one["value"] for name, one in found["by_n"]["4"]["success"].items()}
    assert (reached["judge"], reached["majority"], reached["oracle"]) == (0.6667, 0.5, 0.6667)  # 2/3 of "director 0"
    assert found["by_searches"] == {"0": {"attempts": 4, "score": 0.4, "em": 0.0}}
    assert (found["auroc_within"]["value"], found["auroc_within"]["pairs"]) == (1.0, 3)


def test_what_was_said_earns_f1_not_the_form_that_votes_have(tmp_path: Path) -> None:
    """Votes compare "Jean-Luc Bé" as "jean luc bé" or so, which F1 does not know as the same."""
    task = data.task_of("Who?", "Jean-Luc O'Bé", "2wiki", ["a", "b"])
    call = {"name": "search", "arguments": {"query": "x"}, "id": "c"}
    messages = [
        {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "c"}, {"role": "assistant", "content": "Answer: Jean-Luc O'Bé"},
    ]  # fmt: skip
    rows = [
        {"schema_version": 1, "id": f"a{n}", "task": "Who?", "question_id": task.question_id, "messages": messages[: 4 if n else 3],
         "outcome": float(n), "meta": {"judge_score": 0.5} if n else {}}
        for n in range(2)
    ]  # fmt: skip
    (tmp_path / "attempts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "figures.json").write_text(
        json.dumps({"choose": {"attempts": 2, "policy_tokens": 9, "judge_tokens": 8}})
    )
    found = chosen(tmp_path, [task])
    reached = {name: one["value"] for name, one in found["by_n"]["2"]["success"].items()}
    assert (reached["random"], reached["oracle"]) == (0.5, 1.0)  # without an answer, and right
    assert found["by_searches"] == {"1": {"attempts": 2, "score": 0.5, "em": 0.5}}  # of the one that has a score


def test_one_warm_start_that_fails_keeps_no_arm_from_being_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done is recorded, and the failure is said at the end."""
    study(tmp_path)
    (tmp_path / "counts.json").write_text(json.dumps({"train": 3, "held_out": 20, "musique": 20}))
    rows = answered([1.0, 0.0] * 10, [0.0] * 20)

    def done(arguments: list[str], log: Path, module: str = "reagent") -> None:
        if module.endswith("_warm"):
            method = arguments[arguments.index("--method") + 1]
            if method == "direct":
                raise subprocess.CalledProcessError(1, ["python", "-m", module, *arguments])
            (tmp_path / "warm" / method).mkdir(parents=True)
            (tmp_path / "warm" / method / "warm.json").write_text("{}")
        elif module == "reagent":
            folder = Path(next(o for o in arguments if o.startswith("output_dir=")).partition("=")[2])
            folder.mkdir(parents=True)
            (folder / "metrics.jsonl").write_text(
                json.dumps({"update": 0, "episodes": 24, "learned/reward": 0.5}) + "\n"
            )
        else:
            target = Path(arguments[arguments.index("--output") + 1])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(rows))

    monkeypatch.setattr("benchmarks.studies.smollm2_qa.call", done)
    monkeypatch.setattr("benchmarks.studies.study.call", done)
    monkeypatch.setattr("benchmarks.studies.smollm2_qa.prepare", lambda data, runs: None)
    output = tmp_path / "out.json"
    options = ["--runs", str(tmp_path), "--output", str(output), "--arms", "grpo", "--seeds", "1", "--no-choose"]
    monkeypatch.setattr("sys.argv", ["smollm2_qa", *options])
    with pytest.raises(SystemExit, match="--method direct"):
        main()
    before = output.read_text()
    held = json.loads(before)["figures"]["held_out"]
    assert list(held) == ["naive_rag", "tool_call", "grpo"] and held["grpo"]["f1_less_start"]["value"] == 0

    # another folder's runs would be refused at the end: they are refused before anything is trained
    monkeypatch.setattr("benchmarks.studies.smollm2_qa.run_all", lambda jobs, parallel: pytest.fail("trained"))
    study(tmp_path / "other")
    (tmp_path / "other" / "warm" / "tool_call").mkdir(parents=True)
    (tmp_path / "other" / "warm" / "tool_call" / "warm.json").write_text('{"losses": [2.0]}')
    monkeypatch.setattr("sys.argv", ["smollm2_qa", "--runs", str(tmp_path / "other"), *options[2:]])
    with pytest.raises(SystemExit, match="holds 1 sittings that are not here"):
        main()
    assert output.read_text() == before


def test_rewards_of_filled_updates_are_those_of_all_that_was_played(tmp_path: Path) -> None:
    """What is learned was chosen by its rewards: an arm's curve of these alone would stand beside another's of all."""
    folder = tmp_path / "runs" / "filled" / "seed0"
    folder.mkdir(parents=True)
    update = {
        "update": 0, "episodes": 72, "learned/reward": 0.5, "episode/reward": 0.1, "learned/flat_groups": 0.0,
        "sampling/tasks": 9.0, "sampling/groups": 8.0, "sampling/differing": 3.0,
    }  # fmt: skip
    (folder / "done.json").write_text(json.dumps({"seconds": 60, "commits": ["c"], "options": []}))
    for change, reward, flat, sampled in (
        ({}, [0.1], None, [[8.0, 3.0]]),
        ({"sampling/groups": None}, [0.5], [0.0], None),
    ):
        row = {k: v for k, v in (update | change).items() if v is not None}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        found = training(folder)
        assert (found["reward"], found.get("flat_groups"), found.get("sampled")) == (reward, flat, sampled)
        assert "guards" not in found
    (folder / "guards.jsonl").write_text('{"update": 11, "episodes": 288, "guard": "length", "text": "short"}\n')
    assert training(folder)["guards"] == [{"update": 11, "guard": "length"}]


@pytest.mark.parametrize(("updates", "said"), [([0, 2, 1, 2], "line 2 is of update 2, where 1 is"), ([1, 2], "line 1")])
def test_a_run_that_two_processes_wrote_is_not_read(tmp_path: Path, updates: list[int], said: str) -> None:
    (tmp_path / "done.json").write_text(json.dumps({"seconds": 60, "commits": ["c"], "options": []}))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"update": n, "episodes": 8}) + "\n" for n in updates))
    with pytest.raises(SystemExit, match=said):
        training(tmp_path)


def test_a_study_in_several_sittings_compares_each_run_with_its_own_start(tmp_path: Path) -> None:
    def made_in(name: str, start: float, after: float, card: str, seed: int = 0) -> Study:
        folder = tmp_path / name
        one = study(folder)
        for place, f1 in (("start/tool_call", start), (f"grpo/seed{seed}", after)):
            (folder / place).mkdir(parents=True)
            (folder / place / "held_out.json").write_text(json.dumps(answered([f1] * 8, [0.0] * 8)))
        (folder / "warm" / "tool_call").mkdir(parents=True)
        (folder / "warm" / "tool_call" / "warm.json").write_text(card)
        return one

    first = made_in("first", 0.1, 0.4, '{"losses": [1.0]}')
    one = collect(first, FACTS)
    second = made_in("second", 0.3, 0.4, '{"losses": [1.5]}', seed=1)
    both = collect(second, FACTS, one)
    for found in (both, collect(second, FACTS, both)):  # again: its own sitting is made anew
        assert len(found["sittings"]) == 2 and found["sittings"][0] == one["sittings"][0]
        grpo = found["figures"]["held_out"]["grpo"]
        assert [round(x["value"], 6) for x in grpo["f1_less_start_by_seed"]] == [0.3, 0.1]
        assert grpo["f1_less_start"]["value"] == pytest.approx(0.2) and grpo["seeds"] == 2
        assert found["figures"]["held_out"]["tool_call"]["f1"]["value"] == pytest.approx(0.2)
    for sitting in both["sittings"]:
        sitting["reading"] = {"tool_call": [{"seed": 0}], "grpo": [{"seed": 0}]}
    again = collect(made_in("third", 0.2, 0.5, '{"losses": [2.0]}'), FACTS, both)
    assert again["figures"]["held_out"]["grpo"]["seeds"] == 2  # seed 0 was made again: it stands once
    assert again["figures"]["held_out"]["grpo"]["f1_by_seed"] == [0.4, 0.5]
    assert again["sittings"][0]["reading"] == {"tool_call": [{"seed": 0}]}  # and what it had read goes with it
    empty = study(tmp_path / "empty")
    assert collect(empty, FACTS, both)["sittings"] == both["sittings"]
    with pytest.raises(SystemExit, match="1 sittings that are not here: keep them with --keep"):
        none_lost(both["sittings"], [both["sittings"][1]], "tool_call", tmp_path / "record.json")
    none_lost(both["sittings"], again["sittings"], "tool_call", tmp_path / "record.json")
    held_alike(both["sittings"], FACTS, tmp_path / "record.json")
    with pytest.raises(SystemExit, match=r"made with \{'epochs': 1\}"):
        held_alike(both["sittings"], FACTS | {"epochs": 2}, tmp_path / "record.json")


def test_what_a_gpu_made_is_another_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = [{"warm": {}, "made_with": FACTS | {"device": "cuda"}}]
    held_alike(
        [{"warm": {}, "made_with": FACTS}], FACTS | {"device": "cpu"}, tmp_path
    )  # not said before there was a choice
    for sittings, facts in ((gpu, FACTS), ([{"warm": {}, "made_with": FACTS}], gpu[0]["made_with"])):
        with pytest.raises(SystemExit, match="'device'"):
            held_alike(sittings, facts, tmp_path)

    parser = argparse.ArgumentParser()
    on_device(parser)
    parser.add_argument("--runs", type=Path, default=tmp_path / "qa")
    parser.add_argument("--output", type=Path, default=tmp_path / "qa.json")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit):
        placed(parser, parser.parse_args(["--device", "cuda"]))
    assert "torch sees no GPU" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for given, runs, output in (
        ([], "qa", "qa.json"),
        (["--device", "cuda"], "qa_gpu", "qa_gpu.json"),
        (["--device", "cuda", "--runs", str(tmp_path / "own")], "own", "qa_gpu.json"),
    ):
        args = parser.parse_args(given)
        placed(parser, args)
        assert (args.runs.name, args.output.name) == (runs, output)


def test_a_run_without_all_its_answers_is_made_again_and_one_without_a_start_is_not_compared() -> None:
    asked, packed_runs = packed({"grpo": [{"seed": 0, "rows": answered([0.5] * 4, [0.0] * 4)}]})
    rows = packed_runs["grpo"]
    made = {
        "warm": {},
        "trainings": {"grpo": [{"seed": 0}]},
        "asked": {"held_out": asked},
        "rows": {"held_out": {"grpo": rows}, "musique": {}},
    }
    assert whole([made], ("held_out", "musique")) == set() and whole([made], ("held_out",)) == {("grpo", 0)}
    found = figures(
        *pooled([{**made, "rows": {"held_out": {"grpo": rows, "tool_call": rows}}}, made], "held_out"), "tool_call", "x"
    )
    assert found["grpo"]["seeds"] == 2 and found["grpo"]["seeds_less_start"] == 1
    assert "f1_less_start" not in figures(*pooled([made], "held_out"), "tool_call", "x")["grpo"]


def test_the_plan_adds_up() -> None:
    from benchmarks.studies.smollm2_qa_plan import Hours, told

    arms = {"grpo": Hours(40, 0.5, 1.0, 0.0), "judge": Hours(40, 0.5, 1.0, 0.25)}
    said = told(arms, {"grpo": 2, "judge": 1}, {"warm/tool_call": 1.0, "evaluation/tool_call": 0.5})
    assert "2 x  1.50 h" in said[0] and "1 x  1.75 h" in said[1]
    assert not any("one draw" in line for line in said)
    (filled, *_) = told({"filled": Hours(40, 0.5, 1.0, 0.0, draws=7)}, {"filled": 2}, {"evaluation/tool_call": 0.5})
    assert filled.endswith("judging 0.00; of one draw: up to 7 times as much is played)")
    assert "7.75 h" in said[-1]  # 2 x 1.5 + 1.75 + 1 + 0.5, and an evaluation of each of the three runs
