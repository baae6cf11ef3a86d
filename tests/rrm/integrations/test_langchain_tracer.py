"""The LangChain callback, in runs that LangChain itself makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("langchain_core", reason="langchain-core is not installed (pip install 'agent-rrm[langchain]')")

from chat_judge import ChatJudge
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from rrm.integrations.langchain_tracer import AgentRRMTracer, JudgedTrace
from rrm.judge.agent_rrm import AgentRRM


@tool
def search(query: str) -> str:
    """Search the facts."""
    return f"{query} was born in London"


def agent(answers: Iterable[AIMessage]) -> Any:
    """A loop of a model and its tools, a root run when it is invoked."""
    model = GenericFakeChatModel(messages=iter(answers))

    def loop(question: str, config: Any) -> str:
        messages: list[Any] = [HumanMessage(question)]
        while True:
            messages.append(said := model.invoke(messages, config))
            if not said.tool_calls:
                return str(said.content)
            messages += [search.invoke(call, config) for call in said.tool_calls]

    return RunnableLambda(loop)


def answers(last: str = "Answer: London") -> list[AIMessage]:
    call = {"name": "search", "args": {"query": "Ada"}, "id": "c1", "type": "tool_call"}
    return [AIMessage("I look it up.", tool_calls=[call]), AIMessage(last)]


def test_a_run_is_judged_at_its_end(judge: AgentRRM) -> None:
    heard: list[JudgedTrace] = []
    tracer = AgentRRMTracer(judge, mode="full", on_judged=heard.append)
    assert agent(answers()).invoke("Where was Ada born?", {"callbacks": [tracer]}) == "Answer: London"
    (row,) = tracer.wait()
    assert [(m.role, m.text()) for m in row.trajectory.messages] == [
        ("user", "Where was Ada born?"),
        ("assistant", "I look it up."),
        ("tool", "Ada was born in London"),
        ("assistant", "Answer: London"),
    ]
    calls = row.trajectory.messages[1].tool_calls
    assert row.trajectory.task == "Where was Ada born?" and calls is not None and calls[0].arguments == {"query": "Ada"}
    (own,) = judge.judge([row.trajectory], mode="full")
    assert own.score is not None and row.feedback.score == pytest.approx(own.score, abs=1e-6)
    assert row.feedback.critique == own.critique and [one.run_id for one in heard] == [row.run_id]
    assert tracer.wait() == []


def test_runs_that_end_together_are_judged_together_and_a_failure_is_no_number() -> None:
    judge = ChatJudge()
    tracer = AgentRRMTracer(judge, mode="full")
    for n in range(6):
        agent(answers(f"Answer: {n}")).invoke(f"Question {n}?", {"callbacks": [tracer]})
    rows = tracer.wait()
    assert sorted(row.trajectory.task for row in rows) == [f"Question {n}?" for n in range(6)]
    run = uuid4()
    down = AgentRRMTracer(ChatJudge(down=(str(run),)), mode="full")
    agent(answers("Answer: 0")).invoke("Question 0?", {"callbacks": [down], "run_id": run})
    (row,) = down.wait()
    assert row.feedback.status == "judge_error" and row.feedback.score is None


def test_runs_without_a_model_and_runs_that_broke_off() -> None:
    tracer = AgentRRMTracer(ChatJudge(), mode="full")
    RunnableLambda(str.upper).invoke("no model", {"callbacks": [tracer]})
    assert tracer.wait() == []

    def broken() -> Iterator[AIMessage]:
        yield answers()[0]
        raise ConnectionError("the model is gone")

    with pytest.raises(ConnectionError, match="gone"):
        agent(broken()).invoke("Where was Ada born?", {"callbacks": [tracer]})
    (row,) = tracer.wait()  # what was said before is a transcript
    assert [m.role for m in row.trajectory.messages][:2] == ["user", "assistant"]
