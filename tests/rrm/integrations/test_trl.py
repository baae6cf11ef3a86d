"""The judge in TRL: its rewards are `AgentRRM.judge`'s scores, and a real GRPOTrainer trains on them."""

from __future__ import annotations

import asyncio
import functools
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chat_judge import ChatJudge
from lamps import Lamp, Paid
from trl_models import caller

from reagent.lab.shipped import judge_folder
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.integrations.trl import as_trajectory, async_reward_func, judged_environment, reward_func
from rrm.judge.agent_rrm import AgentRRM


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
