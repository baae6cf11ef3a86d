"""Dynamic sampling: which groups count, by hand; updates that are filled; going on where tasks were left; and rows that take no backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import make_episode, read
from pydantic import ValidationError
from trainer_setup import make_trainer, settings

from reagent.rollout.batch import make_batch
from reagent.rollout.episode import Episode
from reagent.train.config import AgentConfig
from reagent.train.dynamic_sampling import compared
from reagent.train.run import train


def configured(base: Path, output: Path, **changes: Any) -> AgentConfig:
    rollout = {"dynamic_sampling": 9, "group_size": 3, "tasks_per_update": 2, "max_episode_tokens": 700}
    return settings(
        base, output, algorithm=changes.pop("algorithm", "grpo"),
        environment={"name": "feedback_lab:RareEnv", **changes.pop("environment", {})},
        rollout={**rollout, **changes.pop("rollout", {})}, **changes,
    )  # fmt: skip


def group(name: str, *rows: tuple[list[float], float | None]) -> list[Episode]:
    """Episodes of one task: what each turn earned, and the outcome."""
    results = []
    for number, (rewards, outcome) in enumerate(rows):
        episode = make_episode(rewards, outcome)
        episode.group_id, episode.attempt = name, number
        results.append(episode)
    return results


# ---- which groups count ----


def test_groups_that_differ_are_those_with_an_advantage() -> None:
    rows = [
        *group("flat", ([0.0, 0.0], 1.0), ([0.0], 1.0)),
        *group("differs", ([0.0], 0.0), ([0.0], 1.0), ([0.0], None)),
        *group("alone", ([0.0], 0.0), ([0.0], None)),
        *group("rounding", ([0.1, 0.2], 0.0), ([0.3, 0.0], 0.0)),
        *group("unplayed", ([], None), ([], None)),
    ]
    assert compared(rows, per_turn=False) == (3, ["differs"])


def test_turn_by_turn_what_each_turn_earned_is_compared() -> None:
    rows = [
        *group("sums alike", ([0.0, 0.5], 0.5), ([0.5, 0.0], 0.5)),  # from the second turn on 1 and 0.5 are left
        *group("one turn more", ([0.0, 0.0], 1.0), ([0.0], 1.0)),  # 1 is left in every turn of either
    ]
    assert compared(rows, per_turn=False) == (2, [])
    assert compared(rows, per_turn=True) == (2, ["sums alike"])


# ---- updates ----


def test_an_update_is_filled_with_groups_that_differ(base: Path, tmp_path: Path) -> None:
    trainer = make_trainer(configured(base, tmp_path))
    learned: list[list[Episode]] = []
    learn = trainer.learn
    trainer.learn = lambda episodes, *rest: learned.append(list(episodes)) or learn(episodes, *rest)
    begins = 0
    for number in range(2):
        metrics, played = trainer.update()
        drawn = int(metrics["sampling/tasks"])
        assert drawn > 2 and drawn % 2 == 0 and len(played) == 3 * drawn == 3 * metrics["sampling/groups"]
        # in order, from where the update before left them
        assert [e.task.id for e in played[::3]] == [t.id for t in trainer.tasks[begins : begins + drawn]]
        several, differ = compared(played, per_turn=False)
        assert several == drawn and metrics["sampling/differing"] == len(differ) >= 2
        assert list(dict.fromkeys(e.group_id for e in learned[number])) == differ[:2]
        assert metrics["learned/rows"] == 6 and metrics["learned/flat_groups"] == 0 and metrics["grad_norm"] > 0
        # no draw was made after there were enough
        assert len(compared(played[: 3 * (drawn - 2)], per_turn=False)[1]) < 2
        begins += drawn
    assert trainer.tasks_drawn == begins and trainer.episodes_seen == 3 * begins


def test_where_none_differs_a_step_is_counted_and_the_tasks_go_on(base: Path, tmp_path: Path) -> None:
    """Three tasks for six draws' places: the same task again is another group, with random numbers of its own."""
    changes = {"environment": {"name": "feedback_lab:PoorEnv", "train_tasks": 3}, "rollout": {"dynamic_sampling": 2}}
    trainer = make_trainer(configured(base, tmp_path, **changes))
    before = {n: p.detach().clone() for n, p in trainer.policy.named_parameters()}
    metrics, played = trainer.update()
    assert [metrics[f"sampling/{name}"] for name in ("tasks", "groups", "differing")] == [6, 6, 0]
    assert metrics["learned/rows"] == 6 and metrics["learned/flat_groups"] == 1 and metrics["grad_norm"] == 0
    assert len({e.key for e in played}) == len(played) == 18 and {e.group_id.partition("#")[2] for e in played} == {
        "",
        "2",
    }
    assert trainer.update_index == 1 and trainer.tasks_drawn == 6
    assert all(torch.equal(p, before[n]) for n, p in trainer.policy.named_parameters())


def test_a_run_goes_on_with_the_tasks_it_had_come_to(base: Path, tmp_path: Path) -> None:
    train(configured(base, tmp_path / "whole", max_updates=3))
    train(configured(base, tmp_path / "again", max_updates=1))
    train(configured(base, tmp_path / "again", max_updates=3))
    whole, again = (read(tmp_path / name / "metrics.jsonl") for name in ("whole", "again"))
    assert whole == again and len({row["sampling/tasks"] for row in whole}) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "ppo"}, "compares none"),
        ({"rollout": {"max_lag": 1}}, "set rollout.max_lag=0"),
        ({"rollout": {"dynamic_sampling": -1}}, "greater than or equal to 0"),
    ],
)
def test_what_it_cannot_do_is_refused(base: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        configured(base, tmp_path, **changes)


# ---- rows without a gradient ----


def test_rows_without_an_advantage_take_a_forward_alone(base: Path, tmp_path: Path) -> None:
    results = []
    for skips in (True, False):
        trainer = make_trainer(settings(base, tmp_path / str(skips), algorithm="grpo", rollout={"group_size": 3}))
        episodes = trainer.collect(0)
        for e in episodes:  # of four groups two are flat
            e.outcome_reward = float(e.attempt) if e.group_id in {episodes[0].group_id, episodes[-1].group_id} else 1.0
        trained: list[int] = []
        loss = trainer._loss

        def counted(prepared: Any, rows: list[int], *rest: Any, loss: Any = loss, trained: list[int] = trained) -> Any:
            trained += rows if torch.is_grad_enabled() else []
            return loss(prepared, rows, *rest)

        trainer._loss = counted
        if not skips:
            trainer._without_gradient = lambda *_: set()
        trainer.ddp_optimizer.step = lambda: None  # look at the gradients instead
        trainer.ddp_optimizer.zero_grad = lambda set_to_none=True: None
        metrics = trainer.learn(episodes)
        assert sorted(trained) == ([0, 1, 2, 9, 10, 11] if skips else list(range(12)))
        results.append(
            (metrics, {n: p.grad.clone() for n, p in trainer.policy.named_parameters() if p.grad is not None})
        )
    (mine, gradients), (whole, expected) = results
    assert mine == pytest.approx(whole, rel=1e-5, abs=1e-6) and mine["grad_norm"] > 0
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-7, msg=name)


def test_a_row_of_unknown_reward_takes_no_forward_in_a_step(base: Path, tmp_path: Path) -> None:
    results = []
    for known in (True, False):
        trainer = make_trainer(settings(base, tmp_path / str(known), algorithm="grpo"))
        episodes = trainer.collect(0)
        for e in episodes:
            e.outcome_reward = float(e.attempt)
        for e in episodes[:4] if not known else ():
            e.outcome_reward = None
        seen: list[int] = []
        loss = trainer._loss

        def noted(prepared: Any, rows: list[int], *rest: Any, loss: Any = loss, seen: list[int] = seen) -> Any:
            seen += rows
            return loss(prepared, rows, *rest)

        trainer._loss = noted
        metrics = trainer.learn(episodes)
        results.append((sorted(seen), metrics["tokens"], metrics["unknown_rows"]))
    (every, tokens, _), (some, fewer, unknown) = results
    assert every == list(range(8)) and some == [4, 5, 6, 7] and 0 < fewer < tokens and unknown == 4


def test_rows_of_unknown_reward_take_no_place_in_minibatches(base: Path, tmp_path: Path) -> None:
    """Four known rows of eight in four minibatches: each has one of them, and none is passed over for want of any."""
    trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", optim={"minibatches": 4}))
    episodes = trainer.collect(0)
    for e in episodes:
        e.outcome_reward = float(e.attempt)
    for e in episodes[2:6]:
        e.outcome_reward = None
    dealt: list[list[int]] = []
    step = trainer.step
    trainer.step = lambda prepared, index, *rest: dealt.append(list(index)) or step(prepared, index, *rest)
    trainer.learn(episodes)
    assert sorted(dealt) == [[0], [1], [6], [7]]
    for e in episodes:  # where nothing is known, steps are counted all the same: texts may be learned in them
        e.outcome_reward = None
    dealt.clear()
    trainer.learn(episodes)
    assert sorted(i for part in dealt for i in part) == list(range(8)) and len(dealt) == 4


@pytest.mark.parametrize("loss", [{"entropy_coef": 0.01}, {"kl_coef": 0.1}])
def test_a_term_over_all_rows_takes_a_backward_over_all_rows(base, tmp_path, loss: dict[str, float]) -> None:
    trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", loss=loss))
    episodes = trainer.collect(0)
    for e in episodes:
        e.outcome_reward = 1.0
    assert trainer._without_gradient(trainer.prepare(make_batch(episodes)), range(len(episodes))) == set()
    assert trainer.learn(episodes)["grad_norm"] > 0 or "kl_coef" in loss  # its KL is 0 before the first step
