"""LangChain: a guard as middleware, `create_agent(model, tools, middleware=[GuardMiddleware(guard)])`.

Each new step is judged before the model's next call; earlier turns of the thread are context. `halt` ends the run with a
message; `ask` interrupts it (`langgraph.types.interrupt`), which needs a checkpointer: `Command(resume=True)` continues.
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

RUN = "agent_rrm_run"  # key of the state: the run's id in the audit


class GuardState(AgentState):
    agent_rrm_run: str


class GuardMiddleware(AgentMiddleware):
    """Judge a LangChain agent's run after each step; one middleware may watch many runs.

    With the guard's audit an interrupted run can continue in another process.
    """

    state_schema = GuardState

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard
        self._sessions: dict[str, GuardSession] = {}
        self._lock = threading.Lock()

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {RUN: uuid.uuid4().hex[:16]}

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        session = self._session(state[RUN])
        return self._answer(session, self._look(session, state["messages"]))

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        session = self._session(state[RUN])
        return self._answer(session, await asyncio.to_thread(self._look, session, state["messages"]))

    def after_agent(self, state: Any, runtime: Any) -> None:
        # judges the last step for the audit
        session = self._session(state[RUN])
        with self._lock:
            del self._sessions[state[RUN]]
        self._look(session, state["messages"])
        session.close()

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
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
        text = f"The run was ended by its guard ({verdict.reason or verdict.action})."
        if verdict.action == "ask":
            question = {"guard": "ask", "reason": verdict.reason, "score": verdict.score, "step": verdict.step}
            if interrupt(question) is True:
                session.resume()
                return None
        return {"jump_to": "end", "messages": [AIMessage(text, additional_kwargs={"agent_rrm": verdict.action})]}


def conversation(messages: list[Any]) -> Trajectory:
    """Convert LangChain's messages to a transcript, without the guard's own; raises `ReadError`."""
    own_messages = [m for m in messages if not m.additional_kwargs.get("agent_rrm")]
    if not own_messages:
        return Trajectory(id="run", messages=[])
    (trajectory,) = read_value({"messages": [m.model_dump() for m in own_messages]}, "run", format="langchain")
    if isinstance(trajectory, ReadError):
        raise trajectory
    return trajectory
