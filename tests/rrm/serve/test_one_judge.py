"""A judge says the same of a run in Python, on the command line, behind an address and beside the agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import serving

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.transcripts import make_transcripts
from rrm.cli import score_cmd
from rrm.data.feedback import Feedback
from rrm.engines.hf.engine import HFEngine
from rrm.guard.guard import Guard
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter

RUNS = [
    t.model_copy(update={"messages": [m.model_copy(update={"content": f"{m.text()} " * 4}) for m in t.messages]})
    for t, _ in make_transcripts(6, seed=3)
]
"""Long enough for several forwards of an int8 judge."""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A judge of steps, which is read in int8 where that can be had."""
    monkeypatch.setenv("AGENT_RRM_CACHE", str(tmp_path / "cache"))
    tokenizer = build_lab_tokenizer([m.text() for t in RUNS for m in t.messages], 400)
    model = build_lab_model(tokenizer, hidden=192, layers=12, heads=3, seed=0)
    settings = JudgeSettings(modes=["steps"], default_mode="steps", prompt_version="2", transcript_tokens=600)
    judge = AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, 600), settings=settings)
    return judge.save_pretrained(tmp_path / "judge")


def said(feedback: Feedback) -> list[float | None]:
    return [feedback.score, *(finding.p_good for finding in feedback.findings)]


@pytest.mark.parametrize("dtype", ["float32", None])
def test_every_way_to_ask_a_judge_gives_the_same_scores(
    saved: Path, tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]], dtype: str | None
) -> None:
    runs, output = tmp_path / "runs.jsonl", tmp_path / "out.jsonl"
    runs.write_text("".join(run.to_json() + "\n" for run in RUNS))
    judge = AgentRRM.from_pretrained(str(saved), device="cpu", dtype=dtype)
    wanted = [said(feedback) for feedback in judge.judge(RUNS, mode="steps")]
    ways = {"alone": [judge.judge([run], mode="steps")[0] for run in RUNS]}
    chosen = [] if dtype is None else ["--dtype", dtype]
    assert invoke(score_cmd.command, runs, "-o", output, "--model", saved, "--device", "cpu", *chosen)[0] == 0
    ways["command"] = [Feedback.model_validate(json.loads(line)) for line in output.read_text().splitlines()]
    options = {"model": str(saved), "device": "cpu", "dtype": dtype}
    with serving(worker="rrm.serve.worker", options=options) as found:
        ways["server"] = AgentRRM.from_pretrained(found.url).judge(RUNS, mode="steps")
    for way, feedback in ways.items():
        for run, mine, its in zip(RUNS, wanted, feedback, strict=True):
            assert said(its) == pytest.approx(mine, abs=1e-6), (way, run.id)
    for run, mine in zip(RUNS, wanted, strict=True):
        with Guard(judge).session(task=run.task, tools=run.tools) as session:
            for message in run.messages:
                session.observe(message)
            last = session.judge_now(run)
        assert (last.score, last.p_good) == pytest.approx((mine[0], mine[-1]), abs=1e-6), run.id
