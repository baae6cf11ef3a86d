"""Group scores for ART, on ART's own groups. ART (0.5.18) changes transformers where it is imported, for an older one: no judge has weights here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("art.trajectories", reason="openpipe-art is not installed (pip install 'agent-rrm[art]')")

import art
from chat_judge import ChatJudge
from openai.types.chat.chat_completion import Choice

from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import RRMError
from rrm.integrations.art_group import as_trajectory, judge_score_group
from rrm.judge.agent_rrm import AgentRRM


def attempt(answer: str, reward: float = 0.0) -> Any:
    """One of ART's: a call, its result, and an answer that its model gave."""
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "Ada"}'}}
    said = Choice.model_validate(
        {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": answer}}
    )
    messages = [
        {"role": "user", "content": "Where was Ada born?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Ada was born in London"},
        said,
    ]
    return art.Trajectory(messages_and_choices=messages, reward=reward, metrics={"turns": 2})


def group() -> Any:
    return art.TrajectoryGroup([attempt("Answer: London", 1.0), attempt("In Paris."), attempt("Maybe Rome?")])


def test_each_is_judged_by_itself() -> None:
    given, judge = group(), ChatJudge()
    found = asyncio.run(judge_score_group(given, judge, by="score", mode="full"))
    own = judge.judge([as_trajectory(one) for one in given.trajectories], mode="full")
    assert found is not None
    assert [one.reward for one in found.trajectories] == [pytest.approx(row.score, abs=1e-6) for row in own]
    first = found.trajectories[0]
    assert first.metrics["independent_reward"] == 1.0 and first.metrics["turns"] == 2 and "Agent-RRM" in first.logs[0]
    assert (
        given.trajectories[0].reward == 1.0
        and not given.trajectories[0].logs
        and found.metrics["agent_rrm_failed"] == 0
    )
    row = as_trajectory(given.trajectories[0])
    assert [m.role for m in row.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] and row.task == "Where was Ada born?"


def test_attempts_are_compared_in_one_prompt() -> None:
    engine = ScriptedChatEngine(lambda *_: "<ranking>B > A = C</ranking>")
    found = asyncio.run(judge_score_group(group(), AgentRRM(engine, model="scripted")))
    assert found is not None and len(engine.calls) == 1
    assert sorted(one.reward for one in found.trajectories) == [0.25, 0.25, 1.0]


def test_failures_leave_their_attempt_out_and_too_many_the_group() -> None:
    given = group()
    ids = [as_trajectory(one).id for one in given.trajectories]
    found = asyncio.run(judge_score_group(given, ChatJudge(down=(ids[1],)), by="score", mode="full"))
    assert found is not None and len(found.trajectories) == 2 and found.metrics["agent_rrm_failed"] == 1
    down = ChatJudge(down=tuple(ids[1:]))
    with pytest.raises(RRMError, match=r"of 3 attempts 1 have a score .*server is down"):
        asyncio.run(judge_score_group(given, down, by="score", mode="full"))
    assert asyncio.run(judge_score_group(given, down, by="score", mode="full", swallow_exceptions=True)) is None
    mute = AgentRRM(ScriptedChatEngine(lambda *_: "I cannot say."), model="scripted")
    with pytest.raises(RRMError, match=r"of 3 attempts 0 have a score \(unparsable"):
        asyncio.run(judge_score_group(given, mute))
