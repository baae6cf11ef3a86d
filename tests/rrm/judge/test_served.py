"""A judge behind a server has its directory's calibration, budget and opening tag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai_server import Answer, completion, serve
from travelling_judge import PLATT, ROWS, SETTINGS, in_the_cache

from rrm.data.trajectory import Trajectory
from rrm.engines.openai import OpenAIEngine
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings


def test_a_served_judge_keeps_calibration_budget_and_opening(saved: Path, tmp_path: Path) -> None:
    with serve(lambda n, body: completion("0.7</score>")) as server:
        spec = f"openai:{server.url}#m"
        judge = AgentRRM.from_pretrained(spec, settings=saved)
        (feedback,) = judge.judge(ROWS[:1], mode="score")
        plain = AgentRRM.from_pretrained(spec)
        (refused,) = plain.judge(ROWS[:1], mode="score")
    assert feedback.raw_score == 0.7 and feedback.score == pytest.approx(PLATT(0.7)) and feedback.judge.calibrated
    assert (feedback.judge.transcript_tokens, feedback.judge.max_new_tokens, feedback.judge.dtype) == (250, 24, None)
    opened, unopened, _ = server.requests  # the last one asks again for what could not be read
    assert opened["messages"][-1] == {"role": "assistant", "content": "<score>"} and opened["continue_final_message"]
    assert opened["add_generation_prompt"] is False and opened["max_tokens"] == 24
    local = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert local.prompter is not None
    expected, _ = local.prompter.messages(ROWS[0], "score")  # the tokenizer's own count of the budget
    assert opened["messages"][:2] == expected
    assert unopened["messages"][-1]["role"] == "user" and "continue_final_message" not in unopened
    assert refused.status == "unparsable"  # a chat model's own reply must hold the whole block


def test_a_server_that_opens_the_reply_itself_is_read_too(saved: Path) -> None:
    replies = ["<score>0.7</score>", "0.7</score>"]
    with serve(lambda n, body: completion(replies[n])) as server:
        judge = AgentRRM.from_pretrained(f"openai:{server.url}#m", settings=saved)
        assert [judge.judge(ROWS[:1], mode="score")[0].raw_score for _ in replies] == [0.7, 0.7]


def test_log_probabilities_of_an_opened_reply_are_read() -> None:
    tokens = [("0", {"0": 0.0}), (".", {".": 0.0}), ("7", {"7": -0.6931471805599453, "2": -0.6931471805599453})]
    content = [
        {"token": t, "logprob": top[t], "top_logprobs": [{"token": k, "logprob": v} for k, v in top.items()]}
        for t, top in [*tokens, ("</score>", {"</score>": 0.0})]
    ]
    with serve(lambda n, body: completion("0.7</score>", logprobs={"content": content})) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), settings=JudgeSettings(opening=True))
        (feedback,) = judge.judge(ROWS[:1], mode="score")
    assert feedback.raw_score == pytest.approx(0.45) and feedback.judge.score_source == "expected"


def test_a_directory_may_name_its_server(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(lambda n, body: completion("<score>0.7</score>")) as server:
        url = server.url.replace("http://", "http://me:secret@")
        served = AgentRRM.from_pretrained(f"openai:{url}#m", settings=saved)
        folder = served.save_pretrained(tmp_path / "served")
        assert not list(folder.glob("*.safetensors")) and "secret" not in (folder / "judge.json").read_text()
        assert load_settings(folder).engine == f"openai:{server.url}#m"
        loaded = AgentRRM.from_pretrained(str(folder), timeout_s=9)
        assert loaded.settings == load_settings(folder) and loaded.settings.calibration == SETTINGS.calibration
        (feedback,) = loaded.judge(ROWS[:1], mode="score")
        assert feedback.score == pytest.approx(PLATT(0.7)) and feedback.judge.model == str(folder)
        assert isinstance(loaded.engine, OpenAIEngine) and loaded.engine.timeout_s == 9
        in_the_cache(folder, tmp_path / "cache", "org/served", monkeypatch)
        # a stranger's judge.json must not get transcripts and key sent to a stranger's server
        with pytest.raises(RRMError, match=r"names a server \(127\.0\.0\.1\).*--settings org/served"):
            AgentRRM.from_pretrained("org/served")
        trusted = AgentRRM.from_pretrained(f"openai:{server.url}#m", settings="org/served")
        assert trusted.settings.calibration == SETTINGS.calibration


def test_two_calibrations_on_one_server_are_two_judges(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_settings(other, SETTINGS.model_copy(update={"calibration": Calibration()}))
    spec = "openai:http://127.0.0.1:9/v1#m"
    hashes = {AgentRRM.from_pretrained(spec, settings=folder).model_hash for folder in (saved, other)}
    assert len(hashes) == 2 and None not in hashes


def test_a_row_knows_that_the_server_chose_the_temperature() -> None:
    def refuses(n: int, body: dict[str, Any]) -> Answer:
        if "temperature" in body:
            return Answer(400, b'{"error": {"message": "Unsupported parameter: \'temperature\'"}}')
        return completion("<score>0.5</score>")

    with serve(refuses) as server:
        (feedback,) = AgentRRM(OpenAIEngine(server.url, "m")).judge(ROWS[:1])
    assert feedback.status == "scored" and feedback.judge.temperature is None


def test_a_saved_judge_asks_its_server_as_it_was_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Azure answers nothing without its `api-version`: a calibrated judge was of no use there."""
    run = Trajectory.model_validate({"id": "a", "task": "t", "messages": [{"role": "assistant", "content": "done"}]})
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        url = server.url.replace("://", "://ann:pass-word-1@") + "?api-version=2024-06-01&key=s3cret"
        folder = AgentRRM(OpenAIEngine(url, "m")).save_pretrained(tmp_path / "judge")
        engine = json.loads((folder / "judge.json").read_text())["engine"]
        assert engine == f"openai:{server.url}?api-version=2024-06-01#m"
        assert (
            "without its user, key=…" in caplog.text and "s3cret" not in caplog.text and "pass-word" not in caplog.text
        )
        judge = AgentRRM.from_pretrained(str(folder))
        assert judge.judge([run], mode="score")[0].status == "scored"
        assert server.paths == ["/v1/chat/completions?api-version=2024-06-01"]
        assert "api-version" not in str(judge.describe()["model"])
