"""A policy that learns the answers of some training tasks before it plays the others (`warm_start`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trainer_setup import settings
from transformers import set_seed

from reagent.cli.policy_settings import policy_settings
from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.train.config import AgentConfig, WarmStartConfig, load_agent_config
from reagent.train.probe import probe_config
from reagent.train.run import build, train
from reagent.train.warm_start import split_tasks
from rrm.errors import ConfigError, RRMError

ENVIRONMENT = {"name": "test_warm_start:Letters", "train": {}, "eval": {}, "train_tasks": 12, "eval_tasks": 4}
ROLLOUT = {"tasks_per_update": 2, "group_size": 2, "max_turns": 1, "max_new_tokens": 8, "temperature": 0.8}
SHOWN = {"tasks": 8, "epochs": 12, "batch_size": 4, "learning_rate": 1e-2}


class Letters(ToolEnv):
    @staticmethod
    def make_tasks(n: int, seed: int, *, split: str = "train") -> list[Task]:
        return [Task(f"{split}-{seed}-{i}", "Which letter?", answer="b") for i in range(n)]


def config(base: Path, output: Path, **changes) -> AgentConfig:
    gate = {"action": "warn", "tasks": 4, "samples": 2}
    own = {"environment": ENVIRONMENT, "rollout": ROLLOUT, "gate": gate, "max_updates": 1, "warm_start": SHOWN}
    return settings(base, output, **(own | changes))


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


def test_a_run_with_a_warm_start_goes_on_where_it_was_stopped(base: Path, tmp_path: Path) -> None:
    def run(updates: int) -> AgentConfig:
        return config(base, tmp_path, max_updates=updates, save_every=1, gate={"action": "off"})

    train(run(1))
    assert train(run(2))["updates"] == 2
    assert load_agent_config(str(tmp_path / "config.yaml"), []).policy.base == str(base)


def test_what_cannot_be_shown_is_refused(base: Path, tmp_path: Path) -> None:
    tasks = Letters.make_tasks(12, 0)
    with pytest.raises(ConfigError, match=r"warm_start.tasks=12 leaves none of 12 training tasks"):
        split_tasks(tasks, WarmStartConfig(tasks=12))
    hidden = [replace(task, graded=k < 3) for k, task in enumerate(tasks)]
    assert [t.id for t in split_tasks(hidden, WarmStartConfig(tasks=2))[1]] == [
        "train-0-1",
        "train-0-2",
    ]  # no hidden label
    with pytest.raises(ConfigError, match=r"shows answers, and 3 of 12 training tasks have one"):
        split_tasks(hidden, WarmStartConfig(tasks=4))
    twice = [replace(task, id=f"{task.id}#2", question_id=task.id) for task in tasks] + [
        replace(task, question_id=task.id) for task in tasks
    ]
    played, shown = split_tasks(twice, WarmStartConfig(tasks=3))
    assert len(played) == 18 and not {t.question_id for t in played} & {t.question_id for t in shown}
    with pytest.raises(RRMError, match=r"set warm_start.learning_rate lower"):
        probe_config(config(base, tmp_path / "far", warm_start=SHOWN | {"learning_rate": 1e30}))


def test_a_policy_that_was_taught_otherwise_is_not_taken(base: Path, tmp_path: Path) -> None:
    """Another model, seed or file began from what an earlier run in the folder, or its gate, had taught."""
    shown = {"warm_start": SHOWN | {"epochs": 1}}
    probe_config(config(base, tmp_path, **shown))
    for change, name in (
        ({"seed": 1}, "seed, tasks"),
        ({"warm_start": SHOWN | {"epochs": 2}}, "warm_start"),
        ({"environment": ENVIRONMENT | {"train_tasks": 13}}, "tasks"),
    ):
        with pytest.raises(ConfigError, match=rf"was taught with other {name}: choose another output_dir"):
            probe_config(config(base, tmp_path, **(shown | change)))
    assert policy_settings([str(base), "warm_start=4"], "lab", None).warm_start.tasks == 0  # MODEL is played as it is


def test_a_run_that_finds_the_policy_taught_is_the_same(base: Path, tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        set_seed(0)
        trainer, _ = build(config(base, tmp_path, policy={"base": str(base), "lora": {"r": 2, "alpha": 2}}))
        runs.append(torch.rand(3))
        assert trainer.config.policy.base == str(tmp_path / "warm")  # which an export of sharded weights begins from
    assert torch.equal(*runs)
