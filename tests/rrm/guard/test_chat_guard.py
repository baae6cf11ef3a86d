"""A guard with a chat model asks about an unfinished run, and ignores an uncalibrated number."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from openai_server import Answer, completion, serve

from rrm.data.trajectory import Message, Trajectory
from rrm.engines.openai import OpenAIEngine
from rrm.errors import ConfigError
from rrm.evaluation.calibrate import CalibrationRows, calibrate_judge
from rrm.guard.guard import Guard
from rrm.guard.policy import GuardPolicy
from rrm.guard.replay import replay, summed
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.prefixes import prefix_of


def run(i: int, steps: int = 6, good: bool = True) -> Trajectory:
    messages = [Message(role="user", content=f"question {i}")]
    for k in range(steps):
        messages.append(Message(role="assistant", content=f"{'look' if good else 'stray'} {k}"))
        messages.append(Message(role="user", content="go on"))
    return Trajectory(id=f"r{i}", task=f"question {i}", messages=messages, outcome=float(good))


def harsh(n: int, body: dict[str, Any]) -> Answer:
    """Low scores without an answer, unless the run goes on; lower ones for a run that strays."""
    system, transcript = (m["content"] for m in body["messages"])
    strays = "stray" in transcript
    if "while it goes on" not in system:
        return completion("<score>0.0</score>")
    return completion(f"<score>{0.3 if strays else 0.5}</score>")


def test_healthy_runs_are_never_halted_for_a_number_that_nobody_calibrated(caplog: pytest.LogCaptureFixture) -> None:
    """Each was halted at step 2: an unfinished run was judged as a finished one, by the rubric of such."""
    with serve(harsh) as server, caplog.at_level(logging.WARNING):
        guard = Guard(AgentRRM(OpenAIEngine(server.url, "m"), model="m"), GuardPolicy(halt_below=0.9, patience=1))
        counts = summed([replay(guard, run(i, 3)) for i in range(2)])
    assert (counts["halted"], counts["asked"], counts["unsure_checks"], counts["checks"]) == (0, 0, 6, 6)
    assert "never halts" in caplog.text and "rrm calibrate --prefixes" in caplog.text
    assert all("while it goes on" in body["messages"][0]["content"] for body in server.requests)


def test_a_judge_that_was_calibrated_on_prefixes_halts_those_that_fail(tmp_path: Path) -> None:
    good = [i % 2 == 0 for i in range(40)]
    rows = [run(i, 4, good=ok) for i, ok in enumerate(good)]
    labelled = CalibrationRows(rows, [float(ok) for ok in good], ["outcome:outcome"] * len(rows))
    with serve(harsh) as server:
        plain = AgentRRM.from_pretrained(f"openai:{server.url}#m")
        record = calibrate_judge(plain, labelled, tmp_path / "guard", mode="score", prefixes=True, resamples=100)
        assert record["rows"] == 40 and not plain.unfinished
        judge = AgentRRM.from_pretrained(str(tmp_path / "guard"))
        assert judge.unfinished and judge.describe()["unfinished"] is True
        guard = Guard(judge, GuardPolicy(halt_below=0.3, patience=2))
        counts = summed([replay(guard, t) for t in rows[:4]])
        with pytest.raises(ConfigError, match="with --prefixes"):
            calibrate_judge(judge, labelled, tmp_path / "other", mode="score")
    assert counts["good"]["halted"] == 0 and counts["failing"]["halted"] == counts["failing"]["runs"] == 2


def test_runs_are_cut_before_their_last_step() -> None:
    rows = [run(i, steps=1 + i % 4) for i in range(40)]
    cut = [prefix_of(t, seed=3) for t in rows]
    for full, short in zip(rows, cut, strict=True):
        assert short.messages == full.messages[: len(short.messages)] and short.id == full.id
        assert len(short.steps) < len(full.steps) or len(full.steps) == 1
    assert len({len(t.steps) for t in cut}) > 2
