"""Held-out evaluation: one way of doing it, whoever asks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from feedback_lab import make_episode

from reagent.env.task import Task
from reagent.lab.search_env import SearchEnv
from reagent.rollout.episode import Episode
from reagent.train.config import AgentConfig
from reagent.train.evaluate import evaluate_config, mean_interval, summarise, without_interval
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
    *_, during = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    settings.policy.base = str(tmp_path / "policy")
    found, episodes = evaluate_config(settings)
    assert len(episodes) == 6
    assert {k: during[k] for k in found} == json.loads(json.dumps(found))


def test_the_untrained_policy_is_measured_too_greedily_and_sampled(base, tmp_path) -> None:
    greedy = config(base, tmp_path).eval.model_copy(update={"temperature": 0.0, "sampled": 2})
    summary = train(settings := config(base, tmp_path).model_copy(update={"eval": greedy}))
    rows = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [-1, 0]
    assert summary["untrained_success"] == rows[0]["success"]
    assert summary["sampled_success"] == rows[1]["sampled_success"]
    settings.rollout.temperature, settings.eval.sampled, settings.eval.temperature = 0.9, 0, 0.9
    sampled, _ = evaluate_config(settings)  # as the sampled attempts of an evaluation that is greedy
    assert "sampled_success" not in sampled
    settings.eval.temperature, settings.eval.sampled = 0.0, 2
    assert evaluate_config(settings)[0]["sampled_success"] == sampled["success"]


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
    found = mean_interval([1.0] * 60 + [0.0] * 140, 200, seed=0)
    width = 1.96 * (0.3 * 0.7 / 200) ** 0.5
    assert found["value"] == pytest.approx(0.3)
    assert found["low"] == pytest.approx(0.3 - width, abs=0.01) and found["high"] == pytest.approx(
        0.3 + width, abs=0.01
    )
    assert mean_interval([], 0, seed=0) == summarise([], samples=1, seed=0)["success"]
    assert mean_interval([], 0, seed=0) == {"value": None, "low": None, "high": None}


def played(task: Task, success: bool | None, *, group: str = "t", ungraded: bool = False) -> Episode:
    """An attempt that was graded, or is `ungraded`, or (neither) whose environment failed."""
    status = "finished" if ungraded or success is not None else "env_error"
    outcome = None if success is None else float(success)
    made = make_episode([0.0], outcome)
    return replace(made, task=task, group_id=group, success=success, ungraded=ungraded, status=status)


def test_few_tasks_have_no_interval() -> None:
    for tasks, attempts, sure in ((6, 4, False), (1, 30, False), (19, 1, False), (20, 1, True), (10, 2, True)):
        episodes = [
            played(Task(f"t{t}", "?", "a", meta={"hops": 1 + t % 2}), t % 3 == 0, group=f"t{t}")
            for t in range(tasks)
            for _ in range(attempts)
        ]
        found = summarise(episodes, samples=attempts, seed=0)
        assert found["success"]["value"] == pytest.approx(-(-tasks // 3) / tasks)
        assert (found["success"]["low"] is not None) == sure, (tasks, attempts)
        hops = [f"success_by_hops.{h}" for h in found["success_by_hops"]]
        assert without_interval(found) == ([] if sure else ["success"]) + hops
    one = {"success": {"value": None, "low": None, "high": None}, "refined": found, "tasks": 3}
    assert without_interval(one) == ["refined.success_by_hops.1", "refined.success_by_hops.2"]


def test_two_tasks_of_one_id_are_two_tasks() -> None:
    task = Task("t", "?", "a")
    episodes = [played(task, True, group=g) for g in ("t", "t", "t#2", "t#2")]
    found = summarise(episodes, samples=2, seed=0)
    assert (found["tasks"], found["pass_at_k"], found["by_task"]) == (2, {"1": 1.0, "2": 1.0}, {"t": 1.0, "t#2": 1.0})


def test_an_ungraded_task_whose_environment_failed_is_no_failure() -> None:
    open_, known = Task("open", "?"), Task("known", "?", "a")
    graded = [played(known, True, group="known"), played(known, None, group="known")]
    once = [played(open_, None, group="open", ungraded=True), played(open_, None, group="open")]
    found = summarise([*graded, *once], samples=2, seed=0)
    assert (found["tasks"], found["ungraded_tasks"], found["by_task"]) == (2, 1, {"known": 0.5})
    always = [played(open_, None, group="open"), played(open_, None, group="open")]
    found = summarise([*graded, *always], samples=2, seed=0, is_graded=lambda task: task.answer is not None)
    assert (found["ungraded_tasks"], found["by_task"], found["unknown"]) == (1, {"known": 0.5}, 0.75)
    off = [played(replace(known, graded=False), None, group="off")] * 2  # the task says so itself
    assert summarise(off, samples=2, seed=0)["ungraded_tasks"] == 1
    failed = [played(known, None, group="known")] * 2  # graded, and never played to an end: no success
    assert summarise(failed, samples=2, seed=0)["by_task"] == {"known": 0.0}


def test_where_an_environment_pays_and_never_says_what_a_success_is_there_is_none() -> None:
    task = Task("paid", "?")
    paid = [replace(played(task, None, group="paid"), outcome_reward=r, status="finished") for r in (1.0, 0.5)]
    cut = replace(played(task, False, group="paid"), status="turn_limit")  # which a limit ended is no success by itself
    for attempts in (paid, [*paid, cut]):
        found = summarise(attempts, samples=len(attempts), seed=0)
        assert (found["ungraded_tasks"], found["success"]["value"], found["by_task"]) == (1, None, {})
    assert found["reward"] == pytest.approx(0.5)


def test_unknown_grades_of_long_answers_are_told_apart() -> None:
    task = Task("t", "?", "a")

    def answered(tokens: int, success: bool | None) -> Episode:
        made = played(task, success)
        made.turns = [replace(made.turns[0], output_ids=[1] * tokens, output_logprobs=[0.0] * tokens)]
        return made

    # the median is 5: of the three longer ones two are unknown
    episodes = [
        answered(n, s) for n, s in ((2, True), (3, None), (4, False), (5, True), (6, None), (7, True), (90, None))
    ]
    found = summarise(episodes, samples=7, seed=0)
    assert (found["unknown"], found["unknown_long_answers"]) == (pytest.approx(3 / 7), pytest.approx(2 / 3))
    assert summarise(episodes[:1], samples=1, seed=0)["unknown_long_answers"] is None


def test_an_evaluation_asks_the_environment_which_tasks_are_graded(base, tmp_path, monkeypatch) -> None:
    """Every step fails, so that no episode can say of itself that nobody grades it."""

    async def step(*_: Any, **__: Any) -> Any:
        raise OSError("no connection")

    monkeypatch.setattr(SearchEnv, "step", step)
    monkeypatch.setattr(SearchEnv, "is_graded", lambda self, task: False)
    found, episodes = evaluate_config(config(base, tmp_path))
    assert {e.status for e in episodes} == {"env_error"} and not any(e.ungraded for e in episodes)
    assert (found["tasks"], found["ungraded_tasks"], found["by_task"]) == (3, 3, {})
