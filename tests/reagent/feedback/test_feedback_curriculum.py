"""The curriculum: levels rise with the judge's mean score, in training too, and survive a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from feedback_lab import configured, read, scripted

from reagent.env.task import Task
from reagent.feedback.curriculum import Curriculum
from reagent.feedback.settings import CurriculumConfig
from reagent.train.checkpoint import checkpoints
from reagent.train.run import train
from reagent.train.trainer import AgentTrainer
from rrm.errors import ConfigError

TASKS = [Task(f"t{i}", "?", meta={"hops": 1 + i % 3}) for i in range(9)]


def make(**changes: Any) -> Curriculum:
    return Curriculum(CurriculumConfig.model_validate({"window": 4, "threshold": 0.5, **changes}))


def test_levels_rise_one_by_one_when_the_mean_over_the_window_is_high_enough() -> None:
    curriculum = make()
    curriculum.observe([(1, 0.9), (1, 0.9), (1, 0.9)])
    assert curriculum.level == 1  # the window is not full
    curriculum.observe([(2, 0.0), (None, 0.0), (1, 0.1)])
    assert curriculum.level == 2 and not curriculum.scores  # 0.7 on level 1; other levels do not count
    curriculum.observe([(1, 1.0)] * 8 + [(2, 0.4)] * 4)
    assert curriculum.level == 2
    curriculum.observe([(2, 0.6)] * 4)
    assert curriculum.level == 3
    curriculum.observe([(3, 1.0)] * 8)
    assert curriculum.level == 3  # there is no other


def test_tasks_are_of_the_levels_reached_in_order_and_again_from_the_first() -> None:
    curriculum = make()
    assert [t.id for t in curriculum.choose(TASKS, 2, 3)] == ["t6", "t0", "t3"]
    curriculum.observe([(1, 1.0)] * 4)
    assert [t.id for t in curriculum.choose(TASKS, 0, 7)] == ["t0", "t1", "t3", "t4", "t6", "t7", "t0"]
    again = make()
    again.restore(curriculum.state())
    assert again.level == 2


def test_levels_no_task_has_are_an_error_that_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no training task has meta\['hops'\] in \[7\] \(there are: 1, 2, 3\)"):
        make(levels=[7, 8]).choose(TASKS, 0, 1)


def curriculum_run(base: Path, folder: Path, updates: int, score: str, **changes: Any) -> list[dict[str, Any]]:
    config = configured(
        base,
        folder,
        "r",
        max_updates=updates,
        environment={"train": {"hops": [1, 2, 3]}},
        feedback={"curriculum": {"window": 12, "threshold": 0.6}},
        **changes,
    )
    train(config, judge=scripted(lambda text: f"<critique>x</critique><score>{score}</score>"))
    return read(folder / "metrics.jsonl")


def test_the_level_rises_in_training_and_goes_on_after_a_stop(base, tmp_path) -> None:
    whole = curriculum_run(base, tmp_path / "whole", 7, "0.7")
    # 8 first attempts an update: 16 on level 1, then about half of each update's are on level 2
    levels = [row["feedback/level"] for row in whole]
    assert levels[:3] == [1.0, 1.0, 2.0] and levels[-1] > 2.0 and levels == sorted(levels)
    assert [k for k in whole[0] if k.startswith("episode/success_hops")] == ["episode/success_hops_1"]
    assert "episode/success_hops_3" in whole[-1]
    for updates in (2, 7):
        stopped = curriculum_run(base, tmp_path / "stopped", updates, "0.7")
    assert stopped == whole


def test_an_update_that_fails_before_its_steps_is_observed_once(base, tmp_path, monkeypatch) -> None:
    """The checkpoint of before it already held its scores, so that the level rose an update early when the run went on."""
    whole = curriculum_run(base, tmp_path / "whole", 3, "0.7")
    prepare = AgentTrainer.prepare

    def broken(self: AgentTrainer, *args: Any, **more: Any) -> Any:
        if self.update_index == 1:
            raise OSError("no space left on device")
        return prepare(self, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(AgentTrainer, "prepare", broken)
        with pytest.raises(OSError, match="no space"):
            curriculum_run(base, tmp_path / "stopped", 3, "0.7", save_every=100)
    (kept,) = checkpoints(tmp_path / "stopped" / "checkpoints")
    state = json.loads((kept / "state.json").read_text())
    assert state["update"] == 1 and len(state["feedback"]["curriculum"]["scores"]) == 8
    assert curriculum_run(base, tmp_path / "stopped", 3, "0.7") == whole


def test_the_level_stays_where_the_judge_is_not_satisfied(base, tmp_path) -> None:
    assert {row["feedback/level"] for row in curriculum_run(base, tmp_path, 4, "0.5")} == {1.0}
