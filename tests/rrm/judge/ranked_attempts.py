"""What the tests of ranking share: attempts that say how good they are, and a judge that goes by it."""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings


def attempt(id: str, merit: int, question: str = "q", said: str = "") -> Trajectory:
    """One whose text says how good it is: `merit 3`."""
    messages = [
        Message(role="system", content="the policy"),
        Message(role="user", content="add 2 and 3"),
        Message(role="assistant", content=f"merit {merit} {said}"),
    ]
    return Trajectory(id=id, task="add 2 and 3", question_id=question, messages=messages, meta={"reference": "five"})


def merits_of(shown: str) -> dict[str, int]:
    """By letter, how good a prompt's attempts are."""
    found = re.findall(r"^attempt ([A-Z]) \w{6}\n\[step 1\]\nagent: merit (\d+)", shown, re.M)
    return {name: int(n) for name, n in found}


def order_of(shown: str) -> str:
    """The right order of a prompt's attempts."""
    merits = merits_of(shown)
    tiers: dict[int, list[str]] = {}
    for name, merit in merits.items():
        tiers.setdefault(merit, []).append(name)
    return " > ".join(" = ".join(tiers[merit]) for merit in sorted(tiers, reverse=True))


def honest(messages: list[dict[str, str]], params: Any, key: str) -> str:
    return f"A is best. <ranking>{order_of(messages[1]['content'])}</ranking>"


def judge_of(script: Any, **settings: Any) -> AgentRRM:
    return AgentRRM(ScriptedChatEngine(script), settings=JudgeSettings(opening=False, **settings))


def prompts(judge: AgentRRM) -> list[list[dict[str, str]]]:
    assert isinstance(judge.engine, ScriptedChatEngine)
    return [messages for messages, _, _ in judge.engine.calls]
