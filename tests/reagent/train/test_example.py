"""examples/grpo_from_parts.py is the trainer's update, on one page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from trainer_setup import make_trainer, settings

from reagent.lab.shipped import lab_policy_folder

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "grpo_from_parts.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grpo_from_parts", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_loop_from_parts_makes_the_trainers_update(example: ModuleType, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    policy, (figures,) = example.train(str(lab_policy_folder()), updates=1, tasks_per_update=4, group_size=4)
    config = settings(
        lab_policy_folder(),
        tmp_path,
        algorithm="grpo",
        rollout={
            "tasks_per_update": 4, "group_size": 4, "max_turns": 7, "max_new_tokens": 48, "max_episode_tokens": 640,
            "max_observation_tokens": 128, "temperature": example.TEMPERATURE,
        },
        optim={"learning_rate": example.LEARNING_RATE, "betas": (0.9, 0.99), "microbatch_tokens": 8192},
        loss={"clip_high": example.CLIP_HIGH, "advantage_scale": "batch", "credit": "turn"},
    )  # fmt: skip
    trainer = make_trainer(config)
    trainer.env_factory, trainer.tasks = example.environment(0)
    start = {name: weight.clone() for name, weight in trainer.policy.model.state_dict().items()}
    metrics, _ = trainer.update()
    assert 0 < figures["success"] < 1, "episodes must differ for a step to be taken"
    assert figures["reward"] == pytest.approx(metrics["episode/reward"])
    assert figures["loss"] == pytest.approx(metrics["policy_loss"], rel=1e-4, abs=1e-6)
    assert figures["grad_norm"] == pytest.approx(metrics["grad_norm"], rel=1e-4)
    assert figures["logprob_gap"] < 1e-4
    expected = policy.state_dict()
    for name, weight in trainer.policy.model.state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5, msg=name)
    moved = max(float((weight - expected[name]).abs().max()) for name, weight in start.items())
    assert moved > 1e-4


def test_a_reader_can_hold_it_on_a_page() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    grpo = EXAMPLE.parents[1] / "agents" / "reagent" / "algorithms" / "grpo.py"
    assert len(lines) <= 200 and len(grpo.read_text(encoding="utf-8").splitlines()) <= 70
