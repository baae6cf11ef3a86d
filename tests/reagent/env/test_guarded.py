"""Episodes under guard: a halted one has an end of its own kind, and a guard that says nothing changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from guarded import SaysSo
from rollout_models import make_tokenizer, says

from reagent.env.env import Environment, ToolEnv
from reagent.env.guarded import GuardedEnv, guarded
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.rollout.rollout import rollout
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


def test_an_environment_that_is_not_told_why_a_turn_ended_is_refused() -> None:
    class Old:
        async def step(self, text: str) -> None: ...

    with pytest.raises(ConfigError, match="takes no stop_reason"):
        GuardedEnv(Old(), Guard(SaysSo()))  # pyright: ignore
