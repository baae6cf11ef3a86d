"""TRL's GRPOTrainer: the judge as a reward function, and as the reward of an environment.

    GRPOTrainer(..., reward_funcs=reward_func(AgentRRM.from_pretrained(), mode="steps"))
    GRPOTrainer(..., environment_factory=judged_environment(MyEnvironment, AgentRRM.from_pretrained()))

A judgement that fails is None. TRL leaves out a row of which every reward is None; beside another reward it counts as 0, so have the two
added up in one function (`beside`). AsyncGRPOTrainer sends these to another process: name the judge, and it is loaded there.
Nothing here imports TRL: its contracts are plain functions and classes.
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
UNREADABLE = "unreadable"
"""The status of a row that is no transcript: its reward is None."""


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
    """A reward function: weight · s, the calibrated score of prompt and completion as a transcript; with another one beside it R + weight · s.

    Conversational and plain-text rows both work. The judge reads the tools of a row's environment or of its column `tools`, or else
    `tools`. Of each row it logs the columns `agent_rrm_score`, `agent_rrm_status` and `agent_rrm_finding` (the first step called bad),
    and of each batch the metrics `agent_rrm/score` and `agent_rrm/failed` (the share of judgements that failed). A row that cannot be
    read is one of those.

    Args:
        judge: one that is loaded, or as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package): a named
            one is loaded with the first batch, once a process.
        mode: `score` gives no findings; `steps`, `critique` and `full` do.
        tools: those of GRPOTrainer, functions or schemas, where the rows do not name their own.
        beside: a reward function whose rewards are added. The sum is None where either is, so that TRL leaves the row out.
        weight: times the score.

    Raises:
        ConfigError: `beside` is asynchronous: `async_reward_func` takes it.
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
    """`reward_func` as a coroutine: TRL runs it beside its other asynchronous reward functions. For a judge over a server."""
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
    """An `environment_factory` whose environments ask the judge in `get_reward`: R_env + weight · s.

    R_env is what the environment's own `get_reward` gives, 0 without one. TRL tells an environment its row and its calls, but nothing
    that the model says beside them: the judge reads the question, the calls and what came back, and no last answer. Where that
    matters, give the agent a tool to answer with, or use `reward_func`, which reads whole completions.

    GRPOTrainer asks once all episodes of an update have ended, and they are judged in one batch. Where one of them goes on after that
    (AsyncGRPOTrainer's episodes overlap), each is judged when it is asked for its reward, together with those that wait then.

    Args:
        factory: makes the environment that is judged: a class of TRL's protocol, or a function.
        judge: as `reward_func` takes it.
        unplayed: what stands for weight · s in an episode without a call, of which there is nothing to judge. None: R_env alone is the
            reward, and an environment without a reward of its own leaves the episode out.
    """
    return JudgedEnvironments(factory, LazyAsker(judge, mode=mode, samples=samples, seed=seed), weight, unplayed)


def as_trajectory(name: str | None, prompt: Any, completion: Any, tools: Any = None) -> Trajectory:
    """A TRL prompt and completion (text, or lists of messages) as a Trajectory; without a name it is named by its content.

    Raises:
        RRMError: they cannot be read.
    """
    try:
        messages = [*messages_of("user", prompt, "prompt"), *messages_of("assistant", completion, "completion")]
        known = tools_of(tools, "tools")
        row = Trajectory(id=name or "", task=first_user_text(messages), messages=messages, tools=known)  # pyright: ignore[reportArgumentType]  # validated
        return row if name else by_content(row)
    except ValueError as error:
        raise RRMError(f"no transcript: {error}") from error


class _Batch:
    """What both reward functions share. They can be pickled, as TRL wants it where another process calls them."""

    def __init__(self, asking: LazyAsker, tools: list[dict[str, Any]], beside: Any, weight: float) -> None:
        self.asking, self.tools, self.beside, self.weight = asking, tools, beside, weight
        self.__name__ = "agent_rrm_score" if beside is None else "agent_rrm_reward"

    def _read(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> list[Trajectory | str]:
        """The rows as transcripts; of one that cannot be read why."""
        rows: list[Trajectory | str] = []
        for at, row in enumerate(zip(prompts, completions, strict=True)):
            try:
                rows.append(as_trajectory(None, *row, self._tools(columns, at)))
            except RRMError as error:
                log.warning("row %d of a batch has no reward: %s", at, error)
                rows.append(str(error))
        return rows

    def _tools(self, columns: dict[str, Any], at: int) -> Any:
        """What a row's agent could call."""
        if environments := columns.get("environments"):
            return [*self.tools, *schemas(environments[at])]
        own = columns["tools"][at] if columns.get("tools") is not None else None
        return own if own is not None and len(own) else self.tools

    def _paid(
        self, rows: list[Trajectory | str], said: Sequence[Feedback], own: Rewards | None, columns: dict[str, Any]
    ) -> Rewards:
        """The rewards; and to TRL's logs what was said."""
        judged = iter(said)
        found = [row if isinstance(row, str) else next(judged) for row in rows]
        scores = [None if isinstance(one, str) else one.score for one in found]
        if extra := columns.get("log_extra"):
            extra("agent_rrm_score", scores)
            extra("agent_rrm_status", [UNREADABLE if isinstance(one, str) else one.status for one in found])
            extra(
                "agent_rrm_finding",
                [one if isinstance(one, str) else first_finding(one) or one.reason or "" for one in found],
            )
        if metric := columns.get("log_metric"):
            known = [score for score in scores if score is not None]
            metric("agent_rrm/failed", 1 - len(known) / max(len(scores), 1))
            if known:
                metric("agent_rrm/score", sum(known) / len(known))
        paid = zip(scores, [0.0] * len(scores) if own is None else own, strict=True)
        return [None if score is None or other is None else other + self.weight * score for score, other in paid]


class _Reward(_Batch):
    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> Rewards:
        rows = self._read(prompts, completions, columns)
        said = self.asking().ask([row for row in rows if not isinstance(row, str)])
        own = None if self.beside is None else self.beside(prompts=prompts, completions=completions, **columns)
        return self._paid(rows, said, own, columns)


class _AsyncReward(_Batch):
    async def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> Rewards:
        rows = self._read(prompts, completions, columns)
        asking = await asyncio.to_thread(self.asking)
        said = await asking.ask_async([row for row in rows if not isinstance(row, str)])
        own = None if self.beside is None else self.beside(prompts=prompts, completions=completions, **columns)
        return self._paid(rows, said, await own if inspect.isawaitable(own) else own, columns)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
