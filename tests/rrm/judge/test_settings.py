"""`judge.json`: older files, newer settings, and hashes that change only with scores."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rrm.cli.score_cmd import Modes, chosen_mode
from rrm.data.feedback import Feedback
from rrm.engines.shipped_judges import FILE
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings, settings_hash


def test_an_older_judge_keeps_its_hash_and_its_settings(tmp_path: Path) -> None:
    """A file without the newer settings keeps its hash, so that its runs can be resumed."""
    older = {"schema_version": 1, "name": "old", "modes": ["score"], "prompt_version": "1"}
    (tmp_path / FILE).write_text(json.dumps(older))
    settings = load_settings(tmp_path)
    assert (settings.default_mode, settings.threshold) == (None, 0.5)
    hashed = settings.model_dump(
        mode="json",
        exclude={"name", "trained_on", "training_questions", "default_mode", "threshold"}
        | {"calibrated_on", "max_windows", "criteria", "request", "unsure_band", "step_tokens", "promise"},
    )
    assert settings_hash(settings) == hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:12]
    assert settings_hash(settings) == settings_hash(settings.model_copy(update={"default_mode": "steps"}))
    assert settings_hash(settings) != settings_hash(settings.model_copy(update={"threshold": 0.4}))


def test_a_judge_that_was_blended_loads_without_its_blend_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older = {"name": "old", "modes": ["steps"], "blend": {"lexical_sha256": "0a1b", "modes": {}}, "default_blend": True}
    (tmp_path / FILE).write_text(json.dumps(older))
    (tmp_path / "lexical.json").write_text("{}")
    first, again = load_settings(tmp_path), load_settings(tmp_path)
    assert first == again == JudgeSettings(name="old", modes=["steps"])
    assert [r.getMessage() for r in caplog.records if "lexical model" in r.getMessage()] == [
        f"{tmp_path / FILE} was made with a lexical model to blend its scores with, which is ignored: the scores are the judge's own"
    ]
    caplog.clear()
    (tmp_path / FILE).write_text(json.dumps({"name": "plain", "blend": None, "default_blend": False}))
    assert load_settings(tmp_path) == JudgeSettings(name="plain") and not caplog.records


def test_newer_settings_are_kept(tmp_path: Path) -> None:
    settings = JudgeSettings(modes=["steps", "full"], default_mode="steps", threshold=0.31)
    save_settings(tmp_path, settings)
    assert load_settings(tmp_path) == settings


def test_the_judges_own_mode_is_the_one_where_none_is_named() -> None:
    judge = SimpleNamespace(settings=JudgeSettings(default_mode="steps"))
    assert chosen_mode(None, judge, Modes.full) == "steps"
    assert chosen_mode(Modes.score, judge, Modes.full) == "score"
    assert chosen_mode(None, SimpleNamespace(settings=JudgeSettings()), Modes.full) == "full"


def test_older_rows_are_read() -> None:
    row = {
        "id": "a",
        "status": "scored",
        "score": 0.5,
        "findings": [{"step": 1, "verdict": "bad", "text": "no"}],
        "judge": {"model": "m", "prompt_version": "1", "mode": "full"},
    }
    feedback = Feedback.from_json(json.dumps(row))
    assert feedback.coverage is None and feedback.findings[0].p_good is None
