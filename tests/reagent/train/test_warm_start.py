"""A policy that learns the answers of some training tasks before it plays the others (`warm_start`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainer_setup import settings

from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.train.config import AgentConfig
from reagent.train.probe import probe_config
from reagent.train.run import build, train
from rrm.errors import ConfigError

ENVIRONMENT = {"name": "test_warm_start:Letters", "train": {}, "eval": {}, "train_tasks": 12, "eval_tasks": 4}
ROLLOUT = {"tasks_per_update": 2, "group_size": 2, "max_turns": 1, "max_new_tokens": 8, "temperature": 0.8}
SHOWN = {"tasks": 8, "epochs": 12, "batch_size": 4, "learning_rate": 1e-2}


class Letters(ToolEnv):
    @staticmethod
    def make_tasks(n: int, seed: int, *, split: str = "train") -> list[Task]:
        return [Task(f"{split}-{seed}-{i}", "Which letter?", answer="b") for i in range(n)]


def config(base: Path, output: Path, **changes) -> AgentConfig:
    gate = {"action": "warn", "tasks": 4, "samples": 2}
    return settings(
        base, output, environment=ENVIRONMENT, rollout=ROLLOUT, gate=gate, max_updates=1, warm_start=SHOWN, **changes
    )


def test_the_gate_and_the_training_begin_from_what_was_shown(base: Path, tmp_path: Path) -> None:
    cold, _ = probe_config(config(base, tmp_path / "run").model_copy(update={"warm_start": AgentConfig().warm_start}))
    warm, _ = probe_config(config(base, tmp_path / "run"))
    assert (cold.greedy, warm.greedy) == (0.0, 1.0)
    card = tmp_path / "run" / "warm" / "warm.json"
    made = card.stat().st_mtime_ns
    first, last = json.loads(card.read_text())["nll"]
    assert last < 0.1 < first
    trainer, _ = build(config(base, tmp_path / "run"))
    assert [t.id for t in trainer.tasks] == [f"train-0-{i}" for i in range(4)]  # the others are shown
    train(config(base, tmp_path / "run"))
    assert card.stat().st_mtime_ns == made
    assert json.loads((tmp_path / "run" / "probe.json").read_text())["greedy"] == 1.0


def test_what_cannot_be_shown_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"warm_start.tasks=12 leaves none of 12 training tasks"):
        probe_config(
            config(base, tmp_path / "all").model_copy(
                update={"warm_start": AgentConfig.model_validate({"warm_start": 12}).warm_start}
            )
        )
    made = tmp_path / "other" / "warm" / "warm.json"
    made.parent.mkdir(parents=True)
    made.write_text('{"settings": {"tasks": 3}}')
    with pytest.raises(ConfigError, match="choose another output_dir"):
        probe_config(config(base, tmp_path / "other"))
