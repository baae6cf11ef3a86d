"""LangChain: a guard as middleware of `create_agent`.

    agent = create_agent(model, tools, middleware=[GuardMiddleware(guard)])

Before each call of the model the conversation so far is judged, where a step has ended since; what earlier turns of the thread did is read,
and not counted again. `halt` ends the run with a message that says why; `ask` interrupts it (`langgraph.types.interrupt`), which needs a
checkpointer: `Command(resume=True)` lets it go on, `Command(resume=False)` ends it. Needs the extra `langchain`.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import MissingExtra, ReadError
from rrm.guard import Guard, GuardSession, GuardVerdict
from rrm.readers import read_value

try:
    from langchain.agents.middleware import (  # pyright: ignore[reportMissingImports]
        AgentMiddleware,
        AgentState,
        hook_config,
    )
    from langchain_core.messages import AIMessage  # pyright: ignore[reportMissingImports]
    from langgraph.types import interrupt  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the middleware needs langchain: pip install 'agent-rrm[langchain]'") from missing

RUN = "agent_rrm_run"
"""In the state: the run's id in the audit."""


class GuardState(AgentState):
    """What the middleware keeps in an agent's state."""

    agent_rrm_run: str


class GuardMiddleware(AgentMiddleware):
    """Judges a LangChain agent's run after each step; one middleware may watch many runs.

    Args:
        guard: its audit, where there is one, also knows a run that was interrupted and goes on in another process.
    """

    state_schema = GuardState

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard
        self._sessions: dict[str, GuardSession] = {}
        self._lock = threading.Lock()

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """A run begins: it gets an id."""
        return {RUN: uuid.uuid4().hex[:16]}

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Judge what was done so far, and end the run, or let a person look."""
        session = self._session(state[RUN])
        return self._answer(session, self._look(session, state["messages"]))

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """`before_model`, with the judge in a thread."""
        session = self._session(state[RUN])
        return self._answer(session, await asyncio.to_thread(self._look, session, state["messages"]))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """The run is over: its last step is judged for the audit, and the judge forgets it."""
        session = self._session(state[RUN])
        with self._lock:
            del self._sessions[state[RUN]]
        self._look(session, state["messages"])
        session.close()

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """`after_agent`, with the judge in a thread."""
        await asyncio.to_thread(self.after_agent, state, runtime)

    def _session(self, run: str) -> GuardSession:
        with self._lock:
            if run not in self._sessions:
                self._sessions[run] = self.guard.session(run=run, resume=self.guard.audit is not None)
            return self._sessions[run]

    def _look(self, session: GuardSession, messages: list[Any]) -> GuardVerdict:
        try:
            trajectory = conversation(messages)
        except ReadError as error:
            return session.failed(str(error))
        return session.judge_if_new(trajectory)

    def _answer(self, session: GuardSession, verdict: GuardVerdict) -> dict[str, Any] | None:
        if verdict.action == "continue":
            return None
        said = f"The run was ended by its guard ({verdict.reason or verdict.action})."
        if verdict.action == "ask":
            asked = {"guard": "ask", "reason": verdict.reason, "score": verdict.score, "step": verdict.step}
            if interrupt(asked) is True:
                session.resume()
                return None
        return {"jump_to": "end", "messages": [AIMessage(said, additional_kwargs={"agent_rrm": verdict.action})]}


def conversation(messages: list[Any]) -> Trajectory:
    """LangChain's messages as the transcript that `rrm score` reads in a log of them; what the guard wrote itself is left out.

    Raises:
        ReadError: they cannot be read.
    """
    said = [m for m in messages if not m.additional_kwargs.get("agent_rrm")]
    if not said:
        return Trajectory(id="run", messages=[])
    (found,) = read_value({"messages": [m.model_dump() for m in said]}, "run", format="langchain")
    if isinstance(found, ReadError):
        raise found
    return found
