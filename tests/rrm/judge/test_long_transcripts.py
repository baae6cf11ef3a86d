"""A transcript of 100,000 messages is judged in linear time, in every way that reads windows."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import pytest
from linear_time import assert_linear

from rrm.data.feedback import Mode
from rrm.data.trajectory import Trajectory
from rrm.engines.base import SamplingParams
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.rendering import CharacterTokenizer
from rrm.prompt.windows import Planner, Window, WindowPlan

_STEP = re.compile(r"^\[step (\d+)\]$", re.MULTILINE)


def transcript(messages: int, seed: int = 0) -> Trajectory:
    """Short steps, some of which take several windows."""
    rng = random.Random(seed)
    chat: list[dict[str, str]] = [{"role": "user", "content": "Do it."}]
    while len(chat) < messages:
        longer = " on and on" * 3000 if rng.random() < 0.002 else ""
        chat.append({"role": "assistant", "content": f"I look at {rng.random()}{longer}"})
        chat.append({"role": "user", "content": "ok " * rng.randint(1, 6)})
    return Trajectory.model_validate({"id": "t", "task": "Do it.", "question_id": "q", "messages": chat[:messages]})


def say(messages: list[dict[str, str]], params: SamplingParams, key: str) -> str:
    """A word on every step that is shown; each seventh is bad."""
    steps = map(int, _STEP.findall(messages[1]["content"]))
    critique = " ".join(f"[step {k}] {'bad' if k % 7 == 0 else 'good'}: w{k}." for k in steps)
    return f"<think>x</think><critique>{critique}</critique><score>0.7</score>"


@pytest.mark.parametrize("mode", ["full", "score"])
def test_a_long_transcript_is_judged_in_linear_time(mode: Mode) -> None:
    def work(messages: int) -> None:
        judge = AgentRRM(ScriptedChatEngine(say), model="scripted")
        (feedback,) = judge.judge([transcripts[messages]], mode=mode)
        assert feedback.status == "scored" and feedback.coverage == 1.0

    transcripts = {count: transcript(count) for count in (2_500, 10_000)}
    assert_linear(work, 2_500)


def by_hand(plan: WindowPlan, number: int) -> set[int]:
    """Steps of which a slot is new in a reading: those of blocks that no earlier reading shows."""
    windows = [plan._windows[i] for i in plan._kept]
    before = {id(b) for window in windows[:number] for b in window}
    return {b.step for b in windows[number] if id(b) not in before}


@pytest.mark.parametrize("most", [None, 3])
def test_what_is_new_in_a_reading_is_what_no_earlier_one_shows(most: int | None) -> None:
    """Also of the ending that is read again, and where windows are left out."""
    planner = Planner(CharacterTokenizer(), 3_000)
    plan = WindowPlan(planner, transcript(400, seed=3), True)
    assert sum(plan.new_tokens(n) for n in range(len(plan))) == plan.shown_tokens == plan.transcript_tokens
    if most is not None:
        plan.limit(most, {100})
        assert len(plan) == most and plan.shown_tokens < plan.transcript_tokens
    readings: list[Window] = [plan.reading(n) for n in range(len(plan))]
    assert [{slot.step for slot in r.slots} for r in readings] == [by_hand(plan, n) for n in range(len(plan))]
    assert sum(plan.new_tokens(n) for n in range(len(plan))) == plan.shown_tokens


def test_only_bad_steps_are_told_and_those_in_the_window_are_not() -> None:
    planner = Planner(CharacterTokenizer(), 3_000)
    plan = WindowPlan(planner, transcript(400, seed=3), True)
    number = len(plan) // 2
    last = plan.steps(number)[0] - 1

    def bad(findings: Mapping[int, bool]) -> list[Any]:
        digest = plan.reading(number, findings).text.split(f"[step {last + 1}]")[0]
        return [int(k) for k in re.findall(r"^\[step (\d+)\].*\(bad\)$", digest, re.MULTILINE)]

    marked = bad({2: True, 3: False, last: True, last + 1: True, plan.steps(number)[-1]: True})
    assert marked == [2, last]
