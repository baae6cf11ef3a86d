"""OpenAI Agents SDK: a guard as hooks, `await Runner.run(agent, question, hooks=GuardHooks(guard))`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import MissingExtra, ReadError
from rrm.guard import Guard, GuardVerdict
from rrm.readers import read_value

try:
    from agents.exceptions import AgentsException  # pyright: ignore[reportMissingImports]

    from agents import RunHooks  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
except ImportError as missing:
    raise MissingExtra("the hooks need openai-agents: pip install 'agent-rrm[openai-agents]'") from missing

OnAsk = Callable[[GuardVerdict], "bool | Awaitable[bool]"]  # returns whether the run may continue


class GuardHalted(AgentsException):
    """A guard ended the run; `items` is the model's input, for a run that continues from there."""

    def __init__(self, verdict: GuardVerdict, items: list[Any]) -> None:
        self.verdict, self.items = verdict, items
        super().__init__(f"the guard says {verdict.action} after step {verdict.step}: {verdict.reason}")


class GuardHooks(RunHooks):
    """Judge one run after each step; `halt`, or an `ask` that `on_ask` denies, raises `GuardHalted`."""

    def __init__(self, guard: Guard, *, run: str | None = None, on_ask: OnAsk | None = None) -> None:
        super().__init__()
        self.session, self.on_ask = guard.session(run=run), on_ask

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]) -> None:
        verdict = await asyncio.to_thread(self._look, system_prompt, input_items)
        if verdict.action == "continue":
            return
        if verdict.action == "ask" and self.on_ask is not None:
            allowed = self.on_ask(verdict)
            if (await allowed) if inspect.isawaitable(allowed) else allowed:
                self.session.resume()
                return
        raise GuardHalted(verdict, list(input_items))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        await asyncio.to_thread(self.session.close)

    def _look(self, system_prompt: str | None, items: list[Any]) -> GuardVerdict:
        try:
            return self.session.judge_if_new(conversation(system_prompt, items))
        except ReadError as error:
            return self.session.failed(str(error))


def conversation(system_prompt: str | None, items: list[Any]) -> Trajectory:
    """Convert a model's input to a transcript; raises `ReadError`."""
    if not any(_is_the_agents(item) for item in items):
        return Trajectory(id="run", messages=[])
    record = {"items": items, **({"instructions": system_prompt} if system_prompt else {})}
    (trajectory,) = read_value(record, "run", format="responses")
    if isinstance(trajectory, ReadError):
        raise trajectory
    return trajectory


def _is_the_agents(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    return item.get("role") == "assistant" or str(item.get("type", "")).endswith("_call")
