"""Transcripts to annotate, in few words, and a judge's reply to one."""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory

REPLY = (
    "<think>[step 1] searched; found</think>"
    "<critique>[step 1] good: right search\n[step 2] bad: it should be Baker Street</critique><score>0.3</score>"
)


def run(*turns: str | dict[str, Any], task: str = "Who wrote Gryphon?", **fields: Any) -> Trajectory:
    """A trajectory of a task and alternating agent and tool messages."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for i, turn in enumerate(turns):
        role = "assistant" if i % 2 == 0 else "tool"
        messages.append({"role": role, "content": turn} if isinstance(turn, str) else {"role": role, **turn})
    return Trajectory.model_validate({"id": "t", "task": task, "messages": messages, **fields})


def call(arguments: Any, name: str = "search") -> dict[str, Any]:
    return {"content": None, "tool_calls": [{"name": name, "arguments": arguments}]}
