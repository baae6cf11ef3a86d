"""Judges that say what they are told, and an agent's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo, Mode
from rrm.data.trajectory import Trajectory


class SaysSo:
    """A judge whose score after step k is the k-th of its numbers; a text among them is a failure, an exception is raised."""

    model = "says so"

    def __init__(self, *scores: float | str | Exception) -> None:
        self.scores = scores
        self.asked: list[int] = []
        self.seen: list[Trajectory] = []

    def judge(
        self, trajectories: Sequence[Trajectory], *, mode: Mode = "full", samples: int = 1, seed: int = 0
    ) -> list[Feedback]:
        (trajectory,) = trajectories
        step = len(trajectory.steps)
        self.asked.append(step)
        self.seen.append(trajectory.model_copy(deep=True))
        said = self.scores[step - 1]
        info = JudgeInfo(model=self.model, prompt_version="2", mode=mode, seed=seed)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            return [Feedback(id=trajectory.id, status="judge_error", reason=said, judge=info)]
        findings = [Finding(step=step, verdict="good", p_good=said)] if mode == "steps" else []
        return [Feedback(id=trajectory.id, status="scored", score=said, raw_score=said, findings=findings, judge=info)]


class Reads:
    """A judge whose score is the last number in the run so far, whatever its steps are called; a run without one is a failure."""

    model = "reads"

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The last message of each run it was asked for."""

    def judge(
        self, trajectories: Sequence[Trajectory], *, mode: Mode = "full", samples: int = 1, seed: int = 0
    ) -> list[Feedback]:
        (trajectory,) = trajectories
        self.asked.append(trajectory.messages[-1].text())
        numbers = [n for m in trajectory.messages for n in re.findall(r"\d\.\d+", m.text())]
        info = JudgeInfo(model=self.model, prompt_version="2", mode=mode, seed=seed)
        if not numbers:
            return [Feedback(id=trajectory.id, status="judge_error", reason="no number", judge=info)]
        return [Feedback(id=trajectory.id, status="scored", score=float(numbers[-1]), judge=info)]


def step(k: int, result: str | None = None, **arguments: Any) -> list[dict[str, Any]]:
    """A call and its result."""
    call = {"id": f"c{k}", "function": {"name": "search", "arguments": arguments or {"query": f"thing {k}"}}}
    return [
        {"role": "assistant", "content": f"looking {k}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{k}", "name": "search", "content": result or f"found {k}"},
    ]


def run(steps: int, make: Callable[..., list[dict[str, Any]]] = step) -> list[dict[str, Any]]:
    """A question, so many calls with their results."""
    return [{"role": "user", "content": "find it"}, *(m for k in range(1, steps + 1) for m in make(k))]
