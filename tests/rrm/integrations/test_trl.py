"""The judge in TRL: its rewards are `AgentRRM.judge`'s scores, and a real GRPOTrainer trains on them."""

from __future__ import annotations

import asyncio
import functools
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chat_judge import ChatJudge
from trl_models import caller

from reagent.lab.shipped import judge_folder
from rrm.errors import ConfigError, EngineError, RRMError
from rrm.integrations.asking import by_content
from rrm.integrations.trl import as_trajectory, async_reward_func, judged_environment, reward_func
from rrm.judge.agent_rrm import AgentRRM
from rrm.trajectory import Message, Trajectory


class Lamp:
    """An environment of TRL's protocol."""

    def __init__(self) -> None:
        self.lit: list[str] = []

    def reset(self, room: str = "hall", **_: Any) -> str:
        self.lit = []
        return f" Light the {room}."

    def light(self, room: str) -> str:
        """Light a room.

        Args:
            room: Which room.
        """
        if room == "roof":
            raise ValueError("there is no lamp")
        self.lit.append(room)
        return f"{room} is lit"


class Paid(Lamp):
    """One that pays of its own."""

    def get_reward(self) -> float:
        return 10.0 * len(self.lit)


def halves(trajectory: Trajectory) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A transcript as TRL's prompt and completion."""
    rows = [m.model_dump(exclude_none=True) for m in trajectory.messages]
    first = len(trajectory.prelude)
    return rows[:first], rows[first:]


def test_scores_and_logs_are_the_judges(judge: AgentRRM, transcripts: list[Trajectory]) -> None:
    logged: dict[str, Any] = {}
    prompts, completions = map(list, zip(*(halves(t) for t in transcripts), strict=True))
    tools = [t.tools for t in transcripts]
    columns: dict[str, Any] = {"log_extra": logged.__setitem__, "log_metric": logged.__setitem__, "tools": tools}
    rewards = reward_func(judge, mode="score")(prompts, completions, **columns)
    said = judge.judge(
        [as_trajectory(None, *row) for row in zip(prompts, completions, tools, strict=True)], mode="score"
    )
    assert rewards == pytest.approx([f.score for f in said], abs=1e-6)
    direct = judge.judge([t.model_copy(update={"task": t.prelude[-1].text()}) for t in transcripts], mode="score")
    assert rewards == pytest.approx([f.score for f in direct], abs=1e-6)
    assert logged["agent_rrm_score"] == rewards and logged["agent_rrm_status"] == ["scored"] * len(rewards)
    assert logged["agent_rrm/score"] == pytest.approx(sum(rewards) / len(rewards)) and logged["agent_rrm/failed"] == 0
    again = asyncio.run(async_reward_func(judge)(prompts, completions, tools=tools))
    assert again == pytest.approx(rewards, abs=1e-6)


def test_alike_completions_are_judged_once_and_a_failure_is_none() -> None:
    logged: dict[str, Any] = {}
    down = as_trajectory(None, "q", "wrong").digest
    judge = ChatJudge(down=(down,))
    rewards = reward_func(judge, mode="full")(
        ["q", "q", "q"], ["right", "wrong", "right"], log_extra=logged.__setitem__, log_metric=logged.__setitem__
    )
    assert len(judge.windows) == 1 and len(judge.windows[0]) == 2
    assert rewards[0] == rewards[2] and rewards[1] is None
    assert logged["agent_rrm_finding"][0] == "[step 1] good: ok" and "server is down" in logged["agent_rrm_finding"][1]
    assert logged["agent_rrm/failed"] == pytest.approx(1 / 3) and logged["agent_rrm/score"] == rewards[0]
    logged.clear()
    reward_func(judge, mode="full")(["q"], ["wrong"], log_metric=logged.__setitem__)
    assert logged == {"agent_rrm/failed": 1.0}


def test_pictures_are_named_and_tools_are_those_of_the_environment() -> None:
    picture = [{"type": "image", "image": object()}, {"type": "text", "text": "what is this?"}]
    row = as_trajectory(None, [{"role": "user", "content": picture}], "a cat")
    assert row.messages[0].text() == "[image]\nwhat is this?"
    seen: list[Trajectory] = []
    judge = ChatJudge(on_window=seen.extend)
    reward_func(judge, tools=[Lamp().light])(["q"], ["a"])
    reward_func(judge)(["q"], ["a"], environments=[Lamp()])
    reward_func(judge)(["q"], ["a"], tools=[[{"type": "function", "function": {"name": "own"}}]])
    assert [t.tools[0]["function"]["name"] for t in seen if t.tools] == ["light", "light", "own"]


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


ASKED = [{"role": "user", "content": "q"}]


def called(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    return [{"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}]


@pytest.mark.parametrize(
    ("completion", "tools", "shown"),
    [
        (called([1]), None, "[1]"),
        (called(np.array([{"a": 1}], dtype=object)), None, '[{"a": 1}]'),
        (called("{bad"), None, "{bad"),
        ([{"role": "tool", "name": "f", "content": {"a": 1}}], None, '{"a": 1}'),
        ([{"role": "assistant", "content": ["abc"]}], None, "abc"),
        ([{"role": "assistant", "content": "x", "seen": object()}], None, "[object]"),
        ("x", ["search"], "'name': 'search'"),
        ("x", np.array(["search"], dtype=object), "'name': 'search'"),
        ("x", '["search"]', "'name': 'search'"),
    ],
)
def test_rows_of_every_shape_are_read(completion: Any, tools: Any, shown: str) -> None:
    seen: list[Trajectory] = []
    (reward,) = reward_func(ChatJudge(on_window=seen.extend))([ASKED], [completion], tools=[tools])
    assert reward is not None and shown in str(seen[0].model_dump())


@pytest.mark.parametrize(
    ("completion", "tools", "why"),
    [
        (None, None, "completion must be a text or a list of messages, got NoneType"),
        ([None], None, r"completion[0] must be an object with a role, got NoneType"),
        ([{"role": "robot", "content": "x"}], None, "completion[0] has role 'robot'"),
        ("x", "search", "tools must be schemas or names of tools"),
        ("x", [3], "tools must be schemas or names of tools"),
        ([{"role": "assistant", "content": functools.reduce(lambda v, _: [v], range(5000), "x")}], None, "too deeply"),
    ],
)
def test_a_row_that_cannot_be_read_has_no_reward_and_counts_as_failed(completion: Any, tools: Any, why: str) -> None:
    logged: dict[str, Any] = {}
    columns: dict[str, Any] = {
        "log_extra": logged.__setitem__,
        "log_metric": logged.__setitem__,
        "tools": [None, tools],
    }
    reward = reward_func(ChatJudge(), mode="full")
    assert reward([ASKED] * 2, ["fine", completion], **columns)[1] is None
    assert logged["agent_rrm_status"] == ["scored", "unreadable"] and logged["agent_rrm/failed"] == 0.5
    assert why in logged["agent_rrm_finding"][1]
    assert reward([ASKED] * 2, ["fine", completion], **columns)[0] is not None
    with pytest.raises(RRMError, match="no transcript"):
        as_trajectory(None, ASKED, completion, tools)


def test_a_reward_beside_the_judges_is_added_and_none_where_either_is() -> None:
    down = as_trajectory(None, "q", "down").id

    def own(prompts: Any, completions: list[str], **columns: Any) -> list[float | None]:
        assert columns["answer"] == [7, 7, 7]
        return [None if said == "ungraded" else 1.0 for said in completions]

    async def slowly(**columns: Any) -> list[float | None]:
        return own(**columns)

    rows: dict[str, Any] = {"prompts": ["q"] * 3, "completions": ["right", "down", "ungraded"], "answer": [7] * 3}
    judge = ChatJudge(down=(down,))
    (alone, *_) = reward_func(judge)(**rows)
    assert alone is not None
    both = reward_func(judge, beside=own, weight=0.5)
    assert both(**rows) == [1.0 + 0.5 * alone, None, None]
    for beside in (own, slowly):
        assert asyncio.run(async_reward_func(judge, beside=beside, weight=0.5)(**rows)) == both(**rows)
    with pytest.raises(ConfigError, match="async_reward_func"):
        reward_func(judge, beside=slowly)  # pyright: ignore[reportArgumentType]


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


def test_they_go_to_another_process_as_trl_s_worker_sends_them(judge: AgentRRM) -> None:
    worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    pytest.importorskip("accelerate").PartialState(cpu=True)  # its loggers want it
    name = str(judge_folder())
    for make in (reward_func, async_reward_func):
        function = pickle.loads(pickle.dumps(make(name, tools=[Lamp().light])))  # noqa: S301
        (other,) = judge.judge([as_trajectory(None, ASKED, "a", function.tools)], mode="score")
        group = worker.RolloutGroup(
            prompts=[ASKED] * 2, completions=["a", None], completions_ids=[[1], [1]], completions_sequences=[[], []],
            reward_kwargs={}, tool_call_counts=[0, 0], tool_failure_counts=[0, 0], model_version=0, group_id=0,
            env_rewards=[], rollout_rewards=[],
        )  # fmt: skip
        scorer = SimpleNamespace(
            reward_funcs=[function], _env_reward_types=[], _provides_rollout_reward=False, reward_func_names=["r"]
        )
        assert asyncio.run(worker._AsyncRolloutLoop._score_group(scorer, group)) == []
        found = function([ASKED], ["a"])
        (reward,) = asyncio.run(found) if make is async_reward_func else found
        assert reward == pytest.approx(other.score, abs=1e-6)
    factory = pickle.loads(pickle.dumps(judged_environment(Lamp, name, weight=0.5)))  # noqa: S301
    made = factory()
    made.reset()
    made.light("a")
    (said,) = judge.judge([made._transcript()], mode="score")
    assert said.score is not None and made.get_reward() == pytest.approx(0.5 * said.score, abs=1e-6)


def test_grpo_trains_through_an_environment_that_is_judged(judge: AgentRRM, tmp_path: Path) -> None:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    row = [{"role": "user", "content": "Please."}]
    asked = [{"role": "user", "content": "Please. Light the hall."}]
    model, tokenizer = caller(asked, [Lamp().light], '{"name": "light", "arguments": {"room": "hall"}}')
    before = [p.detach().clone() for p in model.parameters()]
    made: list[Any] = []
    make = judged_environment(Paid, judge, weight=0.5)

    def factory() -> Any:
        made.append(make())
        return made[-1]

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=async_reward_func(judge),
        environment_factory=factory,
        train_dataset=Dataset.from_list([{"prompt": row, "room": "hall"}] * 2),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            report_to=[],
            logging_steps=1,
            max_completion_length=200,
            learning_rate=1e-3,
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
            bf16=False,
            max_tool_calling_iterations=1,
            seed=1,
            log_completions=False,
            temperature=1.0,
        ),
    )
    trainer.train()
    lines = [line for line in trainer.state.log_history if "rewards/JudgedPaid/mean" in line]
    assert len(lines) == 2 and all(line["agent_rrm/failed"] == 0 for line in lines)
    played = [environment for environment in made if environment._played]
    assert played, "the model called nothing: the test shows nothing"
    said = judge.judge([environment._transcript() for environment in played], mode="score")
    for environment, feedback in zip(played, said, strict=True):
        assert feedback.score is not None
        # judged in other company: float32 sums of another padding move a score by some 1e-6
        assert environment.get_reward() == pytest.approx(10 * len(environment.lit) + 0.5 * feedback.score, abs=1e-5)
    seen = list(trainer._logs["rewards"]["JudgedPaid"])[-4:]
    paid = [environment.get_reward() for environment in made[:4]]
    assert [r for r in seen if r == r] == pytest.approx([r for r in paid if r is not None], abs=1e-4)
    assert set(trainer._logs["extra"]) == {"agent_rrm_score", "agent_rrm_status", "agent_rrm_finding"}
    moved = [not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
    assert any(moved)
