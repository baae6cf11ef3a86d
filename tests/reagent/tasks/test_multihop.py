"""HotpotQA, 2WikiMultihopQA, MuSiQue, Bamboogle: published formats, and exact match and F1 as their scripts count them.

Expected grades follow from the scripts' rules by hand (`test_official_values.py` has what the scripts gave): lower case, without ASCII punctuation and the articles a, an, the; F1 over
bags of words; yes, no and noanswer wholly right or wholly wrong (HotpotQA, 2Wiki); the best over aliases (2Wiki, MuSiQue).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reagent.env.graders import f1
from reagent.env.task import Task
from reagent.tasks.bamboogle import Bamboogle
from reagent.tasks.hotpotqa import HotpotQA
from reagent.tasks.musique import MuSiQue
from reagent.tasks.open_qa import NQ
from reagent.tasks.reading_comprehension import ReadingComprehension
from reagent.tasks.wikimultihop import WikiMultihop, read_aliases
from rrm.errors import ReadError


def hotpot_row(**changes: Any) -> dict[str, Any]:
    return {
        "_id": "5a1",
        "question": "Which river does the bridge that Ana Büki built cross?",
        "answer": "the Oltava",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Ana Büki", 0], ["Lenz bridge", 1], ["Lenz bridge", 0]],
        "context": [
            ["Ana Büki", ["Ana Büki was an engineer.", " She built the Lenz bridge."]],
            ["Lenz bridge", ["It opened in 1904.", " It crosses the Oltava."]],
        ],
    } | changes


def musique_row(**changes: Any) -> dict[str, Any]:
    return {
        "id": "3hop1__12_34_56",
        "question": "In which country is the source of the river that the Lenz bridge crosses?",
        "answer": "Austria",
        "answer_aliases": ["Republic of Austria", "AT"],
        "answerable": True,
        "question_decomposition": [],
        "paragraphs": [
            {"idx": 0, "title": "Oltava", "paragraph_text": "It rises in Austria.", "is_supporting": True},
            {"idx": 1, "title": "Danube", "paragraph_text": "A river.", "is_supporting": False},
        ],
    } | changes


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows))
    return path


def of(answer: str, *aliases: str) -> Task:
    return Task("t", "?", answer, meta={"aliases": list(aliases)})


# ---- metrics -----------------------------------------------------------------------------------------------------------

HOTPOT = [
    # reference, answer, EM, F1
    ("the Oltava", "Oltava.", 1.0, 1.0),
    ("The Who", "who", 1.0, 1.0),
    ("U.S. Route 22", "us route 22", 1.0, 1.0),
    ("Barack Obama", "President Barack Hussein Obama", 0.0, 2 * (2 / 4) * 1 / (2 / 4 + 1)),
    ("1,904", "1904", 1.0, 1.0),
    ("well-known", "well known", 0.0, 0.0),
    ("Galați", "galați", 1.0, 1.0),
    ("Galați", "Galati", 0.0, 0.0),
    ("“Oltava”", "Oltava", 0.0, 0.0),  # only ASCII punctuation goes
    ("Oltava", "", 0.0, 0.0),
    ("Oltava", "the", 0.0, 0.0),
    ("yes", "Yes.", 1.0, 1.0),
    ("yes", "yes, it does", 0.0, 0.0),
    ("no", "unknown", 0.0, 0.0),
    ("no", "no idea", 0.0, 0.0),
    ("no man is an island", "no", 0.0, 0.0),
    ("noanswer", "no answer", 0.0, 0.0),
    ("noanswer", "noanswer", 1.0, 1.0),
    ("no man is an island", "no man", 0.0, 2 * 1 * (2 / 4) / (1 + 2 / 4)),
    ("a a b", "b b", 0.0, 2 / 3),
]


@pytest.mark.parametrize(("reference", "answer", "em", "overlap"), HOTPOT)
@pytest.mark.parametrize("benchmark", [HotpotQA, WikiMultihop])
def test_answers_as_the_script_of_hotpotqa_grades_them(
    benchmark: type[HotpotQA], reference: str, answer: str, em: float, overlap: float
) -> None:
    assert benchmark.metrics["exact_match"](of(reference), answer) == em
    assert benchmark.metrics["f1"](of(reference), answer) == pytest.approx(overlap)


def test_musique_counts_words_of_yes_and_takes_the_best_alias() -> None:
    """SQuAD's F1, without HotpotQA's rule for yes and no."""
    assert MuSiQue.metrics["f1"] is f1
    assert f1(of("no"), "no idea") == pytest.approx(2 / 3)
    aliased = of("Austria", "Republic of Austria")
    assert MuSiQue.grader(aliased, "the Republic of Austria!") == 1.0
    assert f1(aliased, "the republic") == pytest.approx(
        2 * 1 * (1 / 3) / (1 + 1 / 3)
    )  # "republic" against "republic of austria"
    assert f1(aliased, "") == 0.0


def test_2wiki_takes_the_best_alias_rule_by_rule() -> None:
    assert WikiMultihop.metrics["f1"](of("United Kingdom", "UK", "British"), "british") == 1.0
    assert WikiMultihop.metrics["f1"](of("yes", "yes indeed"), "indeed") == pytest.approx(2 / 3)


# ---- formats -----------------------------------------------------------------------------------------------------------


def test_hotpotqa_as_published_and_as_copied_to_parquet(tmp_path: Path) -> None:
    copied = hotpot_row(
        supporting_facts={"title": ["Ana Büki", "Lenz bridge", "Lenz bridge"], "sent_id": [0, 1, 0]},
        context={
            "title": ["Ana Büki", "Lenz bridge"],
            "sentences": [
                ["Ana Büki was an engineer.", " She built the Lenz bridge."],
                ["It opened in 1904.", " It crosses the Oltava."],
            ],
        },
    )
    copied["id"] = copied.pop("_id")
    paths = [write(tmp_path / f"{n}.json", [row]) for n, row in enumerate((hotpot_row(), copied))]
    first, second = (HotpotQA.read(path) for path in paths)
    assert first == second
    task = first[0]
    assert (task.id, task.answer, task.references) == ("5a1", "the Oltava", ["the Oltava"])
    assert task.question_id == second[0].question_id != task.id
    assert task.meta == {
        "benchmark": "hotpotqa", "level": "hard", "type": "bridge", "supporting": ["Ana Büki", "Lenz bridge"],
    }  # fmt: skip
    for path in paths:
        assert [(p.title, p.text) for p in HotpotQA.read_passages(path)] == [
            ("Ana Büki", "Ana Büki was an engineer. She built the Lenz bridge."),
            ("Lenz bridge", "It opened in 1904. It crosses the Oltava."),
        ]


def test_a_test_set_without_answers_is_played_ungraded(tmp_path: Path) -> None:
    row = {key: value for key, value in hotpot_row().items() if key in ("_id", "question", "context")}
    [task] = HotpotQA.read(write(tmp_path / "test.json", [row]))
    assert task.answer is None and "supporting" not in task.meta
    assert not HotpotQA(tools=[]).is_graded(task)


def test_2wiki_with_aliases_and_with_json_in_texts(tmp_path: Path) -> None:
    row = hotpot_row(answer_id="Q1", evidences=[["a", "b", "c"], ["c", "d", "e"]], type="compositional")
    packed = row | {name: json.dumps(row[name]) for name in ("context", "supporting_facts", "evidences")}
    aliases = tmp_path / "id_aliases.json"
    aliases.write_text(
        '{"Q_id": "Q1", "aliases": ["Oltawa", "the Oltava"], "demonyms": ["Oltavan", "Oltawa"]}\n'
        '{"Q_id": "Q2", "aliases": [], "demonyms": []}\n'
    )
    assert read_aliases(aliases) == {"Q1": ["Oltawa", "the Oltava", "Oltavan"], "Q2": []}
    plain, unpacked = write(tmp_path / "a.json", [row]), write(tmp_path / "b.json", [packed])
    [task] = WikiMultihop.read(plain, aliases=aliases)
    assert WikiMultihop.read(unpacked, aliases=aliases) == [task]
    assert task.meta["aliases"] == ["Oltawa", "Oltavan"] and task.meta["hops"] == 2
    assert "aliases" not in WikiMultihop.read(plain)[0].meta
    assert len(list(WikiMultihop.read_passages(unpacked))) == 2
    with pytest.raises(ReadError, match="'context' is a text that is not JSON"):
        WikiMultihop.read(write(tmp_path / "c.json", [row | {"context": "[["}]))


def test_musique_leaves_out_what_cannot_be_answered(tmp_path: Path) -> None:
    rows = [
        musique_row(),
        musique_row(answerable=False, id="2hop__1_2"),
        musique_row(id="4hop2__1_2_3_4", question="And?"),
    ]
    first, second = MuSiQue.read(write(tmp_path / "ans.json", rows))
    assert first.meta == {
        "benchmark": "musique", "hops": 3, "supporting": ["Oltava"], "aliases": ["Republic of Austria", "AT"],
    }  # fmt: skip
    assert first.references == ["Austria", "Republic of Austria", "AT"] and second.meta["hops"] == 4
    assert [p.title for p in MuSiQue.read_passages(tmp_path / "ans.json")] == ["Oltava", "Danube"]
    with pytest.raises(ReadError, match="'paragraphs' must be a list of objects"):
        MuSiQue.read(write(tmp_path / "b.json", [musique_row(paragraphs=[{"title": "x"}])]))


def test_bamboogle_from_its_sheet(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text('Question,Answer\n"Who, then, was first?",Ana Büki\nWhen?,1904\n', encoding="utf-8")
    first, second = Bamboogle.read(path)
    assert (first.question, first.answer, first.meta["hops"]) == ("Who, then, was first?", "Ana Büki", 2)
    assert first.id == f"bamboogle-{first.question_id}" and second.id != first.id


def test_reading_shows_the_supporting_passages_among_distractors(tmp_path: Path) -> None:
    others = [[f"Other {k}", [f"Passage {k}.", "x" * 700]] for k in range(3)]
    path = write(tmp_path / "h.json", [hotpot_row(context=[*others, *hotpot_row()["context"]])])
    (task,) = ReadingComprehension.read(path, distractors=1)
    assert sorted(len(p) for p in task.meta["passages"])[-1] == 600
    assert {p.split(":")[0] for p in task.meta["passages"]} == {"Other 0", "Ana Büki", "Lenz bridge"}
    env = ReadingComprehension()
    system, user = env.reset(task)
    assert env.tools == [] and system["content"].startswith(
        "Answer the question from the passages. The answer is a name"
    )
    assert user["content"] == "\n\n".join([*task.meta["passages"], f"Question: {task.question}"])
    ended = asyncio.run(env.step("Answer: the river Oltava"))
    assert ended.outcome_reward == pytest.approx(2 / 3) and ended.info["success"]
    env.reset(task)
    assert not asyncio.run(env.step("a bridge that crosses the Oltava")).info["success"]
    with pytest.raises(ReadError, match="no passages under 'context'"):
        ReadingComprehension.read(write(tmp_path / "bare.json", [hotpot_row(context=None)]))


def test_open_questions_take_any_golden_answer(tmp_path: Path) -> None:
    row = {"id": "test_0", "question": "Who built the Lenz bridge?", "golden_answers": ["Ana Büki", "A. Büki"]}
    mixed = [
        row | {"data_source": source} for source in ("nq", "hotpotqa")
    ]  # Search-R1's file: both sets begin with this id
    [task], both = NQ.read(write(tmp_path / "test.json", [row])), NQ.read(write(tmp_path / "mixed.json", mixed))
    assert (task.id, task.references) == ("test_0", ["Ana Büki", "A. Büki"])
    assert [NQ.grader(task, answer) for answer in ("a. büki", "ana buki")] == [1.0, 0.0]
    assert [(t.id, t.meta["set"]) for t in both] == [("nq-test_0", "nq"), ("hotpotqa-test_0", "hotpotqa")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (hotpot_row(question="  "), "no text under 'question'"),
        (hotpot_row(_id=["5a1"]), "not a task: `id` must be text"),
        (hotpot_row(supporting_facts="x"), "'supporting_facts' must be a list of pairs"),
        (hotpot_row(answer=["x"]), "no text under 'answer'"),
    ],
)
def test_rows_of_another_form_say_which(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ReadError, match=rf"x\.json:2: .*{message}"):
        HotpotQA.read(write(tmp_path / "x.json", [hotpot_row(), row]))


def test_a_row_without_an_id_gets_that_of_its_question(tmp_path: Path) -> None:
    row = {"question": "Which  River?", "answer": "Oltava"}
    [task] = HotpotQA.read(write(tmp_path / "x.json", [row]))
    [again] = HotpotQA.read(write(tmp_path / "y.json", [row | {"question": "which river?"}]))
    assert task.id == again.id == f"hotpotqa-{task.question_id}"
    twice = HotpotQA.read(write(tmp_path / "z.json", [row, row | {"answer": "the Oltava"}, row]))
    assert [t.id.partition("#")[2] for t in twice] == ["", "2", "3"] and len({t.question_id for t in twice}) == 1


def test_two_tasks_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="a second task with the id '5a1'"):
        HotpotQA.read(write(tmp_path / "x.json", [hotpot_row(), hotpot_row(question="Another?")]))


# ---- the published files themselves -----------------------------------------------------------------------------------


def test_real_files(shared_data: Path) -> None:
    hotpot = HotpotQA.read(shared_data / "qa/hotpotqa/train_500_distractor.json.gz")
    assert len(hotpot) == 500 and all(len(task.meta["supporting"]) == 2 for task in hotpot)
    assert {task.meta["type"] for task in hotpot} == {"bridge", "comparison"}
    titles = {p.title for p in HotpotQA.read_passages(shared_data / "qa/hotpotqa/train_500_distractor.json.gz")}
    assert all(set(task.meta["supporting"]) <= titles for task in hotpot)
    musique = MuSiQue.read(shared_data / "qa/musique/hipporag_musique_train_100.json.gz")
    assert len(musique) == 100 and {task.meta["hops"] for task in musique} == {2, 3, 4}
    assert len(list(MuSiQue.read_passages(shared_data / "qa/musique/hipporag_musique_train_100.json.gz"))) == 1890
    wiki = WikiMultihop.read(shared_data / "qa/2wiki/dev_questions_touching_corpus.json.gz")
    assert len(wiki) == 1824 == len({task.question_id for task in wiki})
    for benchmark, tasks in ((HotpotQA, hotpot), (MuSiQue, musique), (WikiMultihop, wiki)):
        env = benchmark(tools=[])
        assert all(env.grade(task, task.answer or "") == 1.0 for task in tasks)
        assert all(benchmark.metrics["f1"](task, task.answer or "") == 1.0 for task in tasks)
