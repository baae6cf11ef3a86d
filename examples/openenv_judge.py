"""OpenEnv: the judge's score of an episode as its rubric's reward.

    pip install openenv-core 'agent-rrm[local]'
    python examples/openenv_judge.py

An environment of yours has it as `self.rubric` and sets `rubric.task` in its `reset`. The last line is JSON: the last reward.
"""

from __future__ import annotations

import json
import sys
from typing import Any

try:
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
    from openenv.core.rubrics import TrajectoryRubric
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install openenv-core 'agent-rrm[local]'")

from rrm import AgentRRM, Trajectory
from rrm.errors import RRMError
from rrm.readers.messages import chat_messages


class JudgeRubric(TrajectoryRubric):
    """0 until an episode is `done`, then its score; a failed judgement is an error."""

    def __init__(self, judge: AgentRRM, task: str = "") -> None:
        super().__init__(intermediate_reward=0.0)
        self.judge, self.task = judge, task

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.task}]
        for number, (action, observation) in enumerate(trajectory):
            messages += self.turn(f"c{number}", action, observation)
        run = Trajectory(id="episode", task=self.task, messages=chat_messages(messages))  # pyright: ignore
        (feedback,) = self.judge.judge([run], mode="score")
        if feedback.score is None:
            raise RRMError(f"the judge gave no score ({feedback.status}: {feedback.reason})")
        return feedback.score

    def compute_step_rewards(self) -> list[float]:
        return [0.0] * (len(self._trajectory) - 1) + [self.score_trajectory(self._trajectory)]

    @staticmethod
    def turn(call_id: str, action: Any, observation: Any) -> list[dict[str, Any]]:
        """A tool's call and its result; change it for actions of other forms."""
        call = {"id": call_id, "name": action.tool_name, "arguments": action.arguments}
        result = json.dumps(observation.result, default=str)
        return [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]


if __name__ == "__main__":
    rubric = JudgeRubric(AgentRRM.from_pretrained("lab"), "What is 6 * 7?")
    reward = 0.0
    for name, arguments, result in (("multiply", {"a": 6, "b": 7}, "42"), ("answer", {"text": "42"}, "thank you")):
        action = CallToolAction(tool_name=name, arguments=arguments)
        reward = rubric(action, CallToolObservation(tool_name=name, result=result, done=name == "answer"))
    print(json.dumps({"score": reward}))
