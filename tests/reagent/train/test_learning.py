"""The trainer learns: on a bandit, a random policy's success rises from a seventh to nearly all, with every algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from trainer_setup import make_trainer, settings

from reagent.algorithms.registry import ALGORITHMS
from reagent.env.env import StepResult
from reagent.env.task import Task

UPDATES = 16


class LetterEnv:
    """An arm is a token: one turn of one of the vocabulary's 400, which should begin with a letter from a to m."""

    tools: ClassVar[list[dict[str, Any]]] = []

    def reset(self, task: Task) -> list[dict[str, Any]]:
        return [{"role": "user", "content": task.question}]

    async def step(self, text: str, stop_reason: str = "eos") -> StepResult:
        right = "a" <= text[:1] <= "m"
        return StepResult(
            {"role": "assistant", "content": text}, [], 0.0, float(right), True, False, {"success": right}
        )

    async def close(self) -> None:
        pass

    @staticmethod
    def make_tasks(n: int, seed: int, *, split: str = "train") -> list[Task]:
        return [Task(f"{split}-{seed}-{i}", f"Letter {i}, please!", answer="a") for i in range(n)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_success_rises_on_a_bandit(base: Path, tmp_path: Path, algorithm: str) -> None:
    torch.set_num_threads(1)
    config = settings(
        base, tmp_path, algorithm=algorithm, max_updates=UPDATES,
        environment={"name": "test_learning:LetterEnv", "train": {}, "eval": {}},
        rollout={"tasks_per_update": 8, "group_size": 8, "max_turns": 1, "max_new_tokens": 1},
        optim={"learning_rate": 1e-2},
    )  # fmt: skip
    trainer = make_trainer(config)
    success = [trainer.update()[0]["episode/success"] for _ in range(UPDATES)]
    assert sum(success[:2]) / 2 < 0.35, success
    assert sum(success[-3:]) / 3 > 0.85, success
