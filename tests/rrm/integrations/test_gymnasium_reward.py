"""The judge's score at the end of a Gymnasium episode."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import gymnasium
import pytest
from chat_judge import ChatJudge
from gymnasium.utils.env_checker import check_env

from reagent.env.gym import GymEnv
from reagent.tasks.environments import make_factory, make_tasks
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError
from rrm.integrations.gymnasium_reward import JudgeReward
from rrm.judge.agent_rrm import AgentRRM


class Echo(gymnasium.Env[str, str]):
    """Says back what it is told, twice; without chat messages in `info`."""

    action_space = gymnasium.spaces.Text(20)
    observation_space = gymnasium.spaces.Text(40)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.turns = 0
        return "begin", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        return action * 2, 1.0, self.turns == 2, False, {}


def test_the_checker_passes(judge: AgentRRM) -> None:
    tasks = make_tasks("calculator", 3, seed=0)
    env = JudgeReward(GymEnv(make_factory("calculator", max_turns=2)(), tasks, max_chars=500), judge)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        check_env(env)


def test_the_last_step_earns_the_score_of_the_whole_episode(judge: AgentRRM) -> None:
    tasks = make_tasks("calculator", 3, seed=0, hops=2)
    plain = GymEnv(make_factory("calculator")(), tasks)
    turns = ['<tool_call>{"name": "calculator", "arguments": {"expression": "7 * 8"}}</tool_call>', "Answer: 1"]
    _, info = plain.reset(options={"task": 1})
    messages, own = list(info["messages"]), 0.0
    for turn in turns:
        _, reward, *_, info = plain.step(turn)
        messages += [info["message"], *info["messages"]]
        own += reward
    whole = Trajectory(id="x", task=tasks[1].question, messages=[Message(**m) for m in messages], tools=plain.env.tools)
    (said,) = judge.judge([whole], mode="score")
    assert said.score is not None

    env = JudgeReward(plain, judge, weight=0.5, tools=plain.env.tools)
    env.reset(options={"task": 1})
    _, first, *_, info = env.step(turns[0])
    assert "agent_rrm" not in info
    _, last, terminated, _, info = env.step(turns[1])
    assert terminated and first + last == pytest.approx(own + 0.5 * said.score, abs=1e-6)
    assert info["agent_rrm"]["status"] == "scored"
    assert info["agent_rrm"]["score"] == pytest.approx(said.score, abs=1e-6)


@pytest.mark.parametrize(("ends", "at_truncation", "paid"), [
    ("terminated", True, True), ("terminated", False, True), ("truncated", True, True), ("truncated", False, False),
    ("both", False, True),
])  # fmt: skip
def test_an_episode_is_judged_and_paid_once(ends: str, at_truncation: bool, paid: bool) -> None:
    class Over(Echo):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return action, 1.0, ends != "truncated", ends != "terminated", {}

    judge = ChatJudge()
    env = JudgeReward(Over(), judge, weight=1.0, mode="full", at_truncation=at_truncation)
    for episode in (1, 2):
        env.reset()
        steps = [env.step("ha") for _ in range(3)]  # two of them after the end
        score = steps[0][-1]["agent_rrm"]["score"]
        assert score > 0 and [reward for _, reward, *_ in steps] == [1.0 + score * paid, 1.0, 1.0]
        assert ["agent_rrm" in info for *_, info in steps] == [True, False, False]
        assert sum(map(len, judge.windows)) == episode


def test_any_environment_of_texts_and_a_judge_that_fails() -> None:
    seen: list[Trajectory] = []
    env = JudgeReward(Echo(), ChatJudge(on_window=seen.extend), weight=1.0, mode="full")
    for _ in range(2):
        env.reset(seed=3)
        env.step("ha")
        *_, info = env.step("ho")
    assert [(m.role, m.text()) for m in seen[-1].messages] == [
        ("user", "begin"), ("assistant", "ha"), ("user", "haha"), ("assistant", "ho"), ("user", "hoho"),
    ]  # fmt: skip
    assert seen[0].id == seen[1].id and info["agent_rrm"]["finding"] == "[step 1] good: ok"
    broken = JudgeReward(Echo(), ChatJudge(down=(seen[0].id,)), weight=1.0, mode="full")
    broken.reset()
    broken.step("ha")
    _, reward, *_, info = broken.step("ho")
    assert reward == 1.0 and info["agent_rrm"]["failed"] and info["agent_rrm"]["score"] != info["agent_rrm"]["score"]
    assert "server is down" in info["agent_rrm"]["reason"]


@pytest.mark.parametrize(
    "told",
    [
        {"message": "You won"}, {"message": None}, {"message": {"text": "won"}}, {"message": {"role": "robot"}},
        {"messages": 3}, {"messages": None}, {"messages": "text"}, {"messages": ["text"]}, {"messages": [{"role": "robot"}]},
    ],
)  # fmt: skip
def test_an_environment_s_own_info_is_no_chat(told: dict[str, Any]) -> None:
    class Telling(Echo):
        def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
            return super().reset(**given)[0], dict(told)

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            *step, _ = super().step(action)
            return (*step, dict(told))  # pyright: ignore[reportReturnType]

    seen: list[Trajectory] = []
    env = JudgeReward(Telling(), ChatJudge(on_window=seen.extend))
    env.reset()
    env.step("ha")
    *_, info = env.step("ho")
    assert [m.text() for m in seen[0].messages] == ["begin", "ha", "haha", "ho", "hoho"] and not info["agent_rrm"][
        "failed"
    ]
    assert info.items() >= told.items()


@pytest.mark.parametrize("first_fails", [True, False])
def test_the_scores_of_a_vector_are_floats_whoever_failed_first(first_fails: bool) -> None:
    seen: list[Trajectory] = []

    def play(down: tuple[str, ...]) -> Any:
        judge = ChatJudge(on_window=seen.extend, down=down)
        vector = gymnasium.vector.SyncVectorEnv([lambda: JudgeReward(Echo(), judge, mode="full") for _ in range(2)])
        vector.reset()
        vector.step(("ha", "hi"))
        return vector.step(("ha", "hi"))[-1]["agent_rrm"]

    assert play(())["score"].dtype == float
    said = play((seen[0 if first_fails else 1].id,))
    assert said["score"].dtype == float and list(said["failed"]) == [first_fails, not first_fails]
    assert list(said["score"] != said["score"]) == list(said["failed"])


def test_a_judged_environment_goes_to_another_process() -> None:
    other = pickle.loads(pickle.dumps(JudgeReward(Echo(), Plain(), mode="full")))  # noqa: S301
    other.reset()
    other.step("ha")
    assert other.step("ho")[-1]["agent_rrm"]["status"] == "scored"


class Plain:
    """A judge that can go to another process."""

    judge = ChatJudge().judge


def test_an_environment_without_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="action space is Discrete"):
        JudgeReward(gymnasium.make("CartPole-v1"), ChatJudge())
