"""Judges with a known hole, for tests and trials of the guards: real judges (`AgentRRM`) over a scripted engine."""

from __future__ import annotations

import re
from collections.abc import Callable

from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM

LONG = 6
"""Steps from which on more are no better."""


def steps_of(transcript: str) -> int:
    """Steps of a transcript as a judge is shown it."""
    return len(re.findall(r"^\[step \d+\]$", transcript, re.MULTILINE))


def length(transcript: str) -> float:
    """0 for no step, 1 for `LONG` and more."""
    return min(steps_of(transcript), LONG) / LONG


def likes_length() -> AgentRRM:
    """A judge that scores the number of steps, and nothing else."""
    return judge_by(length, "likes-length")


def likes_brevity() -> AgentRRM:
    """Its opposite: a second judge that is always of the other opinion."""
    return judge_by(lambda transcript: 1 - length(transcript), "likes-brevity")


def judge_by(score: Callable[[str], float], name: str) -> AgentRRM:
    """A judge that scores what it is shown by a function of it."""

    def say(messages: list[dict[str, str]], params: object, key: str) -> str:
        return f"<score>{score(messages[-1]['content']):.2f}</score>"

    return AgentRRM(ScriptedChatEngine(say), model=name)
