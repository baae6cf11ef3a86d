"""The study of SmolLM2 on multi-hop questions: its chains, parts, demonstrations and figures, on a small corpus of our own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies import smollm2_qa_data as data
from benchmarks.studies.smollm2 import seeds_in, training
from benchmarks.studies.smollm2_qa import ARMS, SEEDS, Study, collect
from benchmarks.studies.smollm2_qa_demos import METHODS, Direct, MultiHop, NaiveRag, demonstrations, drawn, queries
from benchmarks.studies.smollm2_qa_figures import difference, figures, plot, ratio, table
from benchmarks.studies.smollm2_qa_held_out import row
from benchmarks.studies.smollm2_qa_sittings import held_alike, none_lost, pooled, trained, whole
from reagent.env.task import Task, write_tasks
from reagent.rollout.episode import Episode, Turn
from reagent.tasks.reading import Passage, write_passages
from rrm.trajectory import Trajectory

FACTS = {"epochs": 1}
PASSAGES = [
    Passage("The Salt Road (1931 film)", "The Salt Road is a silent film of 1931, directed by Orla Venn."),
    Passage("Orla Venn", "Orla Venn was a director. She was born in Tarsholm and lived by the sea."),
    Passage("Kiln Hill", "Kiln Hill is a hill of 412 metres, north of Tarsholm."),
    Passage("Moss Rise", "Moss Rise is a hill of 398 metres."),
    Passage("Bram Okker", "Bram Okker, a potter, founded the school at Kiln Hill in 1902."),
    Passage("Harbour Lights", "Harbour Lights is a novel about a lamp keeper."),
    *(
        Passage(f"Village {n}", f"Village {n} lies by a lake and has a mill, a well and {n + 3} barns.")
        for n in range(20)
    ),
]
BRIDGE = data.task_of(
    "Where was the director of The Salt Road born?", "Tarsholm", "2wiki", ["The Salt Road (1931 film)", "Orla Venn"]
)
COMPARISON = data.task_of(
    "Which is higher, Kiln Hill or Moss Rise?", "Kiln Hill", "hotpotqa", ["Kiln Hill", "Moss Rise"]
)
CLOSED = data.task_of("Are Kiln Hill and Moss Rise both hills?", "yes", "hotpotqa", ["Kiln Hill", "Moss Rise"])
EARLY = data.task_of("Who directed The Salt Road?", "Orla Venn", "hotpotqa", ["The Salt Road (1931 film)", "Orla Venn"])
UNNAMED = data.task_of("Which potter founded a school in 1902?", "Bram Okker", "hotpotqa", ["Bram Okker", "Kiln Hill"])
OUT_OF_REACH = data.task_of(
    "Who keeps the lamp in Harbour Lights?", "Ned Falk", "hotpotqa", ["Harbour Lights", "Ned Falk"]
)
TASKS = [BRIDGE, COMPARISON, CLOSED, EARLY, UNNAMED, OUT_OF_REACH]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("bm25s")
    pytest.importorskip("Stemmer")
    from reagent.tools.corpus import build_corpus

    folder = tmp_path_factory.mktemp("qa")
    write_passages(folder / "passages.jsonl", PASSAGES)
    build_corpus(folder / "passages.jsonl", folder / "corpus", b=data.B)
    return str(folder / "corpus")


# ---- words, chains, parts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "title", "said"),
    [
        ("Who made the salt ROAD's film?", "The Salt Road (1931 film)", "the salt ROAD"),
        ("Who made Salt Roads?", "Salt Road", None),
        ("The Salt Road (1931 Film) is whose?", "The Salt Road (1931 film)", "The Salt Road (1931 Film)"),
        ("Łódź or Orla  Venn?", "Orla Venn", "Orla  Venn"),
        ("anything", "(!)", None),
    ],
)
def test_a_title_is_said_in_the_texts_own_words(text: str, title: str, said: str | None) -> None:
    assert data.mention(text, title) == said


def test_an_answer_is_held_by_whole_words_alone() -> None:
    assert data.holds("born in New York, 1902.", "new york")
    assert not data.holds("born in New Yorkshire", "New York")
    assert not data.holds("York and New", "New York")
    assert not data.holds("anything", "?!")


def test_a_chain_leads_from_the_question_to_the_answer() -> None:
    titles = data.Titles(PASSAGES)
    assert titles.chain(BRIDGE.question, "Tarsholm") == BRIDGE.meta["supporting"]
    assert titles.chain("What is Orla Venn's place of birth?", "Tarsholm") == ["Orla Venn"]
    assert titles.chain(BRIDGE.question, "Paris") is None
    assert titles.chain(BRIDGE.question, "Tarsholm", common=[("the", "salt", "road")]) is None


def test_a_longer_title_hides_those_within_it() -> None:
    titles = data.Titles([Passage("Salt", ""), Passage("The Salt Road", ""), Passage("Road Map", "")])
    assert titles.named("the salt road map, and salt") == [("the", "salt", "road"), ("road", "map"), ("salt",)]


def test_comparisons_and_common_phrases_are_left_out() -> None:
    rows = [
        {"question": BRIDGE.question, "answer": "Tarsholm"},
        {"question": "Is The Salt Road by Orla Venn?", "answer": "yes"},
        {"question": "Which is older, The Salt Road or Orla Venn?", "answer": "Orla Venn"},
        {"question": "Where is Nowhere?", "answer": "Tarsholm"},
    ]
    assert [task.question for task in data.with_chains(rows, PASSAGES)] == [BRIDGE.question]
    many = [{"question": f"Where is number {n} of The Salt Road?", "answer": "Tarsholm"} for n in range(21)]
    assert len(data.with_chains(many[:20], PASSAGES)) == 20 and data.with_chains(many, PASSAGES) == []


def test_parts_share_no_question_and_do_not_hang_on_files() -> None:
    tasks = [data.task_of(f"Who lives in village {n}?", "Ada", "2wiki", []) for n in range(2000)]
    again = [data.task_of(f"WHO lives  in village {n}?", "Ada", "hotpotqa", []) for n in range(0, 2000, 7)]
    parts = data.parts_of([*tasks, *again])
    ids = {part: {task.question_id for task in found} for part, found in parts.items()}
    assert sum(map(len, ids.values())) == len(set.union(*ids.values())) == 2000
    assert sum(map(len, parts.values())) == 2000
    for part, share in data.SHARES.items():
        assert len(ids[part]) / 2000 == pytest.approx(share, abs=0.04)  # 3.6 standard errors
    other = data.parts_of([*again, *tasks[::-1]])
    assert {part: {task.question_id for task in found} for part, found in other.items()} == ids
    assert sum(data.SHARES.values()) == pytest.approx(1)


# ---- demonstrations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "asked"),
    [
        (BRIDGE, ["The Salt Road", "Orla Venn"]),
        (COMPARISON, ["Kiln Hill", "Moss Rise"]),
        (CLOSED, ["Kiln Hill", "Moss Rise"]),
        (EARLY, ["The Salt Road"]),  # the first passage holds the answer
        (UNNAMED, ["Which potter founded a school in 1902?"]),
        (OUT_OF_REACH, None),
    ],
)
def test_queries_are_what_a_careful_agent_could_know(corpus: str, task: Task, asked: list[str] | None) -> None:
    assert queries(MultiHop(corpus=corpus), task) == asked


def test_demonstrations_show_the_same_questions_by_every_method(corpus: str) -> None:
    shown = {method: list(demonstrations(TASKS, method, corpus)) for method in METHODS}
    for method in METHODS:
        assert [d.task for d in shown[method]] == [BRIDGE, COMPARISON, CLOSED, EARLY, UNNAMED]
        for demo in shown[method]:
            assert demo.messages[-1] == {"role": "assistant", "content": f"<answer>{demo.task.answer}</answer>"}
            assert demo.train_on == [message["role"] == "assistant" for message in demo.messages]
    assert [len(d.messages) for d in shown["direct"]] == [3] * 5
    assert [len(d.messages) for d in shown["tool_call"]] == [7, 7, 7, 5, 5]


def test_what_is_searched_and_answered_was_read_before(corpus: str) -> None:
    for demo in demonstrations(TASKS, "tool_call", corpus):
        read = ""
        for message in demo.messages:
            if message["role"] == "assistant":
                said = message["content"].split(">")[1].split("<")[0]
                assert data.holds(read, said) or said == "yes"
            read += message["content"] + "\n"


def test_an_episode_played_as_demonstrated_earns_the_outcome(corpus: str) -> None:
    env = MultiHop(corpus=corpus)
    (demo,) = demonstrations([BRIDGE], "tool_call", corpus)
    assert env.reset(BRIDGE) == demo.messages[:2]
    turns = [m["content"] for m in demo.messages if m["role"] == "assistant"]
    results = [asyncio.run(env.step(turn)) for turn in turns]
    assert [r.reward for r in results] == [0, 0, 0] and results[-1].outcome_reward == 1
    assert results[0].observations[0]["content"] == demo.messages[3]["content"]
    env.reset(BRIDGE)
    half = asyncio.run(env.step("<answer>old Tarsholm</answer>"))
    assert half.outcome_reward == pytest.approx(2 / 3) and not half.info["success"]  # P ½, R 1
    env.reset(BRIDGE)
    last = [asyncio.run(env.step(f"<search>village {n}</search>")) for n in range(3)][-1]
    assert last.truncated and last.outcome_reward == -0.1


def test_naive_rag_reads_what_two_searches_would_give(corpus: str) -> None:
    system, user = NaiveRag(corpus=corpus).reset(COMPARISON)
    assert "Kiln Hill is a hill of 412" in user["content"] and "Moss Rise is a hill of 398" in user["content"]
    assert user["content"].endswith(f"\n\n{COMPARISON.question}")
    assert "search(" not in system["content"] and "[3]" not in user["content"]
    assert Direct(corpus=corpus).reset(COMPARISON)[1]["content"] == COMPARISON.question


def test_nothing_of_the_answer_key_is_in_a_prompt(corpus: str) -> None:
    for env in (MultiHop(corpus=corpus), Direct(corpus=corpus)):
        assert "Tarsholm" not in json.dumps(env.reset(BRIDGE)) and "Orla" not in json.dumps(env.reset(BRIDGE))


def test_demonstrated_questions_are_drawn_by_seed() -> None:
    assert drawn(TASKS, 4, 1) == drawn(TASKS, None, 1)[:4] != drawn(TASKS, 4, 2)
    assert sorted(t.id for t in drawn(TASKS, None, 0)) == sorted(t.id for t in TASKS)


# ---- figures -----------------------------------------------------------------------------------------------------------


def answered(f1: Sequence[float], em: Sequence[float]) -> list[dict]:
    return [
        {"id": f"q{n:03d}", "source": "2wiki" if n % 2 else "hotpotqa", "f1": a, "em": b, "answer": "x" if a else None,
         "searches": 2, "malformed": 0, "tokens": 30}
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
    for name in ("seed10", "seed2", "seedling"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed2.begun.json").write_text("{}")
    assert seeds_in(tmp_path) == {2: tmp_path / "seed2", 10: tmp_path / "seed10"}
    assert seeds_in(tmp_path / "none") == {}


def test_runs_of_other_questions_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="same questions"):
        table([answered([1.0], [1.0]), answered([1.0, 0.0], [1.0, 0.0])], "f1")


def test_a_row_says_what_was_answered() -> None:
    def episode(answer: str | None) -> Episode:
        turns = [
            Turn([5, 6], [-1.0, -1.0], [7], info={"tool_calls": 1, "malformed": 0}),
            Turn([5], [-1.0], [], info={"tool_calls": 0, "malformed": 0, "answer": answer}),
        ]
        trajectory = Trajectory(id="t", task=BRIDGE.question, messages=[])
        return Episode(BRIDGE, [1], turns, 0.0, "finished", None, False, BRIDGE.id, "initial", trajectory)

    near, none = row(episode("in Tarsholm")), row(episode(None))
    assert (near["em"], near["f1"], near["searches"], near["tokens"]) == (0.0, 0.6667, 1, 3)
    assert (none["em"], none["f1"], none["answer"]) == (0.0, 0.0, None)
    assert row(episode("the Tarsholm!"))["em"] == 1.0


# ---- arms --------------------------------------------------------------------------------------------------------------


def study(folder: Path) -> Study:
    folder.mkdir(exist_ok=True)
    for part in ("train", "held_out"):
        write_tasks(folder / f"{part}.jsonl", TASKS[:3])
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
    own = ("feedback", "output_dir")
    for one, other in ((control, filled), (dealt, wide)):
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
    assert here["rows"]["held_out"]["judge"] == [{"seed": 0, "rows": rows}] and found["figures"]["musique"] == {}
    (one,) = trained(found)["judge"]
    assert (one["hours"], one["episodes"], one["update_seconds"]["total"]) == (0.5, 72, 61.0)
    assert one["reward"] == [0.0, 0.1, 0.2] and one["success"] == [None] * 3 and "score" not in one
    assert f"policy.base=runs/{tmp_path.name}/warm/tool_call" in one["options"]
    assert str(tmp_path) not in json.dumps(found, allow_nan=False)  # no path of a machine is recorded
    pytest.importorskip("matplotlib")
    plot(found["figures"]["held_out"], {"judge": [one["reward"]]}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5000


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
    again = collect(made_in("third", 0.2, 0.5, '{"losses": [2.0]}'), FACTS, both)
    assert again["figures"]["held_out"]["grpo"]["seeds"] == 2  # seed 0 was made again: it stands once
    assert again["figures"]["held_out"]["grpo"]["f1_by_seed"] == [0.4, 0.5]
    empty = study(tmp_path / "empty")
    assert collect(empty, FACTS, both)["sittings"] == both["sittings"]
    with pytest.raises(SystemExit, match="1 sittings that are not here: keep them with --keep"):
        none_lost(both["sittings"], [both["sittings"][1]], "tool_call", tmp_path / "record.json")
    none_lost(both["sittings"], again["sittings"], "tool_call", tmp_path / "record.json")
    held_alike(both["sittings"], FACTS, tmp_path / "record.json")
    with pytest.raises(SystemExit, match=r"made with \{'epochs': 1\}"):
        held_alike(both["sittings"], FACTS | {"epochs": 2}, tmp_path / "record.json")


def test_a_run_without_all_its_answers_is_made_again_and_one_without_a_start_is_not_compared() -> None:
    rows = [{"seed": 0, "rows": answered([0.5] * 4, [0.0] * 4)}]
    made = {"warm": {}, "trainings": {"grpo": [{"seed": 0}]}, "rows": {"held_out": {"grpo": rows}, "musique": {}}}
    assert whole([made], ("held_out", "musique")) == set() and whole([made], ("held_out",)) == {("grpo", 0)}
    found = figures(
        *pooled([{**made, "rows": {"held_out": {"grpo": rows, "tool_call": rows}}}, made], "held_out"), "tool_call", "x"
    )
    assert found["grpo"]["seeds"] == 2 and found["grpo"]["seeds_less_start"] == 1
    assert "f1_less_start" not in figures(*pooled([made], "held_out"), "tool_call", "x")["grpo"]


def test_the_real_questions_hold_what_the_study_promises() -> None:
    from benchmarks.studies.smollm2_qa import DATA

    if not DATA.is_dir():
        pytest.skip(f"no data sets at {DATA}")
    tasks, musique, passages = data.read(DATA)
    parts = data.parts_of(tasks)
    assert len(parts["held_out"]) >= data.HELD_OUT and len(parts["train"]) >= 200
    trained = {task.question_id for part in ("warm", "train") for task in parts[part]}
    assert not trained & {task.question_id for task in [*parts["held_out"], *musique]}
    titles = {passage.title for passage in passages}
    assert all(title in titles for task in tasks for title in task.meta["supporting"])


def test_the_plan_adds_up() -> None:
    from benchmarks.studies.smollm2_qa_plan import Hours, told

    arms = {"grpo": Hours(40, 0.5, 1.0, 0.0), "judge": Hours(40, 0.5, 1.0, 0.25)}
    said = told(arms, {"grpo": 2, "judge": 1}, {"warm/tool_call": 1.0, "evaluation/tool_call": 0.5})
    assert "2 x  1.50 h" in said[0] and "1 x  1.75 h" in said[1]
    assert not any("one draw" in line for line in said)
    (filled, *_) = told({"filled": Hours(40, 0.5, 1.0, 0.0, draws=7)}, {"filled": 2}, {"evaluation/tool_call": 0.5})
    assert filled.endswith("judging 0.00; of one draw: up to 7 times as much is played)")
    assert "7.75 h" in said[-1]  # 2 x 1.5 + 1.75 + 1 + 0.5, and an evaluation of each of the three runs
