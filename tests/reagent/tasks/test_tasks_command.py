"""`reagent tasks`: the list, a published file into tasks and passages, and errors that say what to do."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reagent.cli import main
from reagent.env.task import read_tasks
from reagent.tasks.environments import make_factory, make_tasks
from reagent.tasks.registry import TASKS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `reagent tasks`; (exit code, standard output, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reagent", "tasks", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, " ".join(captured.err.split())

    return run


def hotpot(path: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {
            "_id": f"q{i}", "question": f"Who built bridge {i}?", "answer": "Ana Büki", "level": level,
            "supporting_facts": [["Ana Büki", 0]],
            "context": [["Ana Büki", ["An engineer."]], [f"Bridge {i}", ["A bridge."]]],
        }
        for i, level in enumerate(("easy", "hard", "hard"))
    ]  # fmt: skip
    path.write_text(json.dumps(rows))
    return path


def test_the_list_names_each_with_metric_tools_licence_and_source(tasks: Run) -> None:
    code, out, _ = tasks()
    assert code == 0 and json.loads(out.splitlines()[-1]) == {"command": "tasks", "names": list(TASKS)}
    for text in ("HotpotQA", "exact match; F1", "search", "CC BY-SA 4.0", "hotpotqa.github.io", "256, 4096", *TASKS):
        assert text in out


def test_a_file_becomes_tasks_and_passages(tasks: Run, tmp_path: Path) -> None:
    source, out, passages = hotpot(tmp_path / "dev.json"), tmp_path / "tasks.jsonl", tmp_path / "passages.jsonl"
    code, summary, error = tasks(
        "hotpotqa", "--path", source, "-o", out, "--passages", passages, "--where", "level=hard"
    )
    assert code == 0, error
    assert json.loads(summary) == {
        "command": "tasks", "name": "hotpotqa", "source": str(source), "tasks": 2, "questions": 2, "with_answer": 2,
        "output": str(out), "passages": 4, "passages_output": str(passages),
    }  # fmt: skip
    assert [t.id for t in read_tasks(out)] == ["q1", "q2"]
    rows = [json.loads(line) for line in passages.read_text().splitlines()]
    assert [row["title"] for row in rows] == ["Ana Büki", "Bridge 0", "Bridge 1", "Bridge 2"]  # each once
    code, summary, _ = tasks("hotpotqa", "--path", out)
    assert code == 0 and json.loads(summary)["tasks"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hotpot"], "no benchmark 'hotpot'; there are hotpotqa, 2wiki, musique"),
        (["2wiki"], "2wiki is not read from the hub: give its file with --path"),
        (["--path", "x"], "--path is for one benchmark: name it"),
        (["hotpotqa", "--path", "gone.json"], "gone.json: cannot be read: No such file or directory"),
        (["hotpotqa", "--path", "DEV", "--where", "hops=2"], "where: no task has 'hops' in its meta"),
        (["hotpotqa", "--path", "DEV", "--where", "level"], "--where 'level' is not of the form key=value"),
        (["hotpotqa", "--path", "DEV", "--option", "aliases=x"], "hotpotqa has no option 'aliases'; it has: none"),
        (["hotpotqa", "--path", "DEV", "-o", "nowhere/x.jsonl"], "there is no folder nowhere"),
        (["hotpotqa", "--path", "DEV", "-o", "dev.json"], "-o dev.json is what is read, or written, besides"),
        (["hotpotqa", "--path", "DEV", "--passages", "dev.json"], "--passages dev.json is what is read"),
        (
            ["hotpotqa", "--path", "DEV", "-o", "x.jsonl", "--passages", "x.jsonl"],
            "--passages x.jsonl is what is read, or written",
        ),
        (["hotpotqa", "--path", "DEV", "--where", "level=ultra"], "no task has level=ultra; there are easy, hard"),
        (
            ["bamboogle", "--path", "BARE", "--passages", "p.jsonl"],
            "has no passages: bamboogle's questions come without",
        ),
    ],
)
def test_errors(tasks: Run, tmp_path, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"Question": "Who?", "Answer": "Ana"}\n')
    files = {"DEV": str(hotpot(tmp_path / "dev.json")), "BARE": str(bare)}
    code, out, error = tasks(*[files.get(a, a) for a in arguments])
    assert code == 2 and not out and error.startswith("error: ") and message in error and "Traceback" not in error


def test_a_file_without_answers_is_said(tasks: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "test.json"
    source.write_text('[{"_id": "q", "question": "Who?"}]')
    code, summary, _ = tasks("hotpotqa", "--path", source)
    assert code == 0 and json.loads(summary)["with_answer"] == 0
    assert "no task has an answer, so that nothing can be graded" in caplog.text


def test_the_guides_own_benchmark_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class that docs/tasks.md shows, from its text, by the name of its file."""
    guide = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")
    (tmp_path / "my_sums.py").write_text(guide.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "sums.csv").write_text("sum,result\n40 + 2,42\n1 + 1,2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [task] = make_tasks("my_sums:Sums", 1, 0, path=str(tmp_path / "sums.csv"), where={"digits": 6})
    env = make_factory("my_sums:Sums")()
    env.reset(task)
    assert asyncio.run(env.step("Answer: it is 42.0")).info["success"] is True
    assert all(f"`{name}`" in guide for name in TASKS)
