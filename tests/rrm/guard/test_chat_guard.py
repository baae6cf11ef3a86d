"""A guard with a chat model asks of a run that goes on as of one, and does nothing because of a number that nobody calibrated."""

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
    """Thinks nothing of a run that has no answer, unless it is told that the run goes on; and worse of one that strays."""
    told, shown = (m["content"] for m in body["messages"])
    strays = "stray" in shown
    if "while it goes on" not in told:
        return completion("<score>0.0</score>")
    return completion(f"<score>{0.3 if strays else 0.5}</score>")


def test_healthy_runs_are_never_halted_for_a_number_that_nobody_calibrated(caplog: pytest.LogCaptureFixture) -> None:
    """Each was halted at step 2: an unfinished run was judged as a finished one, by the rubric of such."""
    with serve(harsh) as server, caplog.at_level(logging.WARNING):
        guard = Guard(AgentRRM(OpenAIEngine(server.url, "m"), model="m"), GuardPolicy(halt_below=0.9, patience=1))
        found = summed([replay(guard, run(i, 3)) for i in range(2)])
    assert (found["halted"], found["asked"], found["unsure_checks"], found["checks"]) == (0, 0, 6, 6)
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
        found = summed([replay(guard, t) for t in rows[:4]])
        with pytest.raises(ConfigError, match="with --prefixes"):
            calibrate_judge(judge, labelled, tmp_path / "other", mode="score")
    assert found["good"]["halted"] == 0 and found["failing"]["halted"] == found["failing"]["runs"] == 2


def test_runs_are_cut_before_their_last_step() -> None:
    rows = [run(i, steps=1 + i % 4) for i in range(40)]
    cut = [prefix_of(t, seed=3) for t in rows]
    for whole, short in zip(rows, cut, strict=True):
        assert short.messages == whole.messages[: len(short.messages)] and short.id == whole.id
        assert len(short.steps) < len(whole.steps) or len(whole.steps) == 1
    assert len({len(t.steps) for t in cut}) > 2
