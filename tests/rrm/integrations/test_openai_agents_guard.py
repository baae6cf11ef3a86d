"""The guard as hooks of the OpenAI Agents SDK, in real runs with a scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.exceptions", reason="openai-agents (extra `openai-agents`) is not installed")

from guarded import Reads, SaysSo
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from rrm.guard import Guard, GuardPolicy, read_audit
from rrm.integrations.openai_agents_guard import GuardHalted, GuardHooks

set_tracing_disabled(True)


class Looks(Model):
    """Calls its tool so often, then answers."""

    def __init__(self, calls: int) -> None:
        self.calls, self.made = calls, 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.made += 1
        item: Any
        if self.made <= self.calls:
            item = ResponseFunctionToolCall(
                type="function_call", call_id=f"c{self.made}", name="look", arguments=f'{{"where": "side {self.made}"}}'
            )
        else:
            text = ResponseOutputText(type="output_text", text="it is gone", annotations=[])
            item = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


@function_tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing on the {where}"


def play(hooks: GuardHooks, calls: int = 3) -> Any:
    agent = Agent(name="seeker", instructions="Find it.", model=Looks(calls), tools=[look])
    return asyncio.run(Runner.run(agent, "where is it?", hooks=hooks))


def test_a_failing_run_is_halted(tmp_path: Path) -> None:
    judge, audit = SaysSo(0.5, 0.05, 0.05), tmp_path / "audit.jsonl"
    with pytest.raises(GuardHalted, match=r"halt after step 3: score 0.05; 2 steps below 0.1") as halted:
        play(GuardHooks(Guard(judge, GuardPolicy(halt_below=0.1), audit=audit), run="r"))
    assert halted.value.verdict.action == "halt" and halted.value.items[-1]["output"] == "nothing on the side 3"
    assert [(r.step, r.verdict) for r in read_audit(audit, "r")] == [(1, "continue"), (2, "continue"), (3, "halt")]
    seen = judge.seen[-1]
    assert seen.task == "where is it?" and seen.messages[0].text() == "Find it."
    assert [m.role for m in seen.messages[1:]] == ["user", *["assistant", "tool"] * 3]


def test_a_good_run_is_left_alone() -> None:
    assert play(GuardHooks(Guard(SaysSo(*[0.9] * 4)))).final_output == "it is gone"


def test_a_session_goes_on_after_a_halt() -> None:
    async def turns() -> list[str]:
        held, model = SQLiteSession("one"), Looks(1)
        agent = Agent(name="seeker", instructions="Find it.", model=model, tools=[look])
        said = []
        for question in ("where is it? 0.05", "and now?"):
            guard = Guard(judge, GuardPolicy(patience=1))
            try:
                said.append((await Runner.run(agent, question, session=held, hooks=GuardHooks(guard))).final_output)
            except GuardHalted as halted:
                said.append(halted.verdict.action)
        return said

    judge = Reads()
    assert asyncio.run(turns()) == ["halt", "it is gone"]
    assert len(judge.asked) == 1  # the first run's step; the second one's answer ended it


def test_a_run_that_is_shown_twice_is_judged_once() -> None:
    judge = Reads()
    hooks = GuardHooks(Guard(judge))
    items: list[Any] = [
        {"role": "user", "content": "where is it?"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "nothing 0.9"},
    ]
    for _ in range(2):
        asyncio.run(hooks.on_llm_start(None, None, "Find it.", items))
    assert len(judge.asked) == 1


@pytest.mark.parametrize("way", ["function", "coroutine", "nobody", "no"])
def test_asking(way: str) -> None:
    async def coroutine(verdict: Any) -> bool:
        return verdict.step == 2

    on_ask: Any = {"function": lambda v: True, "coroutine": coroutine, "nobody": None, "no": lambda v: False}[way]
    guard = Guard(SaysSo(*[0.15] * 4), GuardPolicy(halt_below=None, ask_below=0.2, patience=2))
    hooks = GuardHooks(guard, on_ask=on_ask)
    if way in ("function", "coroutine"):
        assert play(hooks).final_output == "it is gone"
    else:
        with pytest.raises(GuardHalted) as halted:
            play(hooks)
        assert halted.value.verdict.action == "ask"
