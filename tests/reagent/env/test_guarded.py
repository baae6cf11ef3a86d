"""Episodes under guard: a halted one has an end of its own kind, and a guard that says nothing changes nothing."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from guarded import SaysSo
from rollout_models import make_tokenizer, says

from reagent.env.env import Environment, StepResult, ToolEnv
from reagent.env.guarded import GuardedEnv, guarded
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.feedback.base import judgeable
from reagent.rollout.batch import make_batch
from reagent.rollout.rollout import rollout
from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.engines.base import SamplingParams
from rrm.errors import ConfigError
from rrm.guard import Guard, GuardPolicy, read_audit

CALL = '<tool_call>{"name": "look", "arguments": {"where": "left"}}</tool_call>'
PARAMS = SamplingParams(max_new_tokens=64)


class Looking(ToolEnv):
    @tool
    def look(self, where: str) -> str:
        """Look somewhere.

        Args:
            where: a side.
        """
        return f"nothing on the {where}"


def make() -> Environment:
    return Looking(parser="hermes", max_turns=4, rewards={"unanswered": -0.5})


def play(make_env: Any, *turns: str, graded: bool = True) -> Any:
    tokenizer = make_tokenizer("chatml")
    task = Task("t", "where is it?", answer="right" if graded else None)
    (episode,) = rollout(says(tokenizer, *turns), tokenizer, make_env, [task], params=PARAMS)
    return episode


def test_a_failing_episode_is_halted(tmp_path: Path) -> None:
    judge = SaysSo(0.5, 0.05, 0.05)
    guard = Guard(judge, GuardPolicy(halt_below=0.1, patience=2), audit=tmp_path / "audit.jsonl")
    episode = play(guarded(make, guard), CALL)
    assert (episode.status, len(episode.turns), episode.success, episode.outcome_reward) == ("halted", 3, False, -0.5)
    assert episode.trajectory.meta["status"] == "halted" and episode.trajectory.outcome == 0.0
    last = episode.turns[-1].info
    assert last["ended_by"] == "halted" and last["guard"]["action"] == "halt" and "0.05" in last["guard"]["reason"]
    # the judge read what the episode's own trajectory holds
    assert [m.text() for m in judge.seen[-1].messages] == [m.text() for m in episode.trajectory.messages]
    rows = list(read_audit(tmp_path / "audit.jsonl"))
    assert [r.verdict for r in rows] == ["continue", "continue", "halt"]
    assert rows[0].calls[0].name == "look" and rows[0].calls[0].seconds is not None
    assert play(guarded(make, guard), CALL, graded=False).ungraded


class Fails(SaysSo):
    """A judge that fails from a step on."""

    def __init__(self, *scores: float, at: int = 1) -> None:
        super().__init__(*scores)
        self.at = at

    def judge(self, trajectories: Sequence[Trajectory], *, mode: Mode, samples: int, seed: int) -> list[Feedback]:
        if len(trajectories[0].steps) >= self.at:
            raise OSError("the judge is gone")
        return super().judge(trajectories, mode=mode, samples=samples, seed=seed)


@pytest.mark.parametrize(
    ("judge", "policy", "reason"),
    [
        (Fails(), GuardPolicy(on_failure="halt"), "the judge is gone"),
        (SaysSo(0.05), GuardPolicy(max_checks=1, on_exhausted="halt"), "budget is used up"),
    ],
)
@pytest.mark.parametrize("graded", [True, False])
def test_a_halt_for_want_of_a_judgement_teaches_nothing(judge, policy, reason, graded) -> None:
    episode = play(guarded(make, Guard(judge, policy)), CALL, graded=graded)
    assert episode.status == "halted" and reason in episode.error
    assert episode.reward is None and episode.success is None and not episode.ungraded
    assert episode.trajectory.outcome is None and not judgeable(episode)
    batch = make_batch([episode])
    assert not batch.known.any() and not batch.token_rewards.any()


def test_being_halted_is_no_way_out() -> None:
    """A halted episode is priced below the worst that plays on, and is owed nothing of what would have come."""
    guard = Guard(SaysSo(*[0.0] * 4), GuardPolicy())
    to_the_end = play(make, CALL)  # the same call again and again
    priced = guarded(make, guard, halted_reward=-1.0)
    halted = play(priced, CALL)
    assert (to_the_end.status, halted.status) == ("turn_limit", "halted")
    assert halted.outcome_reward == -1.0 and halted.reward < to_the_end.reward
    assert (make_batch([halted, to_the_end]).ends > 0).tolist() == [False, True]
    assert play(priced, CALL, graded=False).ungraded
    unknown = play(guarded(make, Guard(Fails(), GuardPolicy(on_failure="halt")), halted_reward=-1.0), CALL)
    assert unknown.reward is None
    with pytest.raises(ConfigError, match="halted_reward must be a finite number"):
        guarded(make, guard, halted_reward=float("nan"))()


def test_a_factory_under_guard_can_be_sent_to_another_process() -> None:
    factory = pickle.loads(pickle.dumps(guarded(make, Guard(SaysSo(0.5), GuardPolicy()), halted_reward=-1.0)))  # noqa: S301 - made here
    assert factory().halted_reward == -1.0


def test_a_guard_that_lets_go_on_changes_nothing() -> None:
    for action in ("continue", "ask"):
        policy = GuardPolicy(halt_below=None, ask_below=1.0 if action == "ask" else None, patience=1)
        under, free = (
            play(env, CALL, CALL, "Answer: right") for env in (guarded(make, Guard(SaysSo(*[0.0] * 4), policy)), make)
        )
        assert under.turns[0].info["guard"]["action"] == action and "guard" not in under.turns[-1].info
        assert (under.status, under.reward, under.flatten().input_ids.tolist()) == (
            free.status, free.reward, free.flatten().input_ids.tolist()
        )  # fmt: skip
        assert under.status == "finished" and under.success


def test_the_guard_watches_each_episode_anew() -> None:
    async def episode(env: GuardedEnv) -> list[bool]:
        env.reset(Task("t", "where?", answer="right"))
        return [(await env.step(CALL)).truncated for _ in range(2)]

    env = GuardedEnv(make(), Guard(SaysSo(0.0, 0.0), GuardPolicy(patience=2)))
    assert asyncio.run(episode(env)) == [False, True] == asyncio.run(episode(env))
    assert env.max_turns == 4 and env.tools == make().tools  # what the environment has, this has too
    asyncio.run(env.close())


class Hangs(SaysSo):
    """A judge that gives no answer until it is let go."""

    def __init__(self, *scores: float, seconds: float | None = None) -> None:
        super().__init__(*scores)
        self.free, self.seconds = threading.Event(), seconds

    def judge(self, trajectories: Sequence[Trajectory], *, mode: Mode, samples: int, seed: int) -> list[Feedback]:
        self.free.wait(self.seconds)
        self.free.set()
        return super().judge(trajectories, mode=mode, samples=samples, seed=seed)


class Pooled(Looking):
    slow_grader = True  # it is graded in the event loop's own pool of threads


def play_many(make_env: Any, n: int, *turns: str, **options: Any) -> list[Any]:
    tokenizer = make_tokenizer("chatml")
    tasks = [Task(f"t{i}", "where is it?", answer="right") for i in range(n)]
    return rollout(says(tokenizer, *turns), tokenizer, make_env, tasks, params=PARAMS, **options)


def test_waiting_for_the_judge_is_no_failure_of_the_environment() -> None:
    guard = Guard(Hangs(0.9, 0.9, seconds=0.5), GuardPolicy())
    episodes = play_many(guarded(make, guard), 4, CALL, "Answer: right", env_timeout_s=0.25)
    assert [(e.status, e.success, e.turns[0].info["guard"]["status"]) for e in episodes] == [
        ("finished", True, "scored")
    ] * 4


def test_a_judge_that_hangs_holds_nobody_up() -> None:
    judge = Hangs(*[0.0] * 4)
    try:
        many = 40  # more than the pool has threads
        factory = guarded(lambda: Pooled(parser="hermes"), Guard(judge, GuardPolicy()), timeout_s=0.2)
        episodes = play_many(factory, many, CALL, "Answer: right")
        assert [(e.status, e.success) for e in episodes] == [("finished", True)] * many
        info = episodes[0].turns[0].info["guard"]
        assert info["status"] == "not_judged" and "no verdict within 0.2 s" in info["reason"]
    finally:
        judge.free.set()


def test_a_verdict_that_comes_late_counts_with_the_next_turn() -> None:
    judge = Hangs(0.0, 0.0)

    async def episode() -> list[Any]:
        env = GuardedEnv(make(), Guard(judge, GuardPolicy(patience=2)), timeout_s=0.2)
        env.reset(Task("t", "where?", answer="right"))
        first = await env.step(CALL)
        judge.free.set()
        env.timeout_s = 60.0
        return [first, await env.step(CALL)]

    first, second = asyncio.run(episode())
    assert not first.truncated and first.info["guard"]["status"] == "not_judged"
    assert second.truncated and second.info["ended_by"] == "halted" and len(judge.seen) == 2


def test_an_episode_that_a_limit_ends_is_not_judged() -> None:
    judge = SaysSo(0.0, 0.0)
    (episode,) = play_many(guarded(make, Guard(judge, GuardPolicy())), 1, CALL, max_turns=2)
    assert (episode.status, len(episode.turns), len(judge.seen)) == ("turn_limit", 2, 1)
    (episode,) = play_many(
        guarded(make, Guard(judge, GuardPolicy(patience=1))), 1, CALL, max_episode_tokens=len(episode.prompt_ids) + 48
    )
    assert (episode.status, len(judge.seen)) == ("token_limit", 1)


def test_an_environment_may_take_the_stop_reason_among_others() -> None:
    class Takes(Looking):
        async def step(self, text: str, **options: Any) -> StepResult:  # pyright: ignore[reportIncompatibleMethodOverride]
            return await super().step(text, **options)

    factory = guarded(lambda: Takes(parser="hermes"), Guard(SaysSo(0.9)))  # pyright: ignore[reportArgumentType]
    assert play(factory, CALL, "Answer: right").success


def test_an_environment_that_is_not_told_why_a_turn_ended_is_refused() -> None:
    class Old:
        async def step(self, text: str) -> None: ...

    with pytest.raises(ConfigError, match="takes no stop_reason"):
        GuardedEnv(Old(), Guard(SaysSo()))  # pyright: ignore
