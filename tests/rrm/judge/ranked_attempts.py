"""Shared by the tests of ranking: attempts that state their merit, and a judge that goes by it."""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings


def attempt(id: str, merit: int, question: str = "q", text: str = "") -> Trajectory:
    """An attempt that states its merit: `merit 3`."""
    messages = [
        Message(role="system", content="the policy"),
        Message(role="user", content="add 2 and 3"),
        Message(role="assistant", content=f"merit {merit} {text}"),
    ]
    return Trajectory(id=id, task="add 2 and 3", question_id=question, messages=messages, meta={"reference": "five"})


def merits_of(prompt: str) -> dict[str, int]:
    """Merits of a prompt's attempts, by letter."""
    matches = re.findall(r"^attempt ([A-Z]) \w{6}\n\[step 1\]\nagent: merit (\d+)", prompt, re.M)
    return {name: int(n) for name, n in matches}


def order_of(prompt: str) -> str:
    merits = merits_of(prompt)
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
