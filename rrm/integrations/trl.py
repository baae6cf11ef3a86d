"""TRL's GRPOTrainer: the judge as one of its `reward_funcs`, or of its `environment_factory`.

A failed judgement is None, which TRL counts as 0 beside another reward: add the two up in one function (`beside`).
AsyncGRPOTrainer pickles these: name the judge, and it is loaded in the other process.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.integrations.loading import LazyAsker
from rrm.integrations.rows import messages_of, tools_of
from rrm.integrations.trl_environment import JudgedEnvironments, schemas
from rrm.judge.cached_judge import BatchJudge, by_content, first_finding
from rrm.readers.base import first_user_text

log = logging.getLogger(__name__)

Rewards = list[float | None]
Tools = Sequence[Callable[..., Any] | dict[str, Any]]
UNREADABLE = "unreadable"  # status of a row that is no transcript: its reward is None


def reward_func(
    judge: str | BatchJudge | None,
    *,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
    tools: Tools | None = None,
    beside: Callable[..., Rewards] | None = None,
    weight: float = 1.0,
) -> Callable[..., Rewards]:
    """Make a reward function: weight · s of prompt and completion, plus R of `beside`.

    It logs the columns `agent_rrm_score`, `agent_rrm_status` and `agent_rrm_finding` (the first bad step), and the metrics
    `agent_rrm/score` and `agent_rrm/failed` (share of rows, unreadable ones included).

    Args:
        judge: as `rrm.integrations.loading.asker`; a named one is loaded with the first batch, once a process.
        mode: `score` gives no findings; `steps`, `critique` and `full` do.
        tools: functions or schemas, where a row's environment or column `tools` has none.
        beside: a reward function to add. The sum is None where either is, so that TRL leaves the row out.
    """
    if beside is not None and _is_async(beside):
        raise ConfigError("the reward function beside the judge's is asynchronous: use async_reward_func")
    return _Reward(LazyAsker(judge, mode=mode, samples=samples, seed=seed), schemas(tools or ()), beside, weight)


def async_reward_func(
    judge: str | BatchJudge | None,
    *,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
    tools: Tools | None = None,
    beside: Callable[..., Rewards] | Callable[..., Awaitable[Rewards]] | None = None,
    weight: float = 1.0,
) -> Callable[..., Awaitable[Rewards]]:
    """`reward_func` as a coroutine, which TRL runs beside its other asynchronous ones."""
    return _AsyncReward(LazyAsker(judge, mode=mode, samples=samples, seed=seed), schemas(tools or ()), beside, weight)


def judged_environment(
    factory: Callable[[], Any],
    judge: str | BatchJudge | None,
    *,
    weight: float = 1.0,
    unplayed: float | None = None,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
) -> JudgedEnvironments:
    """Make an `environment_factory` whose environments' `get_reward` is R_env + weight · s.

    R_env is the environment's own `get_reward`, or 0. TRL tells an environment its row and calls but no text of the model: the
    judge reads no final answer. Give the agent a tool to answer with, or use `reward_func`.

    Args:
        factory: makes the environment: a class of TRL's protocol, or a function.
        judge: as `reward_func` takes it.
        unplayed: replaces weight · s in an episode without a call; None: R_env alone, or no reward where there is none.
    """
    return JudgedEnvironments(factory, LazyAsker(judge, mode=mode, samples=samples, seed=seed), weight, unplayed)


def as_trajectory(name: str | None, prompt: Any, completion: Any, tools: Any = None) -> Trajectory:
    """Convert a TRL prompt and completion (text, or messages) to a Trajectory; raises `RRMError`."""
    try:
        messages = [*messages_of("user", prompt, "prompt"), *messages_of("assistant", completion, "completion")]
        tool_schemas = tools_of(tools, "tools")
        row = Trajectory(id=name or "", task=first_user_text(messages), messages=messages, tools=tool_schemas)  # pyright: ignore[reportArgumentType]  # validated
        return row if name else by_content(row)
    except ValueError as error:
        raise RRMError(f"no transcript: {error}") from error


class _Batch:
    # picklable: TRL may call a reward function in another process
    def __init__(self, asking: LazyAsker, tools: list[dict[str, Any]], beside: Any, weight: float) -> None:
        self.asking, self.tools, self.beside, self.weight = asking, tools, beside, weight
        self.__name__ = "agent_rrm_score" if beside is None else "agent_rrm_reward"

    def _read(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> list[Trajectory | str]:
        """Convert rows to transcripts, or to the reason why not."""
        rows: list[Trajectory | str] = []
        for index, row in enumerate(zip(prompts, completions, strict=True)):
            try:
                rows.append(as_trajectory(None, *row, self._tools(columns, index)))
            except RRMError as error:
                log.warning("row %d of a batch has no reward: %s", index, error)
                rows.append(str(error))
        return rows

    def _tools(self, columns: dict[str, Any], index: int) -> Any:
        if environments := columns.get("environments"):
            return [*self.tools, *schemas(environments[index])]
        own = columns["tools"][index] if columns.get("tools") is not None else None
        return own if own is not None and len(own) else self.tools

    def _paid(
        self, rows: list[Trajectory | str], feedback: Sequence[Feedback], own: Rewards | None, columns: dict[str, Any]
    ) -> Rewards:
        # also logs to TRL
        judged = iter(feedback)
        results = [row if isinstance(row, str) else next(judged) for row in rows]
        scores = [None if isinstance(result, str) else result.score for result in results]
        if extra := columns.get("log_extra"):
            extra("agent_rrm_score", scores)
            extra("agent_rrm_status", [UNREADABLE if isinstance(result, str) else result.status for result in results])
            extra(
                "agent_rrm_finding",
                [
                    result if isinstance(result, str) else first_finding(result) or result.reason or ""
                    for result in results
                ],
            )
        if metric := columns.get("log_metric"):
            judged_scores = [score for score in scores if score is not None]
            metric("agent_rrm/failed", 1 - len(judged_scores) / max(len(scores), 1))
            if judged_scores:
                metric("agent_rrm/score", sum(judged_scores) / len(judged_scores))
        paid = zip(scores, [0.0] * len(scores) if own is None else own, strict=True)
        return [None if score is None or other is None else other + self.weight * score for score, other in paid]


class _Reward(_Batch):
    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> Rewards:
        rows = self._read(prompts, completions, columns)
        feedback = self.asking().ask([row for row in rows if not isinstance(row, str)])
        own = None if self.beside is None else self.beside(prompts=prompts, completions=completions, **columns)
        return self._paid(rows, feedback, own, columns)


class _AsyncReward(_Batch):
    async def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> Rewards:
        rows = self._read(prompts, completions, columns)
        asking = await asyncio.to_thread(self.asking)
        feedback = await asking.ask_async([row for row in rows if not isinstance(row, str)])
        own = None if self.beside is None else self.beside(prompts=prompts, completions=completions, **columns)
        return self._paid(rows, feedback, await own if inspect.isawaitable(own) else own, columns)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
