"""GAIA: `metadata.jsonl` with files, and the leaderboard's scorer.

Expected grades follow from the scorer's rules by hand (`test_official_values.py` has what it gave): a reference that is a number by value, without `$`, `%` and commas in the
answer; one with a comma or semicolon as a list, punctuation kept; else letters alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reagent.env.task import Task
from reagent.tasks.gaia import Gaia, GaiaText, gaia_match
from rrm.errors import ConfigError, ReadError


@pytest.mark.parametrize(
    ("reference", "answer", "grade"),
    [
        ("17", "17", 1.0), ("17", "17.0", 1.0), ("17", "$17", 1.0), ("1700", "1,700", 1.0), ("17", "17%", 1.0),
        ("17", " 17 ", 1.0), ("17", "17 km", 0.0), ("17", "seventeen", 0.0), ("17", "", 0.0), ("0.269", ".269", 1.0),
        ("17", "16.9999", 0.0), ("3", "3, 4", 0.0), ("17", "unknown", 0.0),
        ("Ana Büki", "ana büki", 1.0), ("Ana Büki", "AnaBüki.", 1.0), ("Ana Büki", "Ana Buki", 0.0),
        ("seagull", "sea gull", 1.0), ("the Oltava", "Oltava", 0.0), ("Yes", "yes.", 1.0), ("No", "unknown", 0.0),
        ("Oltava", "", 0.0), ("(+)", "", 0.0), ("(+)", "( + )", 1.0), ("(+)", "(-)", 0.0),
        ("a, b", "A,B", 1.0), ("a, b", "b, a", 0.0), ("a, b", "a; b", 1.0), ("a, b", "a, b, c", 0.0), ("a, b", "a", 0.0),
        ("a, b", "a., b", 0.0), ("3; 4.5", "3.0;4.50", 1.0), ("3, x", "$3, x", 1.0), ("3, x", "three, x", 0.0),
        ("infinity", "no number", 0.0),
    ],
)  # fmt: skip
def test_answers_as_the_scorer_compares_them(reference: str, answer: str, grade: float) -> None:
    assert gaia_match(Task("t", "?", reference), answer) == grade


def rows() -> list[dict[str, Any]]:
    return [
        {
            "task_id": "a", "Question": "How many?", "Level": 1, "Final answer": "17", "file_name": "",
            "Annotator Metadata": {"Steps": "1. count"},
        },
        {"task_id": "b", "Question": "What does the table say?", "Level": "2", "Final answer": "x, y", "file_name": "b.xlsx"},
        {"task_id": "c", "Question": "What does the table say?", "Level": 3, "Final answer": "?", "file_name": "c.csv"},
    ]  # fmt: skip


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_metadata_with_files(tmp_path: Path) -> None:
    path = write(tmp_path / "metadata.jsonl", rows())
    tasks = Gaia.read(path)
    assert [t.id for t in tasks] == [t.question_id for t in tasks] == ["a", "b", "c"]  # two ask alike of other files
    assert [t.answer for t in tasks] == ["17", "x, y", None]
    assert [t.meta["level"] for t in tasks] == [1, 2, 3]
    assert [t.id for t in GaiaText.read(path)] == ["a"]
    env = Gaia(tools=[])
    assert env.question(tasks[0]) == "How many?"
    assert env.question(tasks[1]).endswith("Files that belong to the question: b.xlsx")
    assert "count" not in env.question(tasks[0]) and env.is_graded(tasks[1]) and not env.is_graded(tasks[2])
    with pytest.raises(ReadError, match="'Level' must be 1, 2 or 3"):
        Gaia.read(write(tmp_path / "w.jsonl", [rows()[0] | {"Level": 4}]))
    for name in ("../../etc/passwd", "/etc/passwd", "..", "a\\b"):
        with pytest.raises(ReadError, match="'file_name' is to be the name of a file beside the others"):
            Gaia.read(write(tmp_path / "w.jsonl", [rows()[0] | {"file_name": name}]))


def test_the_folder_of_files_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gaia: files: there is no folder"):
        Gaia(files=str(tmp_path / "gone"), tools=[])
    Gaia(files=str(tmp_path), tools=[])


def test_a_file_that_is_not_there_is_known_before_play(tmp_path: Path) -> None:
    tasks, files = Gaia.read(write(tmp_path / "metadata.jsonl", rows())), tmp_path / "files"
    files.mkdir()
    env = Gaia(files=str(files), tools=["read_file"])
    env.check_task(tasks[0])
    with pytest.raises(ValueError, match=r"task 'b': its file 'b\.xlsx' is not in .*files"):
        env.check_task(tasks[1])
    (files / "b.xlsx").symlink_to(tmp_path / "metadata.jsonl")  # out of the folder: read_file would not read it
    with pytest.raises(ValueError, match="is not in"):
        env.check_task(tasks[1])
    (files / "b.xlsx").unlink()
    (files / "b.xlsx").write_bytes(b"")
    env.check_task(tasks[1])
    Gaia(tools=[]).check_task(tasks[1])  # nobody reads files


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv", "sub/0000.parquet", "tasks.JSONL.gz"])
def test_the_agent_is_not_given_a_folder_with_the_answers(tmp_path: Path, name: str) -> None:
    (tmp_path / "b.xlsx").write_bytes(b"")
    (tmp_path / "c.jsonld").write_text("{}")
    Gaia(files=str(tmp_path), tools=["read_file"])
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    for options in ({"files": str(tmp_path)}, {"tool_options": {"read_file": {"root": str(tmp_path)}}}):
        with pytest.raises(ConfigError, match=f"would read .*{Path(name).name}, which may hold the answers: copy"):
            Gaia(tools=["read_file"], **options)
    Gaia(files=str(tmp_path), tools=[])  # nobody reads it
