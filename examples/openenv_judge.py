"""OpenEnv: the judge as the rubric of an episode, with a reward for each step. Needs `pip install 'agent-rrm[openenv,local]'`.

    python examples/openenv_judge.py

An environment of yours has it as `self.rubric` and sets `rubric.task` in its `reset`. The last line is JSON: score and step rewards.
"""

from __future__ import annotations

import json
import sys

try:
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

    from rrm.integrations.openenv_rubric import AgentRRMRubric
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[openenv,local]'")


def main() -> None:
    """An episode of two calls."""
    rubric = AgentRRMRubric("lab", task="What is 6 * 7?", mode="full")
    calls = [("multiply", {"a": 6, "b": 7}, "42"), ("answer", {"text": "42"}, "thank you")]
    rewards = [
        rubric(
            CallToolAction(tool_name=name, arguments=arguments),
            CallToolObservation(tool_name=name, result=result, done=name == "answer"),
        )
        for name, arguments, result in calls
    ]
    print(json.dumps({"score": rewards[-1], "steps": rubric.compute_step_rewards()}))


if __name__ == "__main__":
    main()
