"""Tasks from files: drawn by seed, never in the file's order, and apart from the held-out ones."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from reagent.env.graders import exact_match, f1, last_number, numeric
from reagent.env.task import Task, read_tasks
from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.environments import make_environment, make_tasks
from rrm.data.text import squad_normalise
from rrm.errors import ConfigError, ReadError


def write(path: Path, count: int, name: str = "t") -> str:
    rows = [
        {"id": f"{name}{i}", "question": f"{name}: {i} + 1?", "answer": str(i + 1), "meta": {"level": i}}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_tasks_from_files_are_shuffled(tmp_path: Path) -> None:
    path = write(tmp_path / "sorted.jsonl", 200)
    first, again, other = (make_tasks("calculator", 50, seed, path=path) for seed in (1, 1, 2))
    assert first == again and [t.id for t in first] != [t.id for t in other]
    levels = [t.meta["level"] for t in first]
    assert levels != sorted(levels) and max(levels) > 100 and len(set(levels)) == 50
    assert {t.id for t in make_tasks("calculator", 200, 1, path=path)} == {f"t{i}" for i in range(200)}


def test_a_file_that_is_not_there_or_too_short_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"nowhere\.jsonl: tasks cannot be read: .*No such file"):
        make_tasks("calculator", 1, 0, path=str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(ConfigError, match=r"holds 3 tasks and 4 are wanted"):
        make_tasks("calculator", 4, 0, path=write(tmp_path / "few.jsonl", 3))
    with pytest.raises(ReadError, match="tasks cannot be read"):
        make_tasks("calculator", 1, 0, path=str(tmp_path))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ConfigError, match=r"empty\.jsonl holds no tasks"):
        make_tasks("calculator", 1, 0, path=str(tmp_path / "empty.jsonl"))
    few = tmp_path / "few.jsonl"
    assert make_tasks("calculator", 3, 0, path=few) == make_tasks("calculator", 3, 0, path=str(few))


def test_held_out_questions_that_are_trained_on_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, two = write(tmp_path / "one.jsonl", 20), write(tmp_path / "two.jsonl", 20, "u")
    for held_out, warned in ((two, False), (first, True)):
        caplog.clear()
        config = EnvironmentConfig(
            name="calculator", train={"path": first}, eval={"path": held_out}, train_tasks=20, eval_tasks=5
        )
        with caplog.at_level(logging.WARNING):
            make_environment(config, seed=0)
        assert ("5 of 5 held-out questions are trained on too" in caplog.text) == warned


def test_questions_without_ids_are_known_by_what_they_ask(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "eval").mkdir()
    train = tmp_path / "train" / "q.jsonl"
    train.write_text("".join(json.dumps({"question": f"{i} + 1?"}) + "\n" for i in range(20)))
    for name, first, warning in (("q", 20, ""), ("other", 15, "5 of 20 held-out questions")):
        held_out = tmp_path / "eval" / f"{name}.jsonl"
        rows = [{"question": f"{i}  +  1?", "answer": str(i + 1)} for i in range(first, first + 20)]
        held_out.write_text("".join(json.dumps(row) + "\n" for row in rows))
        caplog.clear()
        config = EnvironmentConfig(
            name="calculator", train={"path": str(train)}, eval={"path": str(held_out)}, train_tasks=20, eval_tasks=20
        )
        with caplog.at_level(logging.WARNING):
            make_environment(config, seed=0)
        assert warning in caplog.text and bool(warning) == ("trained on too" in caplog.text)


@pytest.mark.parametrize(
    ("row", "same"),
    [
        ({"question": "Wo ist das Cafe\u0301?", "answer": "paris "}, True),
        ({"question": "Wo ist das Caf\u00e9?", "answer": "Lyon"}, False),
        ({"question": "Wo ist das Caf\u00e9?", "answer": "Paris", "seed": 1}, False),
    ],
)
def test_a_question_in_another_spelling_is_the_same(row: dict[str, object], same: bool, tmp_path, caplog) -> None:
    """Letters and their accents may be written apart, and a hand-made file's answers differ in case."""
    train, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    train.write_text(json.dumps({"question": "Wo ist das Caf\u00e9?", "answer": "Paris"}))
    held_out.write_text(json.dumps(row))
    config = EnvironmentConfig(
        name="calculator", train={"path": str(train)}, eval={"path": str(held_out)}, train_tasks=1, eval_tasks=1
    )
    with caplog.at_level(logging.WARNING):
        make_environment(config, seed=0)
    assert ("trained on too" in caplog.text) == same


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"path": None}, "names one file of tasks, got None"),
        ({"path": ["a", "b"]}, r"names one file of tasks, got \['a', 'b'\]"),
        ({"paht": "a.jsonl"}, r"no make_tasks\(n, seed, split\); .*\{path: FILE\}\); given: paht"),
        ({"path": "a.jsonl", "n": 3}, "does not take 'n': set environment.train_tasks"),
    ],
)
def test_where_tasks_come_from_is_said_in_words(train: dict[str, object], message: str) -> None:
    config = EnvironmentConfig(name="reagent.env:ToolEnv", train=train, train_tasks=1, eval_tasks=1)
    with pytest.raises(ConfigError, match=message):
        make_environment(config, seed=0)


def test_a_repeated_id_is_said_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    rows = [{"id": "a", "question": "1?"}, {"id": "b", "question": "2?"}, {"id": "a", "question": "3?"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ReadError, match=r"twice\.jsonl.*3.*'a'.*line 1"):
        make_tasks("calculator", 3, 0, path=str(path))
    path.write_text('{"question": "1?"}\n{"id": "twice:1", "question": "2?"}\n')  # the name a task without one is given
    with pytest.raises(ReadError, match="line 1"):
        make_tasks("calculator", 2, 0, path=str(path))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"question": "?", "answer": ["x", "y"]}', r"`answer` must be text, .*got \[.*`aliases`"),
        ('{"question": null}', "`question` must be text, got null"),
        ('{"answer": "x"}', "`question` is missing"),
        ('{"prompt": "?"}', "unknown key 'prompt'; the keys are id, question, answer"),
        ('"Who?"', "a task is an object, .*Who"),
        ("Who?", "not a task, which is a JSON object on one line"),
        ('{"question": " "}', "`question` is empty"),
        ('{"question": "?", "answer": ""}', "`answer` is empty: leave it out"),
        ('{"question": "?", "seed": "x"}', "`seed` a whole number"),
        ('{"question": "?", "answer": "yes", "meta": {"aliases": "yes sir"}}', "`aliases` in `meta` must be a list"),
    ],
)
def test_a_line_that_is_no_task_is_said_in_words(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "first"}\n' + row + "\n")
    with pytest.raises(ReadError, match=rf"q\.jsonl:2: .*{message}"):
        read_tasks(path)


def test_a_file_as_others_write_it(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes('\ufeff{"question": "a\u2028b?", "question_id": 7}\r\n{"question": "c?"}\r\n'.encode())
    assert [(t.id, t.question, t.question_id) for t in read_tasks(path)] == [
        ("q:1", "a\u2028b?", "7"),
        ("q:2", "c?", None),
    ]


def test_a_blank_alias_makes_no_empty_answer_right(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"question": "Where?", "answer": "Paris", "meta": {"aliases": ["", " ", "Lutetia"]}}\n')
    (task,) = read_tasks(path)
    assert task.references == ["Paris", "Lutetia"]
    assert exact_match(task, "") == f1(task, "") == 0.0 and exact_match(task, "lutetia") == 1.0


def test_a_line_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"question": "a"}\n{"question": "b", "meta": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(ReadError, match=r"t\.jsonl:2: not a task: it is nested too deeply"):
        read_tasks(path)


def task(answer: str, *aliases: str) -> Task:
    return Task("t", "?", answer, meta={"aliases": list(aliases)})


def test_squad_normalisation() -> None:
    assert squad_normalise("The  Cat's  (old) Hat, an\tarticle") == "cats old hat article"
    assert exact_match(task("Kavomi"), " the kavomi. ") == 1.0
    assert exact_match(task("Kavomi"), "Kavomi Beltu") == 0.0
    assert exact_match(task("no"), "unknown") == 0.0
    assert exact_match(task("UK", "United Kingdom"), "the United Kingdom") == 1.0


def test_f1_by_hand() -> None:
    assert f1(task("Denver Broncos"), "Broncos of Denver") == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert f1(task("a a b"), "b b") == pytest.approx(2 / 3)  # the articles vanish: {b} against {b, b}
    assert f1(task("cat"), "dog") == 0.0
    assert f1(task("cat"), "") == 0.0
    assert f1(task("cat", "dog"), "dog") == 1.0


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234,567", 1234567), ("so 3 + 4 = 7 apples.", 7), ("$1,200.50 a year", 1200.5), ("-3", -3),
        ("\N{MINUS SIGN}3.0 °C", -3), ("50%", 50), (".5 kg", 0.5), ("2.5e3", 2500), ("12, 13", 13), ("3-2", 2),
        ("USD18", 18), ("a loss of -$18", -18), ("\N{MINUS SIGN}€.5", -0.5), ("$20-$18", 18),  # less, or up to
        ("(20)-$18", 18), ("[20]-$18", 18), ("5%-$18", 18), ("{5}-$18", 18), (r"-\$18", -18), (r"\boxed{-\$18}", -18),
        ("-US$18", -18), ("-R$18", -18), ("-\u20b918", -18), ("-USD18", -18), ("HUS-$18", 18), ("-$ 18", -18),
        ("-USD 18", -18), ("-\uffe518", -18), ("10\u20ac-\u20ac18", 18), ("5%-18%", 18), ("[3]-18", 18),
        (r"\text{a loss: }-18", -18), ("-$", None), ("It costs US$18.", 18), ("EUR1,250.50", 1250.5),
        ("USD-18", 18),  # a hyphen
        ("AUSD18", None),  # a name that ends so
        ("1.250,50", 50),  # two numbers: a point divides decimals
        ("v2", None), ("none", None),
    ],
)  # fmt: skip
def test_last_number(text: str, number: float | None) -> None:
    assert last_number(text) == number


def test_numeric() -> None:
    assert numeric(task("1234"), "It is 1,234.00 dollars") == 1.0
    assert numeric(task("1234"), "1233 or 1235") == 0.0
    assert numeric(task("0"), "0.0") == 1.0 and numeric(task("0"), "0.1") == 0.0
    assert numeric(task("3.3333333"), "3.33333333") == 1.0
    assert numeric(task("7"), "unknown") == 0.0
    with pytest.raises(ValueError, match="holds no number"):
        numeric(task("seven"), "7")


def test_tasks_from_a_file(tmp_path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(
        '{"question": "a?", "answer": "b", "meta": {"hops": 1}}\n\n{"id": "x", "question": "c?", "seed": 4}\n'
    )
    assert read_tasks(path) == [Task("q:1", "a?", "b", meta={"hops": 1}), Task("x", "c?", seed=4)]
    for line, reason in (
        ("{", "not a task"),
        ('{"answer": "b"}', "question"),
        ('{"question": "a", "anwser": 1}', "anwser"),
    ):
        path.write_text('{"question": "a?"}\n' + line)
        with pytest.raises(ReadError, match=rf"q\.jsonl:2: .*{reason}"):
            read_tasks(path)
    path.write_text('{"question": "a?", "answer": 7}')
    with pytest.raises(ReadError, match="`answer` must be text, or null"):
        read_tasks(path)


@pytest.mark.parametrize(
    ("reference", "answer", "grade"),
    [
        ("A", "The", 0.0), ("A", "an", 0.0), ("A", "", 0.0), ("A", "...", 0.0), ("A", "a", 1.0), ("A", "(A).", 1.0),
        ("B", "A", 0.0), ("a", "The", 0.0), ("The The", "the the", 1.0), ("+", "-", 0.0), ("+", " + ", 1.0),
        ("+", "the", 0.0), ("the cat", "cat", 1.0),
    ],
)  # fmt: skip
def test_multiple_choice_an_answer_of_articles_alone_is_not_every_article(reference, answer, grade) -> None:
    """SQuAD's normalisation leaves nothing of "A" and nothing of "The"; nothing equals nothing, but A is not The."""
    assert exact_match(task(reference), answer) == grade
    assert f1(task(reference), answer) == grade


def test_a_reference_of_articles_alone_is_compared_word_by_word() -> None:
    assert exact_match(task("The The"), "the") == 0.0 and f1(task("The The"), "the") == pytest.approx(2 / 3)
