"""OpenAI Agents SDK: a guard as hooks of a run.

    result = await Runner.run(agent, question, hooks=GuardHooks(guard))

Before each call of a model what was done so far is judged, where a step has ended since; what a `Session` holds of earlier runs is read,
and not counted again. `halt` ends the run with `GuardHalted`. At `ask` the `on_ask` that you give decides; without one the run ends too,
for nobody was asked. One object watches one run. Needs the extra `openai-agents`.
"""

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

OnAsk = Callable[[GuardVerdict], "bool | Awaitable[bool]"]
"""Whether the run may go on; asked of a person, say."""


class GuardHalted(AgentsException):
    """A guard ended the run.

    Attributes:
        verdict: what it said, `halt` or `ask`.
        items: the model's input as it stood, for a run that goes on from there.
    """

    def __init__(self, verdict: GuardVerdict, items: list[Any]) -> None:
        self.verdict, self.items = verdict, items
        super().__init__(f"the guard says {verdict.action} after step {verdict.step}: {verdict.reason}")


class GuardHooks(RunHooks):
    """Judges a run after each step.

    Args:
        run: its id in the audit; a random one by default.
        on_ask: decides at `ask`; a coroutine, too.
    """

    def __init__(self, guard: Guard, *, run: str | None = None, on_ask: OnAsk | None = None) -> None:
        super().__init__()
        self.session, self.on_ask = guard.session(run=run), on_ask

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]) -> None:
        """Judge what was done so far.

        Raises:
            GuardHalted: the run ends.
        """
        verdict = await asyncio.to_thread(self._look, system_prompt, input_items)
        if verdict.action == "continue":
            return
        if verdict.action == "ask" and self.on_ask is not None:
            said = self.on_ask(verdict)
            if (await said) if inspect.isawaitable(said) else said:
                self.session.resume()
                return
        raise GuardHalted(verdict, list(input_items))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """The run is over: the judge forgets it."""
        await asyncio.to_thread(self.session.close)

    def _look(self, system_prompt: str | None, items: list[Any]) -> GuardVerdict:
        try:
            return self.session.judge_if_new(conversation(system_prompt, items))
        except ReadError as error:
            return self.session.failed(str(error))


def conversation(system_prompt: str | None, items: list[Any]) -> Trajectory:
    """A model's input as the transcript that `rrm score` reads in a log of it.

    Raises:
        ReadError: it cannot be read.
    """
    if not any(_is_the_agents(item) for item in items):
        return Trajectory(id="run", messages=[])
    record = {"items": items, **({"instructions": system_prompt} if system_prompt else {})}
    (found,) = read_value(record, "run", format="responses")
    if isinstance(found, ReadError):
        raise found
    return found


def _is_the_agents(item: Any) -> bool:
    """Whether the agent made it, rather than the user or a system."""
    if not isinstance(item, dict):
        return False
    return item.get("role") == "assistant" or str(item.get("type", "")).endswith("_call")
