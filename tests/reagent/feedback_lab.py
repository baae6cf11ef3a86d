"""What the feedback tests share: an environment that pays an untrained policy, a scripted judge, a trainer with both."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer_setup import make_trainer, settings

from reagent.env.env import StepResult
from reagent.env.task import Task
from reagent.lab.search_env import SearchEnv
from reagent.rollout.episode import Episode, Turn
from reagent.train.config import AgentConfig
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import StopReason
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM

MODES = ("none", "c", "r", "u", "process", "retry", "placebo", "shuffled")
TURNS = {"options": {"parser": "search_tags"}}
"""An untrained policy writes no tags, so that every turn but the last is answered by an observation."""


class PaidEnv(SearchEnv):
    """Pays by the length of the answer, so that episodes of an untrained policy earn rewards that differ.

    It ends hardly a turn by itself, so turns that were cut are taken as well.
    """

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        return await super().step(text)

    def grade(self, task: Task, answer: str) -> float:
        return len(answer) % 3 / 2


class RareEnv(PaidEnv):
    """Pays every third task alone."""

    def grade(self, task: Task, answer: str) -> float:
        return super().grade(task, answer) if int(task.id.rsplit("-", 1)[1]) % 3 == 0 else 0.0


class PoorEnv(PaidEnv):
    """Pays nothing."""

    def grade(self, task: Task, answer: str) -> float:
        return 0.0


class ShownEnv(PaidEnv):
    """Shows an example of another agent's turns before the question."""

    def reset(self, task: Task) -> list[dict[str, Any]]:
        *system, question = super().reset(task)
        shown = [
            {"role": "user", "content": "What is the home of Nobody?"},
            {"role": "assistant", "content": "Answer: nowhere"},
        ]
        return [*system, *shown, question]


def score_of(transcript: str) -> float:
    """The scripted judge's score: a number on its grid that depends on what it reads alone."""
    return zlib.crc32(transcript.encode()) % 11 / 10


def reply(transcript: str) -> str:
    """A well-formed judgement."""
    mark = zlib.crc32(transcript.encode()) % 1000
    verdict = "good" if mark % 2 else "bad"
    return (
        f"<think>[step 1] looked for fact number {mark}x</think>"
        f"<critique>[step 1] {verdict}: look for fact number {mark}x</critique><score>{score_of(transcript):.1f}</score>"
    )


def scripted(say: Callable[[str], str | Exception] = reply) -> AgentRRM:
    """A judge that answers each transcript as `say` tells; its engine keeps every call."""
    return AgentRRM(ScriptedChatEngine(lambda messages, params, key: say(messages[-1]["content"])), model="scripted")


def calls_of(judge: AgentRRM) -> list[Any]:
    """What a scripted judge was asked."""
    assert isinstance(judge.engine, ScriptedChatEngine)
    return judge.engine.calls


def configured(base: Path, output: Path, mode: str, **changes: Any) -> AgentConfig:
    """A small config in a feedback mode; `feedback` in `changes` adds to the section."""
    feedback = {"mode": mode, **changes.pop("feedback", {})}
    environment = {"name": "feedback_lab:PaidEnv", **changes.pop("environment", {})}
    changes = {"rollout": {"max_episode_tokens": 700}, **changes}
    return settings(base, output, feedback=feedback, environment=environment, **changes)


def read(path: Path) -> list[dict[str, Any]]:
    """Lines of metrics, without wall times."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def same_run(folder: Path, other: Path) -> None:
    """Both runs logged, evaluated and learned the same, to the bit."""
    assert read(folder / "metrics.jsonl") == read(other / "metrics.jsonl")
    assert (folder / "eval.jsonl").read_bytes() == (other / "eval.jsonl").read_bytes()
    weights = [(f / "policy" / "model.safetensors").read_bytes() for f in (folder, other)]
    assert weights[0] == weights[1]


trainer_of = make_trainer


def make_episode(rewards: list[float], outcome: float | None = 0.0) -> Episode:
    """An episode of one turn a reward."""
    turns = [Turn([10 + k], [-1.0], [], reward) for k, reward in enumerate(rewards)]
    messages = [
        Message(role="user", content="?"),
        *(Message(role="assistant", content=f"turn {k}") for k in range(len(rewards))),
    ]
    trajectory = Trajectory(id="t/0", task="?", messages=messages)
    return Episode(Task("t", "?", "a"), [1, 2], turns, outcome, "finished", None, False, "t", "initial", trajectory)
