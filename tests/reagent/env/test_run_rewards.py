"""Rewards belong to the run: what is paid by default, what bounds it, and what an answer that cannot be graded earns."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from reagent.env.env import ToolEnv
from reagent.env.rewards import RewardWeights
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.errors import GradeFailed, GradeUnknown
from reagent.tasks.environments import make_factory
from reagent.tasks.webwalkerqa import WebWalkerQA
from reagent.train.alarms import PATIENCE, Alarms
from reagent.train.config import load_agent_config
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError

TASK = Task("t", "What is behind the door?", "stairs")


class DoorEnv(ToolEnv):
    """One tool; a grader that this answer or that breaks."""

    @tool
    async def look(self, at: str) -> str:
        """Look.

        Args:
            at: Where.
        """
        return f"{at}: nothing yet"

    def grade(self, task: Task, answer: str) -> float:
        if answer == "unreadable":
            raise GradeFailed("no verdict in 3 tries")
        if answer == "offline":
            raise GradeUnknown("no server")
        return float(1 / len(answer.strip("?")) > 0 and answer == task.answer)


def total(env: ToolEnv, *turns: str) -> float:
    """What an episode earns, process rewards and outcome."""

    async def play() -> float:
        env.reset(TASK)
        earned = 0.0
        for text in turns:
            step = await env.step(text)
            earned += step.reward + (step.outcome_reward or 0.0)
        return earned

    return asyncio.run(play())


def call(at: str) -> str:
    return f'<tool_call>{{"name": "look", "arguments": {{"at": "{at}"}}}}</tool_call>'


def test_calls_earn_nothing_by_default_and_no_answer_costs() -> None:
    weights = RewardWeights()
    assert (weights.useful, weights.repeated, weights.unanswered) == (0.0, 0.0, -0.1)
    assert total(DoorEnv(), *map(call, "abcd"), "Answer: wall") == 0.0
    assert total(DoorEnv(), call("a"), call("a"), "Answer: stairs") == 1.0
    assert total(DoorEnv(max_turns=4), *map(call, "abcd")) == pytest.approx(-0.1)


def test_malformed_calls_cost_once_a_turn_and_have_a_floor() -> None:
    assert total(DoorEnv(max_turns=20), "<tool_call>{</tool_call>" * 60) == pytest.approx(-0.1)
    assert total(DoorEnv(max_turns=20), *["<tool_call>{</tool_call>" * 3] * 9) == pytest.approx(4 * -0.1)
    bounds: dict[str, Any] = {"malformed": -0.25, "max_malformed": 2}
    assert total(DoorEnv(rewards=bounds, max_turns=20), *["<tool_call>{"] * 5) == pytest.approx(-0.5)
    assert total(DoorEnv(rewards=bounds | {"max_malformed": None}, max_turns=20), *["<tool_call>{"] * 5) == -1.25


def test_rewards_survive_the_naming_of_another_environment(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    caplog.set_level(logging.WARNING, "reagent.train.config")
    path = tmp_path / "mine.yaml"
    for written in (
        "rewards: {outcome: 2.0, useful: 0.5}",
        "options: {max_turns: 3, rewards: {outcome: 2.0, useful: 0.5}}",
    ):
        path.write_text(f"environment:\n  name: search\n  {written}\n")
        for overrides in ([], ["environment.name=calculator"]):
            environment = load_agent_config(str(path), overrides).environment
            assert (environment.rewards.outcome, environment.rewards.useful) == (2.0, 0.5), (written, overrides)
            env = make_factory(environment.name, **environment.made_with)()
            assert isinstance(env, ToolEnv) and env.rewards == environment.rewards
            assert "rewards" not in environment.options
        assert "environment.rewards={'outcome': 2.0, 'useful': 0.5}" in caplog.text
        bare = load_agent_config(str(path), ["environment.name=calculator", "environment.rewards={}"]).environment
        assert bare.rewards == RewardWeights() and "rewards" not in bare.made_with
    lab = load_agent_config("lab", ["environment.options={rewards: {outcome: 0.0}}"]).environment  # as studies have it
    assert (lab.rewards.outcome, lab.rewards.useful, lab.options) == (0.0, 0.05, {})
    with pytest.raises(ConfigError, match=r"environment\.rewards\.usefull"):
        load_agent_config("lab", ["environment.options={rewards: {usefull: 1}}"])


def test_an_answer_that_breaks_its_grader_earns_the_failure_reward() -> None:
    def end(answer: str, **options: Any) -> Any:
        env = DoorEnv(**options)
        env.reset(TASK)
        return asyncio.run(env.step(f"Answer: {answer}"))

    for answer, success in (
        ("unreadable", {None}),
        ("??", {False}),
    ):  # the second: 1 / 0, and the task's own answer can be graded
        step = end(answer, failure_reward=-0.25)
        assert step.terminated and step.outcome_reward == -0.25 and {step.info["success"]} == success
        assert step.info["grader_error"] and end(answer).outcome_reward == 0.0
    with pytest.raises(GradeUnknown):  # not the answer's doing
        end("offline", failure_reward=-0.25)
    env = WebWalkerQA(judge=ScriptedChatEngine(["hm"]), judge_options={"tries": 1}, tools=[])
    env.reset(WebWalkerQA.make("Who?", "Ana Büki", root_url="https://example.org"))
    step = asyncio.run(env.step("Answer: A. Büki"))
    assert (step.outcome_reward, step.info["success"], step.info["grade"]) == (0.0, None, None)


def test_a_rising_share_of_unknown_rewards_is_an_alarm() -> None:
    alarms = Alarms(load_agent_config("lab", []))
    rows: dict[str, Any] = {"learned/rows": 64.0, "learned/best": 1.0, "learned/spread": 1.0}
    shares = [0.0] * PATIENCE + [0.3] * (2 * PATIENCE)
    fired = [alarms.observe(u, rows | {"episode/unknown": share}) for u, share in enumerate(shares)]
    assert [len(alarms_now) for alarms_now in fired] == [0] * (3 * PATIENCE - 2) + [1, 0]
    assert "ever more episodes have no known reward" in fired[3 * PATIENCE - 2][0]
    of_judge = Alarms(load_agent_config("lab", []))  # the judge fails instead: 16 of 64 + 16 rows
    fired_of_judge = [of_judge.observe(u, rows | {"unknown_rows": 16.0 * (u >= PATIENCE)}) for u in range(3 * PATIENCE)]
    assert sum(map(len, fired_of_judge)) == 1
    steady = Alarms(load_agent_config("lab", []))
    assert not any(steady.observe(u, rows | {"episode/unknown": 0.3}) for u in range(3 * PATIENCE))
