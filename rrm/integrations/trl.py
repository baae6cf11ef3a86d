"""TRL's GRPOTrainer: the judge as a reward function, and as the reward of an environment.

    GRPOTrainer(..., reward_funcs=reward_func(AgentRRM.from_pretrained(), mode="steps"))
    GRPOTrainer(..., environment_factory=judged_environment(MyEnvironment, AgentRRM.from_pretrained()))

A judgement that fails is None, which TRL leaves out of a group. Nothing here imports TRL: its contracts are plain functions and classes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rrm.feedback import Feedback, Mode
from rrm.integrations.asking import Asker, Judge, by_content, first_finding
from rrm.integrations.trl_environment import JudgedEnvironments, schemas
from rrm.trajectory import Message, Trajectory

Rewards = list[float | None]
Tools = Sequence[Callable[..., Any] | dict[str, Any]]


def reward_func(
    judge: Judge, *, mode: Mode = "score", samples: int = 1, seed: int = 0, tools: Tools | None = None
) -> Callable[..., Rewards]:
    """A reward function: the calibrated score of prompt and completion as a transcript.

    Conversational and plain-text rows both work. The judge reads the tools of a row's environment or of its column `tools`, or else
    `tools`. Of each row it logs the columns `agent_rrm_score`, `agent_rrm_status` and `agent_rrm_finding` (the first step called bad),
    and of each batch the metrics `agent_rrm/score` and `agent_rrm/failed` (the share of judgements that failed).

    Args:
        mode: `score` gives no findings; `steps`, `critique` and `full` do.
        tools: those of GRPOTrainer, functions or schemas, where the rows do not name their own.
    """
    asker, shared = Asker(judge, mode=mode, samples=samples, seed=seed), schemas(tools or ())

    def agent_rrm_score(prompts: list[Any], completions: list[Any], **columns: Any) -> Rewards:
        return _rewards(asker.ask(_rows(prompts, completions, columns, shared)), columns)

    return agent_rrm_score


def async_reward_func(
    judge: Judge, *, mode: Mode = "score", samples: int = 1, seed: int = 0, tools: Tools | None = None
) -> Callable[..., Awaitable[Rewards]]:
    """`reward_func` as a coroutine: TRL runs it beside its other asynchronous reward functions. For a judge over a server."""
    asker, shared = Asker(judge, mode=mode, samples=samples, seed=seed), schemas(tools or ())

    async def agent_rrm_score(prompts: list[Any], completions: list[Any], **columns: Any) -> Rewards:
        return _rewards(await asker.ask_async(_rows(prompts, completions, columns, shared)), columns)

    return agent_rrm_score


def judged_environment(
    factory: Callable[[], Any],
    judge: Judge,
    *,
    weight: float = 1.0,
    unplayed: float | None = None,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
) -> Callable[[], Any]:
    """An `environment_factory` whose environments ask the judge in `get_reward`: R_env + weight · s.

    R_env is what the environment's own `get_reward` gives, 0 without one. TRL tells an environment its row and its calls, but nothing
    that the model says beside them: the judge reads the question, the calls and what came back, and no last answer. Where that
    matters, give the agent a tool to answer with, or use `reward_func`, which reads whole completions.

    Args:
        factory: makes the environment that is judged: a class of TRL's protocol, or a function.
        unplayed: the reward of an episode without a call, of which there is nothing to judge; None leaves it out.
    """
    asker = Asker(judge, mode=mode, samples=samples, seed=seed)
    return JudgedEnvironments(factory, asker, weight, unplayed)


def as_trajectory(name: str | None, prompt: Any, completion: Any, tools: Any = None) -> Trajectory:
    """A TRL prompt and completion (text, or lists of messages) as a Trajectory; without a name it is named by its content."""
    before = _messages("user", prompt)
    task = next((m.text() for m in before if m.role == "user"), "")
    row = Trajectory(id=name or "", task=task, messages=before + _messages("assistant", completion), tools=tools)
    return row if name else by_content(row)


def _messages(role: Any, said: Any) -> list[Message]:
    return [Message(role=role, content=said)] if isinstance(said, str) else [Message(**_plain(m)) for m in said]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Without pictures, which are no JSON: a judge reads that there was one."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [p if p.get("type") == "text" else {"type": str(p.get("type", "part"))} for p in content]
    return {**message, "content": parts}


def _rows(
    prompts: list[Any], completions: list[Any], columns: dict[str, Any], shared: list[dict[str, Any]]
) -> list[Trajectory]:
    tools = _tools(columns, len(prompts), shared)
    return [as_trajectory(None, *row) for row in zip(prompts, completions, tools, strict=True)]


def _tools(columns: dict[str, Any], rows: int, shared: list[dict[str, Any]]) -> list[Any]:
    """What each row's agent could call."""
    if environments := columns.get("environments"):
        return [[*shared, *schemas(environment)] or None for environment in environments]
    given = columns.get("tools") or [None] * rows
    return [(json.loads(own) if isinstance(own, str) else own) or shared or None for own in given]


def _rewards(said: list[Feedback], columns: dict[str, Any]) -> Rewards:
    """The scores; and to TRL's logs what was said."""
    if extra := columns.get("log_extra"):
        extra("agent_rrm_score", [f.score for f in said])
        extra("agent_rrm_status", [f.status for f in said])
        extra("agent_rrm_finding", [first_finding(f) or f.reason or "" for f in said])
    if metric := columns.get("log_metric"):
        scores = [f.score for f in said if f.score is not None]
        metric("agent_rrm/failed", 1 - len(scores) / max(len(said), 1))
        if scores:
            metric("agent_rrm/score", sum(scores) / len(scores))
    return [f.score for f in said]
