"""Images reach no judge: every command that judges says so once, and counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from chat_judge import ChatJudge
from typer.testing import CliRunner

from rrm.cli import annotate_cmd, check_cmd, eval_cmd, score_cmd
from rrm.engines.scripted import ScriptedChatEngine
from rrm.evaluation.calibrate import CachedJudge
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.rendering import CharacterTokenizer, render_transcript
from rrm.readers import read

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OPENAI = {
    "id": "openai",
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}],
        },
        {"role": "assistant", "content": "A dot."},
    ],
}
ANTHROPIC = {
    "id": "anthropic",
    "system": "Look.",
    "messages": [
        {"role": "user", "content": "Open the page."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "shot", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL[22:]}},
                        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
                        {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
                    ],
                }
            ],
        },
        {"role": "assistant", "content": "It is open."},
    ],
}
PLAIN = {"id": "plain", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in (OPENAI, ANTHROPIC, PLAIN)))
    return path


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [r.getMessage() for r in caplog.records if "parts that are no text" in r.getMessage()]
    caplog.clear()
    return said


def test_the_prompt_holds_a_word_for_each(source: Path) -> None:
    first, second, _ = (render_transcript(t, CharacterTokenizer(), 4000).text for t in read(source))
    assert "Task: What is it?" in first and "[image]" in first and "base64" not in first + second
    assert "result: [image]\n[image]\n[document]" in second


def test_score_says_so_once_and_counts(
    source: Path, tmp_path: Path, invoke, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(score_cmd, "load_judge", lambda *args, **options: ChatJudge())
    told: dict[str, Any] = {"transcripts": 2, "parts": {"image": 3, "document": 1}}
    for options in (("--dry-run",), ("-o", tmp_path / "out.jsonl"), ("-o", tmp_path / "out.jsonl")):  # again: resumed
        _, summary = invoke(score_cmd.command, source, *options)
        assert summary["unsupported_media"] == told
        (said,) = warned(caplog)
        assert said.startswith(
            "2 of 3 transcripts hold parts that are no text (3 image, 1 document): this judge is not shown them"
        )
        assert "--model vision:FOLDER, and openai:… with --images N" in said
    source.write_text(json.dumps(PLAIN) + "\n")
    assert invoke(score_cmd.command, source, "-o", tmp_path / "plain.jsonl")[1]["unsupported_media"] is None
    assert not warned(caplog)


def test_a_command_of_several_passes_says_so_once(
    source: Path, tmp_path: Path, invoke, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = list(read(source))
    judge = AgentRRM(
        ScriptedChatEngine(lambda messages, params, key: "<critique>fine</critique><score>0.5</score>"),
        settings=JudgeSettings(opening=False),
    )
    monkeypatch.setattr(eval_cmd, "load_judge", lambda *args, **options: judge)
    out = tmp_path / "metrics.json"
    _, summary = invoke(eval_cmd.command, source, "--mode", "critique", "--reruns", 2, "-o", out)
    assert summary["unsupported_media"] == {"transcripts": 2, "parts": {"image": 3, "document": 1}}
    assert json.loads(out.read_text())["reruns"]["runs"] == 3 and len(warned(caplog)) == 1
    given = ["--feedback", out.with_suffix(".rows.jsonl")] * 2
    _, summary = invoke(eval_cmd.command, source, *given, "-o", tmp_path / "given.json")
    assert "unsupported_media" not in summary and not warned(caplog)  # nothing was judged

    ask = CachedJudge(judge, tmp_path / "mine", {})
    assert len(ask(rows, "critique")) == 3 and len(ask(rows[:1], "critique")) == 1 and len(warned(caplog)) == 1


def test_annotators_and_check_count_them_too(
    source: Path, tmp_path: Path, invoke, caplog: pytest.LogCaptureFixture
) -> None:
    _, summary = invoke(annotate_cmd.command, source, "-o", tmp_path / "labels.jsonl", "--annotator", "rules")
    assert summary["unsupported_media"]["transcripts"] == 2 and len(warned(caplog)) == 1
    assert invoke(check_cmd.command, source)[1]["unsupported_media"] == {"image": 2, "document": 1}


def test_check_names_the_judges_that_would_see_pictures(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_cmd, "for_people", lambda: True)
    app = typer.Typer()
    app.command()(check_cmd.command)
    said = CliRunner().invoke(app, [str(source)]).output.splitlines()
    (pictures,) = [line for line in said if "no text: image" in line]
    (others,) = [line for line in said if "no text: document" in line]
    assert "--model vision:FOLDER, and openai:… with --images N, are shown pictures" in pictures
    assert "no judge is shown them, only [document] in their place" in others
