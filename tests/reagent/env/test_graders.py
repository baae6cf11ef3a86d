"""Graders and tasks."""

from __future__ import annotations

import pytest

from reagent.env.graders import exact_match, f1, last_number, numeric
from reagent.env.task import Task, read_tasks
from rrm.data.text import squad_normalise
from rrm.errors import ReadError


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
