"""verifiers (v1): the judge as a judge plugin of a task.

    pip install verifiers 'agent-rrm[local]'
    python examples/verifiers_judge.py

The plugin is this module: `{id = "verifiers-judge", judge = "http://127.0.0.1:8321", weight = 0.3}` under `taskset.task.judges`, with this
file beside the taskset. The rollout is replayed here. The last line is JSON: the reward and what the judge said.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

try:
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.types import AssistantMessage, UserMessage
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install verifiers 'agent-rrm[local]'")

from rrm import Trajectory
from rrm.data.feedback import Mode
from rrm.errors import RRMError
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import by_content, log_fields
from rrm.readers.messages import chat_messages

__all__ = ["AgentRRMJudge"]


class AgentRRMJudgeConfig(vf.JudgeConfig):
    judge: str | None = None  # as `--model` takes it
    mode: Mode = "score"


class AgentRRMJudge(vf.Judge[float, AgentRRMJudgeConfig]):
    """The judge's score in [0, 1] of a trace's last branch, with details in `trace.info["agent_rrm"]`."""

    async def score(self, task: vf.TaskData, trace: vf.Trace) -> float:
        judge = await asyncio.to_thread(asker, self.config.judge, mode=self.config.mode)
        (feedback,) = await judge.ask_async([as_trajectory(task, trace)])
        trace.info["agent_rrm"] = log_fields(feedback)
        if feedback.score is None:
            raise RRMError(f"the judge gave no score ({feedback.status}: {feedback.reason})")
        return feedback.score


def as_trajectory(task: vf.TaskData, trace: vf.Trace) -> Trajectory:
    branch = trace.branches[-1].messages if trace.branches else []
    messages = chat_messages([message.model_dump(exclude_none=True) for message in branch])
    tools = [{"type": "function", "function": t.model_dump(exclude_none=True)} for t in trace.tools]
    run = {"id": "", "task": task.prompt_text or "", "messages": messages, "tools": tools or None}
    return by_content(Trajectory.model_validate(run))


class Arithmetic(vf.Task):
    """A task without rewards of its own."""


def main() -> None:
    """Score one rollout."""
    sys.path.insert(0, str(Path(__file__).parent))  # where verifiers looks for the plugin
    config = vf.TaskConfig.model_validate({"judges": [{"id": "verifiers-judge", "name": "process", "judge": "lab"}]})
    data = vf.TaskData(idx=0, prompt="What is 6 * 7?")
    turns = [UserMessage(content="What is 6 * 7?"), AssistantMessage(content="6 * 7 is 42. Final Answer: 42")]
    nodes = [MessageNode(message=m, parent=n - 1 if n else None, sampled=n > 0) for n, m in enumerate(turns)]
    trace = vf.Trace.model_validate(
        {"task": {"type": "Arithmetic", "data": data}, "agent": {"config": {}}, "nodes": nodes}
    )
    asyncio.run(Arithmetic(data, config).score(trace))
    reward = trace.rewards["process"]
    print(json.dumps({"score": reward.value if reward else None, **trace.info["agent_rrm"]}))


if __name__ == "__main__":
    main()
