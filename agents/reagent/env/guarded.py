"""An environment under guard: after each turn a judge reads the episode so far, and one that goes wrong is ended (`rrm.guard`).

    guard = Guard(judge, GuardPolicy(halt_below=0.1), audit="audit.jsonl")
    rollout(engine, tokenizer, guarded(make_env, guard), tasks, params=params)

An episode that is halted has the status `halted`: it is priced as one that a limit ended (`RewardWeights.unanswered`), or
with `halted_reward`, and its last turn's info says why. One that was halted because the judge failed (`on_failure`) or its budget was used up (`on_exhausted`) has an
unknown outcome (`success` is None): nothing is learned from it. Nobody is there to be asked, so `ask` lets it go on, and stands in the info and the audit.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from dataclasses import replace
from typing import Any

from reagent.env.env import EnvFactory, Environment, StepResult
from reagent.env.task import Task
from rrm.engines.base import StopReason
from rrm.errors import ConfigError
from rrm.guard import Guard, GuardSession, GuardVerdict

HALTED = "halted"
"""In `StepResult.info["ended_by"]`: the guard ended the episode."""


class GuardedEnv:
    """One environment and the session that watches its episode; whatever else the environment has, this has too.

    Args:
        env: plays the episodes; its `step` takes `stop_reason`.
        guard: shared with other environments; they take turns at its judge.
        halted_reward: outcome of an episode that was halted for what the judge says of it; None: the environment's of one that a
            limit ended. Set it below the worst that an episode can earn that plays on, or a policy that sees no way to an answer
            does better by being halted.

    Raises:
        ConfigError: `step` takes no `stop_reason`, or `halted_reward` is no finite number.
    """

    def __init__(self, env: Environment, guard: Guard, *, halted_reward: float | None = None) -> None:
        if "stop_reason" not in inspect.signature(env.step).parameters:
            raise ConfigError(
                f"{type(env).__name__}.step takes no stop_reason: a guarded environment needs one that does"
            )
        if halted_reward is not None and not math.isfinite(halted_reward):
            raise ConfigError(f"halted_reward must be a finite number, got {halted_reward}")
        self.env, self.guard, self.halted_reward = env, guard, halted_reward
        self._session: GuardSession | None = None

    def __getattr__(self, name: str) -> Any:
        """What else the environment has (`stop`, `template_tools`, `is_graded`, `unanswered_reward`, …)."""
        if name == "env":  # not made yet: a copy is being built
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The environment's."""
        return self.env.tools

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """Begin an episode, and watch it."""
        messages = self.env.reset(task)
        self._end()
        self._session = self.guard.session(task=task.question, tools=self.env.tools, messages=messages)
        return messages

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """The environment's step; the guard is asked unless the episode is over by it."""
        result = await self.env.step(text, stop_reason=stop_reason)
        session = self._session
        if session is None or result.terminated or result.truncated:
            self._end()
            return result
        for message in (result.message, *result.observations):
            session.observe(message, check=False)
        verdict = await asyncio.to_thread(session.check)
        info = result.info | {"guard": _told(verdict)}
        if verdict.action != "halt":
            return replace(result, info=info)
        # of the agent speaks what stands of its scores; a judge that failed or has no budget left says nothing of it
        success = False if session.standing().action == "halt" else None
        self._end()
        reward = None if success is None else self.halted_reward
        over = {"ended_by": HALTED, "answer": None, "success": success}
        return replace(result, truncated=True, outcome_reward=reward, info=info | over)

    async def close(self) -> None:
        """Close the environment."""
        self._end()
        await self.env.close()

    def _end(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def guarded(make: EnvFactory, guard: Guard, *, halted_reward: float | None = None) -> EnvFactory:
    """Makes environments under guard; see `GuardedEnv`. It can be pickled where `make` and the guard's judge can."""
    return functools.partial(_made, make, guard, halted_reward)


def _made(make: EnvFactory, guard: Guard, halted_reward: float | None) -> GuardedEnv:
    return GuardedEnv(make(), guard, halted_reward=halted_reward)


def _told(verdict: GuardVerdict) -> dict[str, Any]:
    told = {
        "action": verdict.action,
        "status": verdict.status,
        "score": verdict.score,
        "p_good": verdict.p_good,
        "reason": verdict.reason,
        "tokens": verdict.tokens,
    }
    return {name: value for name, value in told.items() if value is not None}
