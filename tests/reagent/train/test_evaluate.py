"""Held-out evaluation: one way of doing it, whoever asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reagent.lab.search_env import SearchEnv
from reagent.train.config import AgentConfig
from reagent.train.evaluate import evaluate_config, mean_interval, summarise
from reagent.train.run import train


def config(base: Path, output: Path) -> AgentConfig:
    tree: dict[str, Any] = {
        "output_dir": str(output),
        "cpu": True,
        "threads": 1,
        "max_updates": 1,
        "environment": {"train": {"hops": 1}, "eval": {"hops": 1}, "train_tasks": 8, "eval_tasks": 3},
        "policy": {"base": str(base)},
        "rollout": {"tasks_per_update": 2, "group_size": 2, "max_turns": 2, "max_new_tokens": 12},
        "eval": {"samples": 2, "temperature": 0.7},
    }
    return AgentConfig.model_validate(tree)


def test_a_run_and_reagent_eval_measure_the_same_policy_alike(base, tmp_path) -> None:
    settings = config(base, tmp_path)
    train(settings)
    (during,) = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    settings.policy.base = str(tmp_path / "policy")
    found, episodes = evaluate_config(settings)
    assert len(episodes) == 6
    assert {k: during[k] for k in found} == json.loads(json.dumps(found))


def test_evaluating_makes_no_training_tasks(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = SearchEnv.make_tasks

    def watched(n: int, seed: int, *, split: str = "train", **options: Any) -> Any:
        made.append(split)
        return make(n, seed, split=split, **options)

    monkeypatch.setattr(SearchEnv, "make_tasks", staticmethod(watched))
    evaluate_config(config(base, tmp_path))
    assert made == ["heldout"]


def test_intervals_are_over_tasks_and_nothing_has_none() -> None:
    found = mean_interval([1.0] * 60 + [0.0] * 140, seed=0)
    width = 1.96 * (0.3 * 0.7 / 200) ** 0.5
    assert found["value"] == pytest.approx(0.3)
    assert found["low"] == pytest.approx(0.3 - width, abs=0.01) and found["high"] == pytest.approx(
        0.3 + width, abs=0.01
    )
    assert mean_interval([], seed=0) == summarise([], samples=1, seed=0)["success"]
    assert mean_interval([], seed=0) == {"value": None, "low": None, "high": None}
