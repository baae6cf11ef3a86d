"""Gymnasium: the judge's score added to the last reward of a text episode.

    pip install 'agent-rrm[gym,local]'
    python examples/gymnasium_judge.py

The last line is JSON: the reward, and what the judge said.
"""

from __future__ import annotations

import json
import sys
from typing import Any

try:
    import gymnasium
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[gym,local]'")

from reagent.env.gym import GymEnv
from reagent.tasks.environments import make_factory, make_tasks
from rrm import AgentRRM, Trajectory
from rrm.judge.cached_judge import log_fields


class JudgeReward(gymnasium.Wrapper[str, str, str, str]):
    """R_env + weight · s at the end of an episode; R_env alone where the judgement failed.

    A learner that adds γV to the last reward of truncated episodes (PPO of Stable-Baselines3) wants the score of terminated ones alone.
    """

    def __init__(self, env: gymnasium.Env[str, str], judge: AgentRRM, weight: float = 0.3) -> None:
        super().__init__(env)
        self.judge, self.weight = judge, weight
        self.messages: list[dict[str, Any]] = []

    def reset(self, **options: Any) -> tuple[str, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self.messages = [{"role": "user", "content": observation}]
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.messages.append({"role": "assistant", "content": action})
        self.messages += [{"role": "user", "content": observation}] if observation else []
        reward = float(reward)
        if terminated or truncated:
            task = self.messages[0]["content"]
            run = Trajectory.model_validate({"id": "episode", "task": task, "messages": self.messages})
            (feedback,) = self.judge.judge([run], mode="score")
            info = {**info, "agent_rrm": log_fields(feedback)}
            reward += self.weight * (feedback.score or 0.0)
        return observation, reward, terminated, truncated, info


if __name__ == "__main__":
    env = JudgeReward(
        GymEnv(make_factory("calculator")(), make_tasks("calculator", 8, seed=0)), AgentRRM.from_pretrained("lab")
    )
    env.reset(seed=0)
    _, reward, *_, info = env.step("Answer: 42")
    print(json.dumps({"reward": reward, **info["agent_rrm"]}))
