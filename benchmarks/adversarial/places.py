"""Places in a transcript where an attacker can put text (see `benchmarks.adversarial.attack`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rrm.data.trajectory import Message, ToolCall, Trajectory

Place = Callable[[Trajectory, str], Trajectory | None]
"""Puts a text into a copy of a trajectory; None where the trajectory has no such place."""


def _changed(trajectory: Trajectory, index: int, **changes: Any) -> Trajectory:
    messages = list(trajectory.messages)
    messages[index] = messages[index].model_copy(update=changes)
    return trajectory.model_copy(update={"messages": messages})


def _at_last(wanted: Callable[[Message], Any], change: Callable[[Message, str], dict[str, Any]]) -> Place:
    """A place in the last message that is wanted: `change` gives its new fields."""

    def place(trajectory: Trajectory, text: str) -> Trajectory | None:
        found = [i for i, message in enumerate(trajectory.messages) if wanted(message)]
        return _changed(trajectory, found[-1], **change(trajectory.messages[found[-1]], text)) if found else None

    return place


def _by_agent(message: Message) -> bool:
    return message.role == "assistant"


def _by_tool(message: Message) -> bool:
    return message.role == "tool"


def _after(message: Message, text: str) -> dict[str, Any]:
    return {"content": f"{message.text()}\n{text}"}


def _part(of: Callable[[str], dict[str, str]]) -> Place:
    """A content part of its own after the last tool result."""
    return _at_last(_by_tool, lambda m, text: {"content": [{"type": "text", "text": m.text()}, of(text)]})


def _in_call(change: Callable[[ToolCall, str], dict[str, Any]]) -> Place:
    def changed(message: Message, text: str) -> dict[str, Any]:
        *others, last = message.tool_calls or []
        return {"tool_calls": [*others, last.model_copy(update=change(last, text))]}

    return _at_last(lambda m: m.tool_calls, changed)


def _argument(call: ToolCall, text: str) -> dict[str, Any]:
    told = call.arguments
    return {"arguments": f"{told} {text}" if isinstance(told, str) else {**told, "note": text}}


def _more_reasoning(message: Message, text: str) -> dict[str, Any]:
    before = message.reasoning_content
    return {"reasoning_content": f"{before}\n{text}" if before else text}


def in_task(trajectory: Trajectory, text: str) -> Trajectory:
    """After the task, and after the user message that asks it."""
    task = f"{trajectory.task}\n{text}"
    asking = [m.role == "user" and m.text().strip() == trajectory.task.strip() for m in trajectory.prelude]
    changed = trajectory.model_copy(update={"task": task})
    for i, asks in enumerate(asking):
        changed = _changed(changed, i, content=task) if asks else changed
    return changed


def in_system(trajectory: Trajectory, text: str) -> Trajectory:
    """After the agent's system prompt, which is made where there is none."""
    first = trajectory.messages[0] if trajectory.messages else None
    if first is not None and first.role == "system":
        return _changed(trajectory, 0, **_after(first, text))
    return trajectory.model_copy(update={"messages": [Message(role="system", content=text), *trajectory.messages]})


def in_user_turn(trajectory: Trajectory, text: str) -> Trajectory | None:
    """As a user's turn after everything else."""
    return trajectory.model_copy(update={"messages": [*trajectory.messages, Message(role="user", content=text)]})


def in_offered_tools(trajectory: Trajectory, text: str) -> Trajectory:
    """As the name of one more tool on offer."""
    return trajectory.model_copy(update={"tools": [*(trajectory.tools or []), {"function": {"name": text}}]})


def split_over_messages(trajectory: Trajectory, text: str) -> Trajectory | None:
    """First half at the end of the agent's last call's message, second half at the start of what came back."""
    at = max((i for i, message in enumerate(trajectory.messages) if _by_tool(message)), default=0)
    if at == 0:
        return None
    head, tail = _halves(text)
    changed = _changed(trajectory, at - 1, **_after(trajectory.messages[at - 1], head))
    return _changed(changed, at, content=f"{tail}\n{trajectory.messages[at].text()}")


def split_over_results(trajectory: Trajectory, text: str) -> Trajectory | None:
    """First half at the end of the last tool result, second half as one more result of the same step."""
    at = max((i for i, message in enumerate(trajectory.messages) if _by_tool(message)), default=None)
    if at is None:
        return None
    head, tail = _halves(text)
    messages = _changed(trajectory, at, **_after(trajectory.messages[at], head)).messages
    return trajectory.model_copy(
        update={"messages": [*messages[: at + 1], Message(role="tool", content=tail), *messages[at + 1 :]]}
    )


def _over_reasoning(message: Message, text: str) -> dict[str, Any]:
    """First half at the end of the last reasoning, second half at the start of the words that follow it."""
    head, tail = _halves(text)
    return {"reasoning_content": f"{message.reasoning_content or ''}{head}", "content": f"{tail}{message.text()}"}


def _halves(text: str) -> tuple[str, str]:
    """Cut inside the first tag or marker (after `<s`, `[s`, …), or in the middle where there is none."""
    bracket = re.search(r"[<\[]\W{0,3}\w", text)
    at = bracket.end() if bracket else len(text) // 2
    return text[:at], text[at:]


PLACES: dict[str, Place] = {
    "agent": _at_last(_by_agent, _after),
    "tool_result": _at_last(_by_tool, _after),
    "task": in_task,
    "arguments": _in_call(_argument),
    "reasoning": _at_last(_by_agent, _more_reasoning),
    "user_turn": in_user_turn,
    "split_messages": split_over_messages,
    "parts": _part(lambda text: {"type": "text", "text": text}),
    "system": in_system,
    "tool_name": _in_call(lambda call, text: {"name": f"{call.name} {text}"}),
    "split_results": split_over_results,
    "offered_tools": in_offered_tools,
    "part_type": _part(lambda text: {"type": text, "data": text}),
    "split_reasoning": _at_last(_by_agent, _over_reasoning),
    "message_name": _at_last(_by_tool, lambda _, text: {"name": text}),
}
