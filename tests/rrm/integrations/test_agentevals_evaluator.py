"""The evaluator of trajectories, with agentevals' own types and LangChain's messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agentevals", reason="agentevals is not installed (pip install 'agent-rrm[agentevals]')")

from agentevals.types import EvaluatorResult
from chat_judge import ChatJudge
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_openai_messages

from rrm.errors import ReadError
from rrm.integrations.agentevals_evaluator import as_trajectory, async_trajectory_evaluator, trajectory_evaluator
from rrm.judge.agent_rrm import AgentRRM

CALL = {"name": "search", "args": {"query": "Ada"}, "id": "c1", "type": "tool_call"}
MESSAGES: list[Any] = [
    HumanMessage("Where was Ada born?"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("Ada was born in London", tool_call_id="c1", name="search"),
    AIMessage("Answer: London"),
]


def test_the_result_is_theirs_and_the_score_the_judges(judge: AgentRRM) -> None:
    found = trajectory_evaluator(judge, mode="full")(inputs="left aside", outputs=MESSAGES)
    assert found.keys() == EvaluatorResult.__annotations__.keys() and found["key"] == "agent_rrm"
    (own,) = judge.judge([as_trajectory(None, MESSAGES)], mode="full")
    assert own.score is not None and found["score"] == pytest.approx(own.score, abs=1e-6)
    assert found["comment"] == own.critique and (found["metadata"] or {})["status"] == "scored"
    again = asyncio.run(async_trajectory_evaluator(judge, mode="full")(outputs={"messages": MESSAGES}))
    assert again == found


def test_both_forms_of_messages_are_one_transcript() -> None:
    row = as_trajectory(None, MESSAGES, "London")
    plain = convert_to_openai_messages(MESSAGES)
    assert row.digest == as_trajectory(None, plain).digest == as_trajectory("Where was Ada born?", plain[1:]).digest
    assert row.task == "Where was Ada born?" and row.meta["reference"] == "London"
    assert as_trajectory({"question": "2 + 2?"}, {"role": "assistant", "content": "4"}).task == "2 + 2?"


def test_what_was_asked_stands_first_though_the_user_speaks_later() -> None:
    said = [
        {"role": r, "content": c}
        for r, c in (("assistant", "Which?"), ("user", "Lovelace"), ("assistant", "A writer."))
    ]
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is Ada?"}]
    row = as_trajectory(asked, said)
    assert row.task == "Who is Ada?"
    assert [m.text() for m in row.messages] == ["Be brief.", "Who is Ada?", "Which?", "Lovelace", "A writer."]
    whole = as_trajectory(
        asked, [asked[1], *said]
    )  # the outputs begin with the question, the rules do not stand in them
    assert whole.digest == row.digest


def test_what_cannot_be_judged_is_no_number() -> None:
    found = trajectory_evaluator(ChatJudge(down=(as_trajectory(None, MESSAGES).id,)), feedback_key="mine")(
        outputs=MESSAGES
    )
    assert found["score"] is None and found["key"] == "mine" and "server is down" in str(found["comment"])
    with pytest.raises(ReadError, match="outputs"):
        trajectory_evaluator(ChatJudge())(outputs=[{"role": "robot", "content": "beep"}])
    with pytest.raises(ReadError, match="outputs"):
        trajectory_evaluator(ChatJudge())(outputs=[])
