"""The judge in TRL: its rewards are `AgentRRM.judge`'s scores, and a real GRPOTrainer trains on them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge
from trl_models import caller

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
