"""The short scripts of examples/ run, small."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from reagent.lab.transcripts import make_transcripts
from rrm.trajectory import write_jsonl

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SHORT = ("judge_logs", "train_judge", "own_environment", "no_answer_key")
SMALL = ("max_updates=1", "rollout.tasks_per_update=2", "environment.train_tasks=4", "environment.eval_tasks=2")


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module, found under its name as `python examples/NAME.py` finds it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rows = make_transcripts(40, seed=3)
    write_jsonl(tmp_path / "runs.jsonl", [t for t, _ in rows])
    lines = (a.model_dump_json(exclude_none=True) + "\n" for _, a in rows)
    (tmp_path / "labels.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "runs.jsonl"


@pytest.mark.parametrize("name", SHORT)
def test_they_are_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_a_log_is_judged(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(runs.read_text().splitlines(keepends=True)[:3]) + "{broken\n")
    load("judge_logs", monkeypatch).main([str(few), "--model", "lab", "-n", "2"])
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("3 runs, 0 without a score") and "few.jsonl:4" in said[0]
    scores = [float(line.split()[0]) for line in said if line[:1].isdigit() and "  " in line]
    assert len(scores) == 2 and scores == sorted(scores)


def test_a_judge_is_trained(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [
        "data.generate=null",
        "sft.max_steps=1",
        "calibration.modes=[score]",
        "calibration.max_rows=8",
        "evaluation.max_rows=8",
    ]
    out = tmp_path / "out"
    words = [str(runs), "--annotations", str(tmp_path / "labels.jsonl"), "-o", str(out), *small]
    load("train_judge", monkeypatch).main(words)
    assert (out / "judge" / "judge.json").is_file()
    assert "outcome" in capsys.readouterr().out.splitlines()[-1]


def test_an_agent_is_trained_in_an_environment_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = load("own_environment", monkeypatch).main([*SMALL, f"output_dir={tmp_path / 'run'}"])
    assert summary["updates"] == 1 and (tmp_path / "run" / "policy").is_dir()


def test_an_agent_is_trained_without_an_answer_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [*SMALL, "feedback.score_mode=score", f"output_dir={tmp_path / 'run'}"]
    summary = load("no_answer_key", monkeypatch).main(small)
    assert summary["reward"] is None and summary["learned_reward"] is not None
    json.dumps(summary)
