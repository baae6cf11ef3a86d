"""The choosing options of `reagent eval`, as a user meets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from reagent.cli import main
from rrm.trajectory import read_canonical


@pytest.fixture
def reagent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs `reagent` with arguments in this process; (exit code, the JSON line, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["reagent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return int(stopped.value.code or 0), json.loads(said.out or "{}"), " ".join(said.err.split())

    return run


def test_an_evaluation_chooses_and_marks_its_transcripts(reagent, base, tmp_path) -> None:
    small = [
        "environment.eval_tasks=3",
        "environment.eval={hops: 1}",
        "rollout.max_turns=2",
        "rollout.max_new_tokens=8",
    ]
    many = [
        "eval.samples=2",
        "eval.temperature=1.0",
        "--policy",
        base,
        "--choose",
        "majority,longest",
        "--choose",
        "oracle",
    ]
    figures, runs = tmp_path / "figures.json", tmp_path / "runs.jsonl"
    code, said, error = reagent("eval", *small, *many, "-o", figures, "--transcripts", runs)
    assert code == 0, error
    assert {*said["choose"]["success"]} == {"majority", "longest", "oracle"} and "chosen" not in said["choose"]
    assert len(json.loads(figures.read_text())["choose"]["chosen"]) == 3
    assert sum("longest" in t.meta["chosen_by"] for t in read_canonical(runs)) == 3
    code, _, error = reagent("eval", *small, "--policy", base, "--retries", "1")
    assert code == 2 and "give --choose judge with it" in error
