"""The judge that ships names what it was trained on, so that nobody measures it, or what goes on from it, on that unsaid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import mint, ship_default
from rrm.judge.judge_dir import load_settings, settings_hash
from rrm.questions import met_before
from rrm.trajectory import Trajectory


def test_the_shipped_judge_names_the_questions_of_its_training(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named none: what was trained further from it was measured on one of them."""
    split = ship_default.ROOT / "benchmarks" / "splits" / "mint.json"
    monkeypatch.setattr(mint, "DATA", shared_data / "transcripts" / "mint")
    settings = load_settings(ship_default.TARGET)
    named = ship_default.with_questions(settings.model_copy(update={"training_questions": []}), split)
    assert len(named.training_questions) == len(json.loads(split.read_text())["train"])
    assert set(named.training_questions) <= set(settings.training_questions)
    assert settings_hash(named) == settings_hash(settings)  # questions decide no score


def test_the_shipped_judge_knows_its_questions_by_their_ids() -> None:
    split = json.loads((ship_default.ROOT / "benchmarks" / "splits" / "mint.json").read_text())
    known = load_settings(ship_default.TARGET).training_questions
    for part, wanted in (("train", True), ("test", False)):
        rows = [Trajectory(id=q, task="in other words", question_id=q, messages=[]) for q in split[part]]
        assert met_before(known, rows) == (split[part] if wanted else [])
