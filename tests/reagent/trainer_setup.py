"""A small training's config and trainer, for every test that trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from reagent.train.config import AgentConfig
from reagent.train.run import build
from reagent.train.trainer import AgentTrainer
from rrm.judge.agent_rrm import AgentRRM


def settings(base: Path, output: Path, **changes: Any) -> AgentConfig:
    tree: dict[str, Any] = {
        "output_dir": str(output),
        "cpu": True,
        "threads": 1,
        "max_updates": 3,
        "save_every": 1,
        "gate": {"action": "off"},
        "environment": {"name": "search", "train": {"hops": 1}, "eval": {"hops": 1}, "train_tasks": 32, "eval_tasks": 4},
        "policy": {"base": str(base)},
        "rollout": {
            "tasks_per_update": 4, "group_size": 2, "max_turns": 2, "max_new_tokens": 12, "max_episode_tokens": 400, "temperature": 1.0,
        },
        "optim": {"learning_rate": 1e-3, "warmup_updates": 0, "microbatch_tokens": 1024},
        "loss": {"advantage_scale": "group"},
        "eval": {"first": False, "sampled": 0},
    }  # fmt: skip
    for key, value in changes.items():
        if isinstance(value, dict):
            tree[key] = {**tree.get(key, {}), **value}
        else:
            tree[key] = value
    return AgentConfig.model_validate(tree)


def make_trainer(config: AgentConfig, judge: AgentRRM | None = None) -> AgentTrainer:
    """A trainer as `reagent train` makes it."""
    torch.manual_seed(config.seed)
    return build(config, judge=judge)[0]


TASKS = 20


def succeed(n: int, of: int = 100) -> list[float]:
    """The first n tasks succeed."""
    return [1.0] * n + [0.0] * (of - n)


def by_task(values: Sequence[float]) -> dict[str, float]:
    """Figures by task, as an evaluation has them."""
    return {f"t{i}": float(v) for i, v in enumerate(values)}
