"""The study of SmolLM2 on multi-hop questions: its chains, parts, demonstrations and what is recorded of an answer, on a small corpus of our own."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks.studies import smollm2_qa_data as data
from benchmarks.studies.smollm2_qa_demos import METHODS, Direct, MultiHop, NaiveRag, demonstrations, drawn, queries
from benchmarks.studies.smollm2_qa_held_out import row
from reagent.env.task import Task
from reagent.rollout.episode import Episode, Turn
from reagent.tasks.reading import GivenPassage, write_passages
from rrm.data.trajectory import Trajectory

PASSAGES = [
    GivenPassage("The Salt Road (1931 film)", "The Salt Road is a silent film of 1931, directed by Orla Venn."),
    GivenPassage("Orla Venn", "Orla Venn was a director. She was born in Tarsholm and lived by the sea."),
    GivenPassage("Kiln Hill", "Kiln Hill is a hill of 412 metres, north of Tarsholm."),
    GivenPassage("Moss Rise", "Moss Rise is a hill of 398 metres."),
    GivenPassage("Bram Okker", "Bram Okker, a potter, founded the school at Kiln Hill in 1902."),
    GivenPassage("Harbour Lights", "Harbour Lights is a novel about a lamp keeper."),
    *(
        GivenPassage(f"Village {n}", f"Village {n} lies by a lake and has a mill, a well and {n + 3} barns.")
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
    titles = data.Titles([GivenPassage("Salt", ""), GivenPassage("The Salt Road", ""), GivenPassage("Road Map", "")])
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
