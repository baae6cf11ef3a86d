"""verifiers (v1): the judge as a judge plugin of a task, in a module beside the taskset."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from rrm.data.feedback import Mode
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import MissingExtra, RRMError
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import by_content, log_fields
from rrm.readers.base import first_user_text
from rrm.readers.messages import chat_messages

try:
    import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the judge plugin needs verifiers: pip install 'agent-rrm[verifiers]'") from missing

__all__ = ["AgentRRMJudge"]


class AgentRRMJudgeConfig(vf.JudgeConfig):
    """Settings of the judge; of verifiers' own fields `name` and `weight` count."""

    judge: str | None = None
    """Name for `AgentRRM.from_pretrained`; None: the default judge."""
    mode: Mode = "score"
    samples: int = 1
    seed: int = 0
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of `AgentRRM.from_pretrained`."""


class AgentRRMJudge(vf.Judge[float, AgentRRMJudgeConfig]):
    """The judge's score in [0, 1] of a trace's last branch, with details in `trace.info["agent_rrm"]`."""

    async def score(self, task: vf.TaskData, trace: vf.Trace) -> float:
        how = self.config
        asking = await asyncio.to_thread(
            asker, how.judge, mode=how.mode, samples=how.samples, seed=how.seed, options=how.options
        )
        (feedback,) = await asking.ask_async([as_trajectory(task, trace)])
        trace.info["agent_rrm"] = log_fields(feedback)
        if feedback.score is None:
            raise RRMError(
                f"the judge gave no score ({feedback.status}{f': {feedback.reason}' if feedback.reason else ''})"
            )
        return feedback.score


def as_trajectory(task: vf.TaskData, trace: vf.Trace) -> Trajectory:
    branch = trace.branches[-1].messages if trace.branches else []
    messages = [Message(**m) for m in chat_messages([m.model_dump(exclude_none=True) for m in branch])]
    tools = [
        {"type": "function", "function": t.model_dump(include={"name", "description", "parameters"})}
        for t in trace.tools
    ]
    question = task.prompt_text or first_user_text([m.model_dump() for m in messages])
    return by_content(Trajectory(id="", task=question, messages=messages, tools=tools or None))
