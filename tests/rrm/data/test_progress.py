"""How far a run is, also inside one transcript that takes many windows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from agent_runs import run
from openai_server import completion, serve

from rrm.data import progress
from rrm.data.progress import pace_text, progress_bar
from rrm.engines.openai import OpenAIEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.scoring.run import score_file


def test_pace() -> None:
    assert pace_text(3.2, 100, 36) == "3.2/s, 0:00:20 left"
    assert pace_text(0.5, 4000, 400) == "30.0/min, 2:00:00 left"
    assert pace_text(2.0, None, 5) == "2.0/s"


def test_a_terminal_shows_the_windows_of_what_is_under_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(1, True) as show:
        show(0, 0, (12, 310), 0)
    said = capsys.readouterr().err
    assert "windows 12/310" in said and "failed" not in said
    with progress_bar(3, True) as show:
        show(3, 0, (0, 0), 2)
    said = capsys.readouterr().err
    assert "windows" not in said and ", 2 failed" in said


def test_the_log_tells_windows_while_one_long_transcript_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transcript of 200,000 tokens showed 0/1 for as long as it took."""
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "rrm.data.progress")
    settings = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=400)
    turns = [text for k in range(40) for text in (f"look at number {k} in the store once more", "nothing at all " * 3)]
    with serve(lambda n, body: completion("<critique>[step 1] good: x</critique><score>0.5</score>")) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), settings=settings)
        score_file(judge, [run(*turns)], tmp_path / "out.jsonl", mode="critique", samples=2, total=1)
        windows = len(server.requests)
    lines = [r.getMessage() for r in caplog.records if r.name == "rrm.data.progress"]
    assert windows >= 4
    said = [f"judged 0 of 1, 0.0/min, windows {k}/{windows}" for k in range(1, windows + 1)]
    assert lines[:-1] == said and lines[-1].startswith("judged 1 of 1, ") and "windows" not in lines[-1]
