"""Mode `shuffled`: rewards dealt anew within groups, so that nothing says which attempt was better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from feedback_lab import configured, make_episode, trainer_of

from reagent.feedback.shuffled import shuffled
from reagent.rollout.episode import Episode
from reagent.train.config import load_agent_config
from reagent.train.dynamic_sampling import compared
from rrm.errors import ConfigError


def group(name: str, *outcomes: float | None) -> list[Episode]:
    """Attempts at one task: turns that earned 0.25, and the outcome."""
    found = []
    for number, outcome in enumerate(outcomes):
        episode = make_episode([0.25] * (1 + number % 2), outcome)
        episode.group_id, episode.attempt = name, number
        found.append(episode)
    return found


def test_each_group_keeps_its_rewards_and_its_episodes() -> None:
    played = [*group("a", 0.0, 1.0, None, 2.0), *group("b", 5.0, 5.0), make_episode([])]
    rows = shuffled(played, 3)
    assert [row.key for row in rows] == [e.key for e in played]
    assert sorted(rows[i].reward or 0.0 for i in (0, 1, 3)) == [0.25, 1.5, 2.5]  # turns' rewards are in it
    assert [rows[2], rows[6]] == [played[2], played[6]] and sorted(r.reward or 0.0 for r in rows[4:6]) == [5.25, 5.5]
    assert all(turn.reward == 0.0 for i in (0, 1, 3, 4, 5) for turn in rows[i].turns)
    assert [e.reward for e in played[:2]] == [0.25, 1.5]  # what was played stays as it was
    # a group's order hangs on nothing that is beside it
    assert [r.reward for r in shuffled(played[4:6], 3)] == [r.reward for r in rows[4:6]]


def test_a_reward_says_nothing_of_its_row() -> None:
    played = group("a", 0.0, 0.0, 0.0, 1.0)
    means = [0.0] * 4
    for seed in range(2000):
        for i, row in enumerate(shuffled(played, seed)):
            means[i] += (row.reward or 0.0) / 2000
    expected = sum(e.reward or 0.0 for e in played) / 4
    assert means == pytest.approx([expected] * 4, abs=0.05)  # four standard errors


def test_a_trainer_learns_the_groups_that_it_would_with_their_own_rewards(base: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"algorithm": "grpo", "environment": {"name": "feedback_lab:RareEnv"}}
    rollout = {"dynamic_sampling": 9, "group_size": 3, "tasks_per_update": 2, "max_episode_tokens": 700}
    found = {
        mode: trainer_of(configured(base, tmp_path / mode, mode, rollout=rollout, **changes)).round(0)
        for mode in ("none", "shuffled")
    }
    own, dealt = found["none"], found["shuffled"]
    assert [e.key for e in own.played] == [e.key for e in dealt.played]
    assert [e.key for e in own.rows] == [e.key for e in dealt.rows]
    assert compared(own.rows, per_turn=False) == compared(dealt.rows, per_turn=False)
    # what is logged of them is what they earned
    assert [e.reward for e in own.played] == [e.reward for e in dealt.played]
    assert sum(e.reward or 0.0 for e in own.rows) == pytest.approx(sum(e.reward or 0.0 for e in dealt.rows))
    assert [e.reward for e in own.rows] != [e.reward for e in dealt.rows]


def test_a_control_that_would_change_nothing_is_refused() -> None:
    """PPO takes groups of one: the rewards would be their own, under the name of the control."""
    told = ["algorithm=ppo", "feedback.mode=shuffled"]
    with pytest.raises(ConfigError, match=r"feedback\.mode=shuffled deals rewards among .*set rollout\.group_size ≥ 2"):
        load_agent_config("lab", [*told, "rollout.group_size=1"])
    assert load_agent_config("lab", [*told, "rollout.group_size=2"]).feedback.mode == "shuffled"
