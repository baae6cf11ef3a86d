"""Nothing learns silently: what keeps a run from learning is said, with a likely cause, at the time and at the end."""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from feedback_lab import make_episode
from trainer_setup import settings

from reagent.env.env import StepResult
from reagent.lab.search_env import SearchEnv
from reagent.rollout.episode import Episode
from reagent.train.alarms import PATIENCE, Alarms
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.metrics import episode_metrics, learned_metrics
from reagent.train.run import train
from reagent.train.runlog import progress_text

HEALTHY: dict[str, Any] = {
    "learned/rows": 64.0, "learned/best": 1.0, "learned/spread": 1.2, "learned/flat_groups": 0.4,
    "episode/cut_turns": 0.1, "episode/malformed_share": 0.2,
}  # fmt: skip
SICK = {
    "mostly_unknown": ({"episode/unknown": 0.97}, "more than half of the episodes had no known outcome.*environment fails"),
    "nothing_known": ({"learned/rows": 0.0}, "no episode had a known reward"),
    "all_cut": ({"episode/cut_turns": 1.0}, "every turn was cut at rollout.max_new_tokens=48"),
    "all_malformed": ({"episode/malformed_share": 1.0}, "every tool call was malformed.*policy.base=lab-reflective.*instruct model"),
    "no_reward": ({"learned/best": 0.0, "episode/success": 0.0}, "no episode earned anything.*too hard.*rollout.max_turns=7"),
    "no_difference": ({"learned/flat_groups": 1.0, "learned/flat_turns": 1.0}, "never differed within a group.*rollout.temperature=0.7"),
}  # fmt: skip


def grpo(**changes: Any) -> AgentConfig:
    return load_agent_config("lab", ["algorithm=grpo", *(f"{k}={v}" for k, v in changes.items())])


@pytest.mark.parametrize("name", SICK)
def test_each_condition_is_raised_once_it_has_held_for_a_while(name: str) -> None:
    change, said = SICK[name]
    alarms = Alarms(grpo())
    raised = [alarms.observe(u, HEALTHY | change) for u in range(PATIENCE + 2)]
    assert [len(found) for found in raised] == [0] * (PATIENCE - 1) + [1, 0, 0]
    (at_the_time,), (at_the_end,) = raised[PATIENCE - 1], alarms.summary()
    assert re.search(said, at_the_time) and at_the_time.startswith(f"updates 0 to {PATIENCE - 1}: ")
    assert at_the_end.startswith(f"updates 0 to {PATIENCE + 1}: ")


def test_dynamic_sampling_is_advised_where_it_is_off_alone() -> None:
    for sampling, advised in ((0, True), (3, False)):
        alarms = Alarms(grpo(**{"max_updates": 1, "rollout.dynamic_sampling": sampling}))
        (said,) = alarms.observe(0, HEALTHY | SICK["no_difference"][0])
        assert ("rollout.dynamic_sampling draws" in said) == advised


def test_a_run_that_learns_raises_nothing() -> None:
    alarms = Alarms(grpo())
    change = SICK["no_reward"][0]
    for update in range(40):  # now and then a bad update
        assert not alarms.observe(update, HEALTHY | (change if update % 3 else {}))
    assert not alarms.summary()


def test_a_spell_that_ended_is_remembered_and_a_second_one_raised_anew() -> None:
    alarms, change = Alarms(grpo()), SICK["no_reward"][0]
    for update in range(10):
        alarms.observe(update, HEALTHY if update == 4 else HEALTHY | change)
    assert [text.partition(":")[0] for text in alarms.summary()] == ["updates 0 to 3", "updates 5 to 9"]


def test_a_lucky_guess_says_nothing_of_a_policy_that_never_made_a_call() -> None:
    alarms, change = Alarms(grpo()), {"episode/malformed_share": 1.0, "episode/malformed_turns": 0.11}
    said = [alarms.observe(u, HEALTHY | change | {"episode/success": s}) for u, s in enumerate((0.0, 0.0625, 0.0))]
    assert "every tool call was malformed" in said[-1][0]
    alarms = Alarms(grpo())
    assert not any(alarms.observe(u, HEALTHY | change | {"episode/success": 0.3}) for u in range(5))


def test_a_short_run_is_long_enough() -> None:
    alarms = Alarms(grpo(max_updates=1))
    assert len(alarms.observe(0, HEALTHY | {"learned/rows": 0.0})) == 1
    assert alarms.summary()[0].startswith("update 0: ")


def test_null_and_absent_figures_raise_nothing() -> None:
    alarms = Alarms(grpo(max_updates=1))
    assert not alarms.observe(0, {"learned/best": None, "episode/malformed_share": float("nan")})
    ppo = Alarms(load_agent_config("lab", ["max_updates=1"]))
    assert not ppo.observe(0, HEALTHY | {"learned/flat_groups": 1.0})  # PPO compares with the value, not with the group
    assert "never differed at all" in ppo.observe(0, HEALTHY | {"learned/spread": 0.0})[0]


def test_what_is_learned_from_by_hand() -> None:
    rows = [
        ("a", 1.0, [1.0]), ("a", 1.0, [0.5, 0.5]), ("b", 0.0, [0.0]), ("b", 0.5, [0.5]), ("c", None, []),
        ("c", 2.0, [2.0]),
    ]  # fmt: skip
    assert learned_metrics(rows) == {
        "learned/rows": 5.0, "learned/reward": pytest.approx(0.9), "learned/best": 2.0, "learned/spread": 2.0,
        "learned/flat_groups": 0.5, "learned/flat_turns": 0.0,
    }  # fmt: skip
    assert learned_metrics([("a", None, [])])["learned/rows"] == 0.0


def test_malformed_calls_are_counted_among_calls() -> None:
    mixed, none = make_episode([0.0, 0.0]), make_episode([0.0])
    mixed.turns[0].info = {"verdicts": ["malformed", "useful"], "malformed": 1, "tool_calls": 1}
    mixed.turns[1].info = {"malformed": 1, "tool_calls": 1}  # an environment without verdicts
    assert episode_metrics([mixed, none])["episode/malformed_share"] == pytest.approx(2 / 3)
    # NaN
    assert episode_metrics([none])["episode/malformed_share"] != episode_metrics([none])["episode/malformed_share"]


def raised(episodes: list[Episode], config: AgentConfig) -> list[str]:
    """What three updates of the same episodes say."""
    alarms = Alarms(config)
    rows = [(e.group_id, e.reward, e.turn_rewards) for e in episodes]
    return [text for u in range(3) for text in alarms.observe(u, episode_metrics(episodes) | learned_metrics(rows))]


def test_rewards_that_are_costs_raise_no_alarm() -> None:
    """0 is the best there is, and the policy succeeds."""
    costs = [make_episode([-1.0]), replace(make_episode([0.0]), success=True)]
    assert raised(costs, grpo()) == []
    nobody_says = [replace(e, success=None) for e in costs]
    assert raised(nobody_says, grpo()) == []
    (text,) = raised([make_episode([-1.0]), make_episode([-0.5])], grpo())
    assert "no episode earned anything" in text


def test_one_malformed_call_among_answers_without_a_call_raises_no_alarm() -> None:
    one = replace(make_episode([-0.1, 0.0], 1.0), success=True)
    one.turns[0].info = {"verdicts": ["malformed"], "malformed": 1}
    answers = [replace(make_episode([0.0], float(n % 2)), success=n % 2 == 1) for n in range(60)]
    assert raised([*answers, one], grpo()) == []
    assert raised([replace(e, success=None) for e in (*answers, one)], grpo()) == []


def test_turns_that_differ_under_equal_totals_raise_no_alarm_with_credit_turn() -> None:
    episodes = [make_episode([0.5, 0.0], 0.5), make_episode([0.0, 0.5], 0.5)]
    assert raised(episodes, grpo(**{"loss.credit": "turn"})) == []
    assert "never differed within a group" in raised(episodes, grpo(**{"loss.credit": "episode"}))[0]
    assert "never differed within a group" in raised([episodes[0]] * 2, grpo(**{"loss.credit": "turn"}))[0]


def test_an_environment_that_fails_on_most_attempts_is_said() -> None:
    failed = [replace(make_episode([0.0], None), success=None, status="env_error") for _ in range(60)]
    played = [replace(make_episode([0.0], 1.0), success=True), make_episode([0.0])]
    (text,) = raised([*failed, *played], grpo())
    assert "more than half of the episodes had no known outcome" in text
    assert raised([*failed[:2], *played], grpo()) == []  # half


def test_the_documented_environment_with_the_labs_model_is_warned_of(tmp_path, monkeypatch, caplog) -> None:
    """It wrote noise for three updates and ended with exit code 0, without a word."""
    text = Path("docs/your-environment.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "product_env.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    small = ["rollout.tasks_per_update=2", "rollout.group_size=2", "rollout.max_turns=2", "rollout.max_new_tokens=16"]
    config = load_agent_config("lab", [
        "environment.name=product_env:Products", "environment.train_tasks=8", "environment.eval_tasks=1", "max_updates=3", f"output_dir={tmp_path / 'run'}", *small,
    ])  # fmt: skip
    with caplog.at_level(logging.WARNING):
        summary = train(config)
    assert any("every tool call was malformed" in w or "every turn was cut" in w for w in summary["warnings"])
    assert any("no episode earned anything" in w for w in summary["warnings"])
    assert caplog.text.count("nothing may be learned: updates 0 to 2: no episode earned anything") == 1
    assert caplog.text.count("in this run, nothing may have been learned: ") == len(summary["warnings"])
    json.dumps(summary, allow_nan=False)


class StingyEnv(SearchEnv):
    """Pays nobody."""

    async def step(self, text: str, stop_reason: Any = "eos") -> StepResult:
        return StepResult({"role": "assistant", "content": text}, [], 0.0, 0.0, True, False, {"success": False})


def test_a_continued_run_remembers_what_was_before(base, tmp_path) -> None:
    changes: dict[str, Any] = {"algorithm": "grpo", "environment": {"name": "test_alarms:StingyEnv"}}
    train(settings(base, tmp_path, max_updates=2, **changes))
    summary = train(settings(base, tmp_path, max_updates=4, **changes))
    standing = [w.partition(":")[0] for w in summary["warnings"] if "earned anything" in w or "never differed" in w]
    assert standing == ["updates 0 to 3"] * 2


def test_a_run_in_which_all_is_well_has_no_warnings(base, tmp_path) -> None:
    config = settings(base, tmp_path, environment={"name": "feedback_lab:PaidEnv"}, max_updates=3)
    assert not [w for w in train(config)["warnings"] if "cut at" not in w]  # an untrained policy ends hardly a turn


def test_a_finished_run_asked_again_says_what_it_said(base, tmp_path) -> None:
    config = settings(base, tmp_path, max_updates=1)
    first = train(config)
    assert first["reward"] is not None
    assert train(config) == first


def test_the_progress_line_says_the_reward_that_is_learned_from() -> None:
    alone = {"episode/reward": math.nan, "learned/reward": 0.5678, "episode/success": math.nan, "kl": 0.01}
    assert progress_text(alone) == "learned_reward 0.568  kl 0.01"
    both = {"episode/reward": 0.25, "learned/reward": 0.5, "episode/turns": 3.0}
    assert progress_text(both) == "reward 0.25  learned_reward 0.5  turns 3"
    assert progress_text({"episode/reward": 0.25, "learned/reward": 0.25}) == "reward 0.25"
