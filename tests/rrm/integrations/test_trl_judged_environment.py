"""Environments that are judged: by what was asked and done in them, together, once each, and never by another episode."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from chat_judge import ChatJudge
from lamps import Lamp, Paid

from rrm.data.trajectory import Message, Trajectory
from rrm.errors import EngineError
from rrm.integrations.trl import judged_environment
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.cached_judge import by_content


def test_an_environment_is_judged_by_its_question_and_its_calls(judge: AgentRRM) -> None:
    make = judged_environment(Paid, judge, weight=0.5, unplayed=-1.0)
    one, other, idle = make(), make(), make()
    assert type(one) is type(other) and type(one).__name__ == "JudgedPaid"
    prompt = [{"role": "system", "content": "You light lamps."}, {"role": "user", "content": "Please."}]
    for environment, room in ((one, "hall"), (other, "roof"), (idle, "hall")):
        assert environment.reset(prompt=prompt, room=room) == f" Light the {room}."
    assert one.light(room="hall") == "hall is lit"
    with pytest.raises(ValueError, match="no lamp"):
        other.light("roof")
    lit = Trajectory(
        id="x",
        task="Please. Light the hall.",
        messages=[
            Message(role="system", content="You light lamps."),
            Message(role="user", content="Please. Light the hall."),
            Message.model_validate(
                {"role": "assistant", "tool_calls": [{"name": "light", "arguments": {"room": "hall"}, "id": "call_1"}]}
            ),
            Message(role="tool", name="light", tool_call_id="call_1", content="hall is lit"),
        ],
        tools=one._transcript().tools,
    )
    (said,) = judge.judge([lit], mode="score")
    assert said.score is not None
    assert one.get_reward() == pytest.approx(10.0 + 0.5 * said.score, abs=1e-6)
    assert idle.get_reward() == -1.0 and one.lit == ["hall"]
    assert other._transcript().messages[-1].text() == "{'error': 'there is no lamp'}"
    assert one._transcript().tools[0]["function"]["parameters"]["required"] == ["room"]


class Owing(Lamp):
    """One that takes something for a dark house."""

    def get_reward(self) -> float | None:
        return -1.0


class Awaited(Lamp):
    """The same, as a coroutine."""

    async def get_reward(self) -> float:
        return -1.0


class Unknown(Lamp):
    """One that does not know its reward."""

    def get_reward(self) -> None:
        return None


@pytest.mark.parametrize(
    ("kind", "unplayed", "earned"),
    [
        (Owing, None, -1.0), (Owing, -0.5, -1.5), (Awaited, None, -1.0), (Awaited, -0.5, -1.5),
        (Lamp, None, None), (Lamp, -0.5, -0.5), (Unknown, None, None), (Unknown, -0.5, None),
    ],
)  # fmt: skip
def test_an_episode_without_a_call_keeps_what_the_environment_pays(kind: Any, unplayed: Any, earned: Any) -> None:
    judge = ChatJudge()
    idle = judged_environment(kind, judge, unplayed=unplayed)()
    idle.reset(room="hall")
    reward = idle.get_reward()
    assert (asyncio.run(reward) if kind is Awaited else reward) == earned and judge.windows == []


def test_a_batch_is_judged_at_once_and_again_only_after_a_call() -> None:
    judge = ChatJudge()
    make = judged_environment(Lamp, judge)
    made = [make() for _ in range(3)]
    for environment, room in zip(made, ("a", "b", "c"), strict=True):
        environment.reset(room=room)
        environment.light(room)
    rewards = [environment.get_reward() for environment in made]
    assert [len(window) for window in judge.windows] == [3]
    made[0].light("d")
    assert made[0].get_reward() is not None and [environment.get_reward() for environment in made[1:]] == rewards[1:]
    assert [len(window) for window in judge.windows] == [3, 1]


def test_a_judgement_that_fails_leaves_the_reward_out() -> None:
    environment = Lamp()
    made = judged_environment(lambda: environment, ChatJudge())()
    made.reset()
    made.light("hall")
    down = judged_environment(Paid, ChatJudge(down=(made._transcript().id,)))()
    down.reset()
    down.light("hall")
    assert down.get_reward() is None
    assert by_content(made._transcript()).id == made._transcript().id


def test_an_episode_never_has_the_score_of_the_one_before() -> None:
    begun, go = threading.Event(), threading.Event()
    go.set()

    def wait(window: Sequence[Trajectory]) -> None:
        begun.set()
        assert go.wait(10)

    judge = ChatJudge(on_window=wait)
    make = judged_environment(Lamp, judge)
    one, other, third = make(), make(), make()
    for environment in (one, other, third):
        environment.reset(room="a")
        environment.light("a")
    go.clear()
    begun.clear()
    with_one = threading.Thread(target=one.get_reward)
    with_one.start()
    assert begun.wait(10)
    other.reset(room="b")  # while the judge reads its episode, the next one begins
    other.light("b")
    third.light("c")  # and this one goes on
    go.set()
    with_one.join(10)
    for environment in (other, third):
        (alone,) = ChatJudge().judge([environment._transcript()], mode="score")
        assert environment.get_reward() == alone.score
    one.reset(room="d")
    one.light("d")
    other.light("d")
    judged = len(judge.windows)
    assert one.get_reward() is not None
    assert [len(window) for window in judge.windows[judged:]] == [1], (
        "episodes overlap: each is judged when it is asked"
    )
    assert make.summary()["judged"] == 4 and make.summary()["failed"] == 0


def test_episodes_overlap_where_one_goes_on_after_it_was_judged_unasked() -> None:
    judge = ChatJudge()
    make = judged_environment(Lamp, judge)
    one, other = make(), make()
    for environment in (one, other):
        environment.reset()
        environment.light("a")
    assert one.get_reward() is not None and [len(window) for window in judge.windows] == [1]  # alike: judged once
    other.light("b")
    one.reset()
    one.light("c")
    assert other.get_reward() is not None and one.get_reward() is not None
    assert [len(window) for window in judge.windows] == [1, 1, 1]


def test_what_the_judge_raises_of_one_environment_is_no_other_s() -> None:
    def refuse(window: Sequence[Trajectory]) -> None:
        if any("bad" in t.messages[-1].text() for t in window):
            raise EngineError("it is refused")

    make = judged_environment(Lamp, ChatJudge(on_window=refuse))
    made = [make() for _ in range(3)]
    for environment, room in zip(made, ("a", "bad", "c"), strict=True):
        environment.reset()
        environment.light(room)
    assert made[0].get_reward() is not None and made[2].get_reward() is not None
    with pytest.raises(EngineError, match="it is refused"):
        made[1].get_reward()


class Slow(Lamp):
    """One whose reward is a coroutine."""

    async def get_reward(self) -> float:
        return 10.0


def test_coroutines_go_on_while_an_environment_is_judged() -> None:
    async def play() -> list[float | None]:
        went_on = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait(window: Sequence[Trajectory]) -> None:
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(went_on.wait(), 10), loop).result(10)

        made = [judged_environment(Slow, ChatJudge(on_window=wait))() for _ in range(2)]
        for environment in made:
            environment.reset()
            environment.light("a")

        async def others() -> None:
            went_on.set()

        *rewards, _ = await asyncio.gather(*(environment.get_reward() for environment in made), others())
        return rewards

    first, second = asyncio.run(play())
    assert first is not None and first == second and 10 <= first <= 11
