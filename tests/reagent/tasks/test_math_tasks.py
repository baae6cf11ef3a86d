r"""GSM8K, MATH-500, AIME: published formats, the answer behind `####`, and the last `\boxed{}` as math-verify compares it."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from reagent.env.graders import numeric
from reagent.env.task import Task
from reagent.tasks.aime import Aime24, Aime25
from reagent.tasks.boxed import MathWorker, boxed_equal, last_boxed, same_answer
from reagent.tasks.gsm8k import GSM8K
from reagent.tasks.math500 import Math500
from rrm.errors import ConfigError, MissingExtra, ReadError


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def of(answer: str, *aliases: str) -> Task:
    return Task("t", "?", answer, meta={"aliases": list(aliases)})


# ---- GSM8K -------------------------------------------------------------------------------------------------------------


def test_gsm8k_takes_what_stands_behind_the_marks(tmp_path: Path) -> None:
    solution = (
        "She packs 12*3-4=<<12*3-4=32>>32 boxes.\nHalf of 2500 is <<2500/2=1250>>1,250.\nIt is <<-3+5=2>>2.\n#### 1,250"
    )
    [task] = GSM8K.read(write(tmp_path / "t.jsonl", [{"question": "How many?", "answer": solution}]))
    assert (task.answer, task.meta["steps"], task.meta["operations"]) == ("1250", 3, 4)
    for wrong in ("It is 5.", "#### ", "####\nnothing", "#### 4\nand more"):
        with pytest.raises(ReadError, match=r"w\.jsonl:1: 'answer' has no line"):
            GSM8K.read(write(tmp_path / "w.jsonl", [{"question": "?", "answer": wrong}]))
    for wrong in ("two", "1/2", "50%", "1.250,50", "1,25", "-", "3."):  # what no number is equal to, or another one
        with pytest.raises(ReadError, match=r"w\.jsonl:1: 'answer' ends with '#### .*', which is no number"):
            GSM8K.read(write(tmp_path / "w.jsonl", [{"question": "?", "answer": f"#### {wrong}"}]))
    right = [{"question": f"{n}?", "answer": f"#### {n}"} for n in ("18", "-3", "$1,200", "70000", "0.5", ".5", "-$2")]
    tasks = GSM8K.read(write(tmp_path / "r.jsonl", right))
    assert all(numeric(task, task.answer or "") == 1.0 for task in tasks) and len(tasks) == len(right)


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("1250", 1.0), ("$1,250.00 in all", 1.0), ("#### 1250", 1.0), ("1,250 apples", 1.0), ("first 3, then 1250", 1.0),
        ("1250 or 1251", 0.0), ("-1250", 0.0), ("twelve hundred and fifty", 0.0), ("", 0.0), ("unknown", 0.0),
    ],
)  # fmt: skip
def test_gsm8k_counts_the_last_number(answer: str, grade: float) -> None:
    assert GSM8K.grader(of("1250"), answer) == grade


def test_the_real_gsm8k(shared_data: Path) -> None:
    test = GSM8K.read(shared_data / "gsm8k/test.jsonl.gz")
    assert len(test) == 1319 and all(numeric(task, task.answer or "") == 1.0 for task in test)
    few = GSM8K.make_tasks(100, 0, path=str(shared_data / "gsm8k/train.jsonl.gz"), where={"operations": [1, 2]})
    assert {task.meta["operations"] for task in few} <= {1, 2}
    assert not {task.question_id for task in few} & {task.question_id for task in test}


# ---- the last box ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1}, no: \boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"so \fbox{ 3 }.", "3"), (r"\boxed 5 apples", "5"),
        (r"$\boxed 3.5$.", "3.5"), (r"\boxed{\{1, 2\}} holds", r"\{1, 2\}"), (r"\boxed {x}", "x"),
        (r"\boxed{1} and \boxed{2", ""), (r"\boxed{}", ""), ("42", None), (r"\boxedness{4}", None), (r"$\boxed5$", "5"),
    ],
)  # fmt: skip
def test_the_last_box(text: str, box: str | None) -> None:
    assert last_boxed(text) == box


@pytest.fixture(scope="module")
def math_verify() -> None:
    pytest.importorskip("math_verify", reason="math-verify (the extra `tasks`) is not installed")


@pytest.mark.parametrize(
    ("reference", "answer", "grade"),
    [
        (r"\frac{1}{2}", r"It is \boxed{0.5}", 1.0), (r"\frac{1}{2}", r"\boxed{\frac{1}{2}} or rather \boxed{2}", 0.0),
        (r"\frac{1}{2}", r"\boxed{2} or rather \boxed{\tfrac12}", 1.0), (r"3\sqrt{2}", r"\boxed{\sqrt{18}}", 1.0),
        (r"x^2+2x+1", r"\boxed{(x+1)^2}", 1.0), ("p - q", r"\boxed{q - p}", 0.0),
        (r"\left(3, \frac{\pi}{2}\right)", r"\boxed{(3,\pi/2)}", 1.0), ("[1,2)", r"\boxed{(1,2)}", 0.0),
        (r"\text{(C)}", r"\boxed{C}", 1.0), (r"\text{(C)}", r"\boxed{B}", 0.0), (r"90^\circ", r"\boxed{90}", 1.0),
        ("5", r"\boxed{5\text{ cm}}", 1.0), (r"10\%", r"\boxed{10}", 1.0), (r"\$18.90", r"\boxed{18.90}", 1.0),
        ("18", r"\boxed{18\$}", 1.0), ("18", "$18$", 1.0), ("5", "5.", 1.0), ("0.5", "1/2.", 1.0),
        ("1000", "**1,000.**", 1.0), ("5", "x = 5.", 1.0), ("5", "5.1", 0.0), ("10080", r"\boxed{10{,}080}", 1.0),
        ("4", r"\boxed{x = 4}", 1.0), ("73", "073", 1.0), ("2", r"\boxed{2", 0.0), ("2", "", 0.0), ("2", "no", 0.0),
        ("2", "unknown", 0.0), ("2", "1" * 3000, 0.0), (r"\text{Ana}", r"\boxed{\text{ana}}", 1.0),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("math_verify")
def test_answers_as_math_verify_compares_them(reference: str, answer: str, grade: float) -> None:
    assert boxed_equal(of(reference), answer) == grade


@pytest.mark.usefixtures("math_verify")
def test_what_never_ends_is_wrong_and_the_next_answer_is_compared(caplog: pytest.LogCaptureFixture) -> None:
    worker = MathWorker(timeout_s=1.0)
    try:
        with caplog.at_level(logging.WARNING):
            assert not worker.equal("6", "9^{9^{9^{9}}}")
        assert "could not be compared within its limits" in caplog.text
        assert worker.equal("6", "2+4") and not worker.equal("6", "2+5")
    finally:
        worker.close()


@pytest.mark.usefixtures("math_verify")
def test_an_answer_is_not_run(tmp_path: Path) -> None:
    """sympy's reader of expressions ends in `eval`; answers are read as LaTeX alone."""
    touched = tmp_path / "touched"
    code = f"open('{touched}','w')"
    for answer in (code, rf"\boxed{{{code}}}", rf"$ {code} $", rf"\boxed{{1}} + {code}", f"(1+2)*{code}"):
        assert boxed_equal(of("6"), answer) == 0.0
    assert not touched.exists()


@pytest.mark.usefixtures("math_verify")
def test_threads_take_turns_and_a_reference_that_means_nothing_is_an_error() -> None:
    results: dict[int, bool] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: same_answer(str(n), f"{n + 1}-1")})) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == dict.fromkeys(range(8), True)
    with pytest.raises(ValueError, match="math-verify reads nothing in the reference"):
        same_answer("", "2")


def test_without_math_verify_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "math_verify", None)
    with pytest.raises(MissingExtra, match=r"agent-rrm\[tasks\]"):
        MathWorker().equal("1/2", "0.5")


# ---- MATH-500 and AIME -------------------------------------------------------------------------------------------------


def test_math500(tmp_path: Path) -> None:
    row = {
        "problem": "What is half of one?", "solution": r"It is $\boxed{\frac12}$.", "answer": r"\frac{1}{2}",
        "subject": "Prealgebra", "level": 1, "unique_id": "test/prealgebra/1.json",
    }  # fmt: skip
    [task] = Math500.read(write(tmp_path / "test.jsonl", [row]))
    assert (task.id, task.answer) == ("test/prealgebra/1.json", r"\frac{1}{2}")
    assert task.meta == {"benchmark": "math500", "subject": "Prealgebra", "level": 1}


def test_aime_in_its_copies(tmp_path: Path) -> None:
    rows = [
        {"id": 60, "problem": "Find it.", "solution": "…", "answer": "033", "url": "…", "year": "2024"},
        {"ID": "2024-II-4", "Problem": "Find that.", "Answer": 204},
    ]
    first, second = Aime24.read(write(tmp_path / "24.jsonl", rows))
    assert [(t.id, t.answer) for t in (first, second)] == [("aime24-60", "33"), ("aime24-2024-II-4", "204")]
    path = write(tmp_path / "25.jsonl", [{"question": "Find it too.", "answer": "70"}])
    assert Aime25.read(path)[0].meta == {"benchmark": "aime25"}
    assert boxed_equal(first, r"\boxed{33}") == 1.0 and boxed_equal(first, r"\boxed{034}") == 0.0
    degrees = [
        {"question": f"Find {n}.", "answer": written}
        for n, written in enumerate((r"336^\circ", r"$336^{\circ}$", "336°"))
    ]
    # opencompass/AIME2025, II-5
    assert {t.answer for t in Aime25.read(write(tmp_path / "d.jsonl", degrees))} == {"336"}
    with pytest.raises(ReadError, match="a whole number from 0 to 999, not '1000'"):
        Aime25.read(write(tmp_path / "w.jsonl", [{"question": "?", "answer": "1000"}]))


def test_a_math_set_has_no_training_half_of_its_own() -> None:
    with pytest.raises(ConfigError, match="math500 has no train set of its own on the hub: give the file"):
        Math500.make_tasks(1, 0)
