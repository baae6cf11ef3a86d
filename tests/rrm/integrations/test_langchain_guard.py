"""The guard as LangChain middleware, in real agents with a scripted model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain.agents.middleware", reason="langchain (extra `langchain`) is not installed")
pytest.importorskip("langgraph")

from guarded import Reads, SaysSo
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rrm.guard import Guard, GuardPolicy, read_audit
from rrm.integrations.langchain_guard import GuardMiddleware


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing on the {where}"


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def agent(guard: Guard, calls: int = 3, **more: Any) -> Any:
    said = [
        AIMessage("", tool_calls=[{"name": "look", "args": {"where": f"side {k}"}, "id": f"c{k}"}])
        for k in range(calls)
    ]
    return create_agent(
        Model(messages=iter([*said, AIMessage("it is gone")])), [look], middleware=[GuardMiddleware(guard)], **more
    )


ASKED = {"messages": [{"role": "user", "content": "where is it?"}]}


def test_a_failing_run_is_halted(tmp_path: Path) -> None:
    judge = SaysSo(0.5, 0.05, 0.05)
    guard = Guard(judge, GuardPolicy(halt_below=0.1, patience=2), audit=tmp_path / "audit.jsonl")
    messages = agent(guard).invoke(ASKED)["messages"]
    assert messages[-1].additional_kwargs == {"agent_rrm": "halt"} and "2 steps below 0.1" in messages[-1].text
    rows = list(read_audit(tmp_path / "audit.jsonl"))
    assert [(r.step, r.verdict) for r in rows] == [(1, "continue"), (2, "continue"), (3, "halt")]
    assert len({r.run for r in rows}) == 1 and rows[0].calls[0].arguments == '{"where": "side 0"}'
    assert judge.seen[-1].task == "where is it?" and judge.seen[-1].messages[-1].text() == "nothing on the side 2"


def test_a_good_run_is_left_alone() -> None:
    middleware_sees = SaysSo(*[0.9] * 4)
    messages = agent(Guard(middleware_sees)).invoke(ASKED)["messages"]
    assert messages[-1].text == "it is gone" and [len(t.steps) for t in middleware_sees.seen] == [1, 2, 3, 4]


@pytest.mark.parametrize("goes_on", [True, False])
def test_asking_interrupts_the_run(goes_on: bool) -> None:
    guard = Guard(SaysSo(*[0.15] * 4), GuardPolicy(halt_below=None, ask_below=0.2, patience=3))
    running, config = agent(guard, checkpointer=InMemorySaver()), {"configurable": {"thread_id": "1"}}
    asked = running.invoke(ASKED, config)["__interrupt__"][0].value
    assert asked["guard"] == "ask" and asked["step"] == 3
    last = running.invoke(Command(resume=goes_on), config)["messages"][-1]
    assert (last.text == "it is gone") is goes_on and ("agent_rrm" in last.additional_kwargs) is not goes_on


async def _run(guard: Guard) -> Any:
    return (await agent(guard).ainvoke(ASKED))["messages"][-1]


def test_coroutines() -> None:
    import asyncio

    last = asyncio.run(_run(Guard(SaysSo(*[0.0] * 4), GuardPolicy(patience=1))))
    assert last.additional_kwargs == {"agent_rrm": "halt"}


def seeker(guard: Guard, *places: str, **more: Any) -> Any:
    """An agent that looks in places and then says where it is."""
    said = [
        AIMessage("", tool_calls=[{"name": "look", "args": {"where": w}, "id": f"c{k}"}])
        if w != "!"
        else AIMessage("done")
        for k, w in enumerate(places)
    ]
    return create_agent(Model(messages=iter(said)), [look], middleware=[GuardMiddleware(guard)], **more)


def test_a_thread_goes_on_after_a_halt() -> None:
    judge = Reads()
    guard = Guard(judge, GuardPolicy(patience=1))
    running, config = (
        seeker(guard, "side 0.05", "spot 0.9", "!", checkpointer=InMemorySaver()),
        {"configurable": {"thread_id": "1"}},
    )
    assert "agent_rrm" in running.invoke(ASKED, config)["messages"][-1].additional_kwargs
    assert judge.asked == ["nothing on the side 0.05"]
    last = running.invoke({"messages": [{"role": "user", "content": "look elsewhere"}]}, config)["messages"][-1]
    assert last.text == "done" and judge.asked[1:] == ["nothing on the spot 0.9", "done"]


def test_a_step_is_judged_though_something_speaks_behind_each_in_the_user_s_name() -> None:
    class Reminds(AgentMiddleware):
        def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"messages": [HumanMessage("think of the time")]}

    model = Model(
        messages=iter([AIMessage("", tool_calls=[{"name": "look", "args": {"where": "side 0.05"}, "id": "c"}])] * 3)
    )
    guarded = GuardMiddleware(Guard(Reads(), GuardPolicy(patience=1)))
    running = create_agent(model, [look], middleware=[Reminds(), guarded])
    assert running.invoke(ASKED)["messages"][-1].additional_kwargs == {"agent_rrm": "halt"}


def test_a_conversation_that_is_summed_up_is_halted() -> None:
    """The same two steps' numbers again and again."""
    middleware = GuardMiddleware(Guard(Reads(), GuardPolicy(patience=3)))
    ended = []
    for k in range(4):
        said = [HumanMessage(f"summary {k}"), AIMessage(f"on side {k}"), AIMessage(f"{k}: 0.05")]
        ended.append(middleware.before_model({"agent_rrm_run": "r", "messages": said}, None) is not None)
    assert ended == [False, False, True, True]


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_person_s_no_ends_a_run_whose_judge_failed(goes_on: bool, elsewhere: bool, tmp_path: Path) -> None:
    """`elsewhere`: the answer comes in another process, where the judge would have a score."""
    audit = tmp_path / "audit.jsonl"
    guard = Guard(Reads(), GuardPolicy(on_failure="ask"), audit=audit)
    kept, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
    running = seeker(guard, "fog", "spot 0.9", "!", checkpointer=kept)
    assert running.invoke(ASKED, config)["__interrupt__"][0].value["reason"] == "no number"
    if elsewhere:
        other = Guard(SaysSo(*[0.9] * 4), GuardPolicy(on_failure="ask"), audit=audit)
        running = seeker(other, "spot 0.9", "!", checkpointer=kept)
    last = running.invoke(Command(resume=goes_on), config)["messages"][-1]
    assert (last.text == "done") is goes_on and ("agent_rrm" in last.additional_kwargs) is not goes_on
    rows = list(read_audit(audit))
    assert (
        rows[0].status == "judge_error" and [r.resumed for r in rows] == [False, True, False, False][: 1 + 3 * goes_on]
    )


def test_two_runs_have_sessions_of_their_own() -> None:
    guard = Guard(SaysSo(*[0.0] * 4), GuardPolicy(patience=4))
    middleware = GuardMiddleware(guard)
    for _ in range(2):  # four steps below, then four others
        said = [AIMessage("", tool_calls=[{"name": "look", "args": {"where": "x"}, "id": f"c{k}"}]) for k in range(3)]
        model = Model(messages=iter([*said, AIMessage("done")]))
        running = create_agent(model, [look], middleware=[middleware])
        assert running.invoke(ASKED)["messages"][-1].text == "done"
    assert middleware._sessions == {} and "langchain" in sys.modules
