"""A map of expected scores does not calibrate sampled ones, nor the reverse."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, completion, serve

from rrm.data.feedback import Feedback, JudgeInfo
from rrm.engines.openai import OpenAIEngine
from rrm.evaluation.fit_calibration import source_of
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings
from rrm.scoring.run import score_file

TOKENS = ["<score>", "0.5", "</score>"]


def settings(source: str | None) -> JudgeSettings:
    fitted = Calibration(modes={"score": Platt(a=1.0, b=1.0, rows=20)})
    facts: dict[str, dict[str, Any]] = {"score": {} if source is None else {"score_source": source}}
    return JudgeSettings(opening=False, prompt_version="2", calibration=fitted, calibrated_on=facts)


@pytest.mark.parametrize(
    ("fitted_on", "with_logprobs", "calibrated"),
    [
        ("expected", True, True),
        ("expected", False, False),
        ("sampled", True, False),
        ("sampled", False, True),
        (None, False, True),
    ],
)
def test_a_map_is_applied_to_scores_of_its_kind(fitted_on: str | None, with_logprobs: bool, calibrated: bool) -> None:
    """0.731 by the map of the other kind, and `calibrated: true`."""
    logprobs = {"content": [{"token": t, "logprob": math.log(0.99)} for t in TOKENS]} if with_logprobs else None
    with serve(lambda n, body: completion("".join(TOKENS), logprobs=logprobs)) as server:
        row = AgentRRM(OpenAIEngine(server.url, "m"), settings=settings(fitted_on), model="m").judge(
            transcripts(1), mode="score"
        )[0]
    assert row.judge.score_source == ("expected" if with_logprobs else "sampled") and row.raw_score == pytest.approx(
        0.5
    )
    assert row.score == pytest.approx(1 / (1 + math.exp(-1)) if calibrated else 0.5)
    assert row.judge.calibrated is calibrated and ("not calibrated" in str(row.reason)) is not calibrated


def test_both_kinds_in_one_output_are_counted_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The summary did not say."""

    def answer(n: int, body: dict[str, Any]) -> Answer:
        content = [{"token": t, "logprob": math.log(0.99)} for t in TOKENS]
        return completion("".join(TOKENS), logprobs={"content": content} if n == 0 else None)

    with serve(answer) as server, caplog.at_level(logging.WARNING):
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        summary = score_file(judge, transcripts(3), tmp_path / "out.jsonl", mode="score")
    assert summary.score_sources == {"expected": 1, "sampled": 2} and "1 scores are expectations" in caplog.text
    assert judge.describe()["score_source"] == "expected"
    rows = [Feedback.model_validate(row) for row in rows_of(tmp_path / "out.jsonl")]
    assert source_of(rows[1:]) == {"score_source": "sampled"} and source_of(rows) == {}
    assert (
        source_of(
            [Feedback(id="a", status="judge_error", judge=JudgeInfo(model="m", prompt_version="2", mode="score"))]
        )
        == {}
    )
