"""A worker whose judge reads its orders in the transcript: `score 0.7`, `WAIT 0.2`, `WAIT FOR /flag`, `RAISE`, `KILL` and `HANG` (`UNTIL /flag`: the first time), `SPENT`."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import SpendingLimit
from rrm.judge.agent_rrm import AgentRRM
from rrm.serve.worker import run


def say(messages: Sequence[dict[str, str]], *_: object) -> str:
    text = messages[-1]["content"]
    if found := re.search(r"\bWAIT ([\d.]+)", text):
        time.sleep(float(found[1]))
    if found := re.search(r"\bWAIT FOR (\S+)", text):
        while not Path(found[1]).exists():
            time.sleep(0.01)
    if found := re.search(r"\bKILL(?: UNTIL (\S+))?", text):
        flag = Path(found[1]) if found[1] else None
        if flag is None or not flag.exists():
            if flag is not None:
                flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if found := re.search(r"\bHANG(?: UNTIL (\S+))?", text):
        flag = Path(found[1]) if found[1] else None
        if flag is None or not flag.exists():
            if flag is not None:
                flag.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
    if found := re.search(r"score ([\d.]+)", text):
        return f"<think>seen</think><critique>[step 1] good: fine</critique><score>{found[1]}</score>"
    if "RANK" in text:
        return "<ranking>B > A</ranking>"
    return "no idea"


class Raising(AgentRRM):
    """A judge with a bug."""

    def judge(self, trajectories: Any, **how: Any) -> Any:
        if any("RAISE" in m.content for t in trajectories for m in t.messages if isinstance(m.content, str)):
            raise ZeroDivisionError("a bug")
        if any("SPENT" in m.content for t in trajectories for m in t.messages if isinstance(m.content, str)):
            raise SpendingLimit("--max-cost was reached")
        return super().judge(trajectories, **how)


if __name__ == "__main__":
    run(lambda options: Raising(ScriptedChatEngine(say), model=options.get("model") or "scripted"))
