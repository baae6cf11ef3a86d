"""An environment under guard: a judge reads the episode after each turn and may end it (`rrm.guard`).

    guard = Guard(judge, GuardPolicy(halt_below=0.1), audit="audit.jsonl")
    rollout(engine, tokenizer, guarded(make_env, guard), tasks, params=params)

A halted episode has the status `halted`, is priced like one that a limit ended (`RewardWeights.unanswered`) or with `halted_reward`, and
its last turn's info says why. Halted because the judge failed (`on_failure`) or its budget was used up (`on_exhausted`), it has an
unknown outcome (`success` is None), and nothing is learned from it. `ask` lets the episode go on, and stands in the info and the audit.

A rollout asks the guard itself, beside the environment's time-out; `step` does it for loops of your own."""

import asyncio
import functools
import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reagent.env.env import EnvFactory, Environment, StepResult, takes_stop_reason
from reagent.env.task import Task
from rrm.engines.async_runner import in_thread
from rrm.engines.base import StopReason
from rrm.errors import ConfigError
from rrm.guard import Guard, GuardSession, GuardVerdict

HALTED = "halted"  # in `StepResult.info["ended_by"]`: the guard ended the episode
TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class GuardDecision:
    info: dict[str, Any]  # `info["guard"]`
    halts: bool = False
    of_agent: bool = False
    """It halts because of the episode's scores. False: for want of a judgement."""

    @property
    def why(self) -> str:
        return str(self.info.get("reason"))

    @property
    def over(self) -> dict[str, Any]:
        return {"ended_by": HALTED, "answer": None, "success": False if self.of_agent else None}


class _Watched:
    """One episode's session. Threads take turns at judging it, late ones that nobody waits for included."""

    def __init__(self, session: GuardSession) -> None:
        self.unseen: deque[Mapping[str, Any]] = deque()
        self._session, self._lock, self._over = session, threading.Lock(), False

    def judge(self) -> GuardDecision:
        with self._lock:
            session = self._session
            if self._over:
                return GuardDecision(_decision_info(session.standing()))
            new = bool(self.unseen)  # else a late thread has judged them
            while self.unseen:
                session.observe(self.unseen.popleft(), check=False)
            verdict = session.check() if new else session.standing()
            # of the agent speaks what stands of its scores; a judge that failed or has no budget left says nothing of it
            return GuardDecision(_decision_info(verdict), verdict.action == "halt", session.state.counted == "halt")

    def close(self) -> None:
        with self._lock:
            self._over = True
            self._session.close()


class GuardedEnv:
    """One environment and the session that watches its episode; other attributes are the environment's.

    Args:
        env: plays the episodes; its `step` takes `stop_reason`.
        guard: shared with other environments; they take turns at its judge.
        halted_reward: outcome of an episode halted for its scores; None: the environment's for a limit. Set it below the worst that an
            episode can earn by playing on, or a policy that sees no way to an answer does better by being halted.
        timeout_s: for a verdict, the wait for other episodes' included; then the episode goes on, `not_judged`.

    Raises:
        ConfigError: `step` takes no `stop_reason`, or a number is out of range.
    """

    def __init__(
        self, env: Environment, guard: Guard, *, halted_reward: float | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        if not takes_stop_reason(env):
            raise ConfigError(
                f"{type(env).__name__}.step takes no stop_reason: a guarded environment needs one that does"
            )
        if halted_reward is not None and not math.isfinite(halted_reward):
            raise ConfigError(f"halted_reward must be a finite number, got {halted_reward}")
        if not 0.0 < timeout_s <= threading.TIMEOUT_MAX:
            raise ConfigError(f"timeout_s must be a positive number of seconds, got {timeout_s}")
        self.env, self.guard, self.halted_reward, self.timeout_s = env, guard, halted_reward, timeout_s
        self._watched: _Watched | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not made yet: a copy is being built
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def tools(self) -> list[dict[str, Any]]:
        return self.env.tools

    def reset(self, task: Task) -> list[dict[str, Any]]:
        messages = self.env.reset(task)
        self.leave()
        self._watched = _Watched(self.guard.session(task=task.question, tools=self.env.tools, messages=messages))
        return messages

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """The environment's step; the guard is asked unless the episode is over by it."""
        result = await self.env.step(text, stop_reason=stop_reason)
        if self._watched is None or result.terminated or result.truncated:
            self.leave()
            return result
        self.observe([result.message, *result.observations])
        verdict = asyncio.wrap_future(in_thread(self.judge, "guard"))
        try:
            decision = await asyncio.wait_for(verdict, self.timeout_s)
        except TimeoutError:
            decision = self.late()
        result = replace(result, info=result.info | {"guard": decision.info})
        if not decision.halts:
            return result
        self.leave()
        reward = self.halted_reward if decision.of_agent else None
        return replace(result, truncated=True, outcome_reward=reward, info=result.info | decision.over)

    # ---- for who plays the environment and asks the guard apart ----

    def observe(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Queue a turn and its results for the next judgement; waits for nothing."""
        if self._watched is not None:
            self._watched.unseen.extend(messages)

    def judge(self) -> GuardDecision:
        """Judge the episode so far. Waits for other episodes' turns at the judge."""
        watched = self._watched
        return GuardDecision({"action": "continue", "status": "not_judged"}) if watched is None else watched.judge()

    def late(self) -> GuardDecision:
        """The decision for a verdict that did not come in time; that verdict counts with the next turn's."""
        why = f"no verdict within {self.timeout_s:g} s"
        return GuardDecision({"action": "continue", "status": "not_judged", "reason": why, "tokens": 0})

    def leave(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            in_thread(watched.close, "guard leaves")

    async def close(self) -> None:
        self.leave()
        await self.env.close()


def guarded(
    make: EnvFactory, guard: Guard, *, halted_reward: float | None = None, timeout_s: float = TIMEOUT_S
) -> EnvFactory:
    """Make environments under guard; see `GuardedEnv`. It pickles where `make` and the guard's judge do."""
    return functools.partial(_made, make, guard, halted_reward, timeout_s)


def _made(make: EnvFactory, guard: Guard, halted_reward: float | None, timeout_s: float) -> GuardedEnv:
    return GuardedEnv(make(), guard, halted_reward=halted_reward, timeout_s=timeout_s)


def _decision_info(verdict: GuardVerdict) -> dict[str, Any]:
    names = ("action", "status", "score", "p_good", "reason", "tokens")
    return {name: value for name in names if (value := getattr(verdict, name)) is not None}
