"""A judge as a reward function of TRL's GRPOTrainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rrm.feedback import Feedback
from rrm.trajectory import Message, Trajectory


def reward_func(judge: Callable[[Sequence[Trajectory]], list[Feedback]]) -> Callable[..., list[float | None]]:
    """The calibrated score of prompt and completion as a transcript; None, which TRL leaves out, for a failed judgement."""

    def agent_rrm_score(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        tools = columns.get("tools") or [None] * len(prompts)
        rows = [
            as_trajectory(str(i), prompt, completion, tool)
            for i, (prompt, completion, tool) in enumerate(zip(prompts, completions, tools, strict=True))
        ]
        return [f.score for f in judge(rows)]

    return agent_rrm_score


def as_trajectory(name: str, prompt: Any, completion: Any, tools: Any = None) -> Trajectory:
    """A TRL prompt and completion (text, or lists of messages) as a Trajectory."""
    before = [Message(role="user", content=prompt)] if isinstance(prompt, str) else [Message(**m) for m in prompt]
    after = (
        [Message(role="assistant", content=completion)]
        if isinstance(completion, str)
        else [Message(**m) for m in completion]
    )
    task = next((m.text() for m in before if m.role == "user"), "")
    return Trajectory(id=name, task=task, messages=before + after, tools=tools)
