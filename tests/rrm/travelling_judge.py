"""A small judge, for the tests of how a judge travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.transcripts import make_transcripts
from rrm.data.questions import question_keys
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings

ROWS = [t for t, _ in make_transcripts(4, seed=3)]
PLATT = Platt(a=2.0, b=-0.5, rows=10)
SETTINGS = JudgeSettings(
    name="mine",
    transcript_tokens=250,
    max_new_tokens=24,
    modes=["score", "full"],
    calibration=Calibration(modes={"score": PLATT}),
    training_questions=question_keys(ROWS[:1]),
)


def tiny(seed: int = 0) -> tuple[Any, Any]:
    words = [m.text() for t in ROWS for m in t.messages] + ["<score>0.1</score> critique think"]
    tokenizer = build_lab_tokenizer(words, 500)
    return build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=seed).eval(), tokenizer


def scores(judge: AgentRRM) -> list[float | None]:
    return [f.score for f in judge.judge(ROWS, mode="score")]


def in_the_cache(folder: Path, cache: Path, repo: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a folder into a hub cache as one commit of `repo`, and take the network away; returns the commit."""
    from huggingface_hub import constants

    commit = "a" * 40
    place = cache / f"models--{repo.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(commit)
    (place / "snapshots" / commit).mkdir(parents=True)
    for path in folder.iterdir():
        (place / "snapshots" / commit / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return commit
