"""The judge's score at the end of a Gymnasium episode (examples/gymnasium_judge.py)."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from chat_judge import ChatJudge

from rrm.data.trajectory import Trajectory

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "gymnasium_judge.py"
JudgeReward: Any = runpy.run_path(str(EXAMPLE))["JudgeReward"]


class Echo(gymnasium.Env[str, str]):
    """Repeats each action twice; ends with the second."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(40)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turns = 0
        return "begin", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        return action * 2, 1.0, self.turns == 2, False, {}


def episode(judge: ChatJudge) -> list[Any]:
    """The results of both steps."""
    env = JudgeReward(Echo(), judge, weight=0.5)
    env.reset(seed=3)
    return [env.step("ha"), env.step("ho")]


def test_the_last_step_earns_the_score_of_the_whole_episode() -> None:
    judged: list[Trajectory] = []
    for _ in range(2):  # a reset forgets the episode before
        (_, first, *_, before), (_, last, *_, info) = episode(ChatJudge(judged.extend))
    assert [(m.role, m.text()) for m in judged[-1].messages] == [
        ("user", "begin"), ("assistant", "ha"), ("user", "haha"), ("assistant", "ho"), ("user", "hoho"),
    ]  # fmt: skip
    score = info["agent_rrm"]["score"]
    assert score > 0 and (first, last) == (1.0, pytest.approx(1.0 + 0.5 * score)) and "agent_rrm" not in before


def test_an_episode_whose_judgement_failed_has_the_environments_reward() -> None:
    _, (_, reward, *_, info) = episode(ChatJudge(down=("episode",)))
    assert reward == 1.0 and info["agent_rrm"]["failed"] and "server is down" in info["agent_rrm"]["reason"]
