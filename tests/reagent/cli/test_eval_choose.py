"""The choosing options of `reagent eval`, as a user meets them."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reagent.cli import main
from rrm.data.trajectory import Message, Trajectory, read_canonical, write_jsonl


@pytest.fixture
def reagent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs `reagent` with arguments in this process; (exit code, the JSON line, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["reagent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), json.loads(captured.out or "{}"), " ".join(captured.err.split())

    return run


def test_an_evaluation_chooses_and_marks_its_transcripts(reagent, base, tmp_path) -> None:
    small = [
        "environment.eval_tasks=3", "environment.eval={hops: 1}", "rollout.max_turns=2", "rollout.max_new_tokens=8",
    ]  # fmt: skip
    many = [
        "eval.samples=2", "eval.temperature=1.0", "--policy", base, "--choose", "majority,longest", "--choose",
        "oracle",
    ]  # fmt: skip
    figures, runs = tmp_path / "figures.json", tmp_path / "runs.jsonl"
    code, summary, error = reagent("eval", *small, *many, "-o", figures, "--transcripts", runs)
    assert code == 0, error
    assert {*summary["choose"]["success"]} == {"majority", "longest", "oracle"} and "chosen" not in summary["choose"]
    assert len(json.loads(figures.read_text())["choose"]["chosen"]) == 3
    assert sum("longest" in t.meta["chosen_by"] for t in read_canonical(runs)) == 3
    code, _, error = reagent("eval", *small, "--policy", base, "--retries", "1")
    assert code == 2 and "give --choose judge with it" in error


def test_transcripts_are_chosen_from_under_this_name_as_well(reagent, tmp_path) -> None:
    rows = [
        Trajectory(
            id=f"{q}/{k}",
            question_id=q,
            messages=[Message(role="user", content=q), Message(role="assistant", content="a" * (k + 1))],
        )
        for q in "pq"
        for k in range(3)
    ]
    write_jsonl(tmp_path / "runs.jsonl", rows)
    chosen = tmp_path / "chosen.jsonl"
    code, summary, error = reagent("choose", tmp_path / "runs.jsonl", "--by", "longest", "-o", chosen)
    assert code == 0, error
    assert (summary["questions"], summary["attempts"]) == (2, 6)
    assert [t.id for t in read_canonical(chosen)] == ["p/2", "q/2"]
    assert import_module("reagent.cli.choose_cmd").command is import_module("rrm.cli.choose_cmd").command
