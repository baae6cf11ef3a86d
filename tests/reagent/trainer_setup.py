"""A small training's config and trainer, for every test that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from reagent.env.registry import make_environment
from reagent.train.config import AgentConfig
from reagent.train.policy import load_policy
from reagent.train.trainer import AgentTrainer


def settings(base: Path, output: Path, **changes: Any) -> AgentConfig:
    tree: dict[str, Any] = {
        "output_dir": str(output),
        "cpu": True,
        "threads": 1,
        "max_updates": 3,
        "save_every": 1,
        "environment": {"name": "search", "train": {"hops": 1}, "eval": {"hops": 1}, "train_tasks": 32, "eval_tasks": 4},
        "policy": {"base": str(base)},
        "rollout": {
            "tasks_per_update": 4, "group_size": 2, "max_turns": 2, "max_new_tokens": 12, "max_episode_tokens": 400,
        },
        "optim": {"learning_rate": 1e-3, "microbatch_tokens": 1024},
    }  # fmt: skip
    for key, value in changes.items():
        if isinstance(value, dict):
            tree[key] = {**tree.get(key, {}), **value}
        else:
            tree[key] = value
    return AgentConfig.model_validate(tree)


def make_trainer(config: AgentConfig) -> AgentTrainer:
    torch.manual_seed(config.seed)
    factory, tasks, _ = make_environment(config.environment, seed=config.seed)
    policy, tokenizer = load_policy(config.policy, with_values=config.algorithm == "ppo")
    return AgentTrainer(config, policy, tokenizer, factory, tasks, Path(config.output_dir))
