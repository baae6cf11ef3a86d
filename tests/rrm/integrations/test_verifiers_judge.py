"""The judge plugin of verifiers, found and asked by verifiers' own code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers is not installed (pip install 'agent-rrm[verifiers]')")

import verifiers.v1 as vf
from chat_judge import ChatJudge
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, Tool, ToolCall, ToolMessage, UserMessage
from verifiers.v1.utils.loaders import load_judge

from reagent.lab.shipped import judge_folder
from rrm.errors import RRMError
from rrm.integrations.verifiers_judge import AgentRRMJudge, AgentRRMJudgeConfig, as_trajectory
from rrm.judge.agent_rrm import AgentRRM

DATA = vf.TaskData(idx=0, prompt="Where was Ada born?")


class Plain(vf.Task):
    """A task without rewards of its own."""


def trace() -> Any:
    call = ToolCall(id="c1", name="search", arguments='{"query": "Ada"}')
    said = [
        UserMessage(content="Where was Ada born?"),
        AssistantMessage(content="I look it up.", tool_calls=[call]),
        ToolMessage(tool_call_id="c1", content="Ada was born in London", name="search"),
        AssistantMessage(content="Answer: London"),
    ]
    nodes = [
        MessageNode(message=m, parent=i - 1 if i else None, sampled=m.role == "assistant") for i, m in enumerate(said)
    ]
    agent = {"config": {}, "name": "agent"}
    tools = [Tool(name="search", description="Search the facts.", parameters={"type": "object", "properties": {}})]
    return vf.Trace.model_validate(
        {"task": {"type": "Plain", "data": DATA}, "agent": agent, "nodes": nodes, "tools": tools}
    )


def test_a_trace_is_a_transcript() -> None:
    row = as_trajectory(DATA, trace())
    assert [(m.role, m.text()) for m in row.messages] == [
        ("user", "Where was Ada born?"),
        ("assistant", "I look it up."),
        ("tool", "Ada was born in London"),
        ("assistant", "Answer: London"),
    ]
    calls = row.messages[1].tool_calls
    assert calls is not None and calls[0].arguments == {"query": "Ada"} and row.task == "Where was Ada born?"
    assert row.tools is not None and row.tools[0]["function"]["name"] == "search" and row.id == row.digest


def test_verifiers_scores_a_task_with_the_plugin(
    judge: AgentRRM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_judge_plugin.py").write_text(
        'from rrm.integrations.verifiers_judge import AgentRRMJudge\n__all__ = ["AgentRRMJudge"]\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = {"id": "my-judge-plugin", "name": "process", "weight": 0.5, "judge": str(judge_folder()), "mode": "full"}
    config = vf.TaskConfig.model_validate({"judges": [entry]})
    assert isinstance(load_judge(config.judges[0]), AgentRRMJudge)
    done = trace()
    asyncio.run(Plain(DATA, config).score(done))
    (own,) = judge.judge([as_trajectory(DATA, trace())], mode="full")
    assert own.score is not None and done.rewards["process"].score == pytest.approx(own.score, abs=1e-6)
    assert done.rewards["process"].value == pytest.approx(0.5 * own.score, abs=1e-6)
    assert done.info["agent_rrm"]["status"] == "scored"


def test_a_failed_judgement_is_an_error_and_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    down = ChatJudge(down=(as_trajectory(DATA, trace()).id,))
    monkeypatch.setattr(AgentRRM, "from_pretrained", lambda *_, **__: down)
    found = trace()
    with pytest.raises(RRMError, match=r"judge_error.*server is down"):
        asyncio.run(AgentRRMJudge(AgentRRMJudgeConfig(judge="down", mode="full")).score(DATA, found))
    assert found.info["agent_rrm"]["score"] is None and found.rewards == {}
