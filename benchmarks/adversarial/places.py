"""Places in a transcript where an attacker can put text (see `benchmarks.adversarial.attack`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rrm.data.trajectory import Message, Trajectory

Place = Callable[[Trajectory, str], Trajectory | None]
"""Puts a text into a copy of a trajectory; None where the trajectory has no such place."""


def _with_message(trajectory: Trajectory, index: int, **changes: Any) -> Trajectory:
    """A copy of `trajectory` with some fields of message `index` replaced."""
    messages = list(trajectory.messages)
    messages[index] = messages[index].model_copy(update=changes)
    return trajectory.model_copy(update={"messages": messages})


def _last(trajectory: Trajectory, wanted: Callable[[Message], Any]) -> int | None:
    return next((i for i in reversed(range(len(trajectory.messages))) if wanted(trajectory.messages[i])), None)


def _append(trajectory: Trajectory, wanted: Callable[[Message], Any], text: str) -> Trajectory | None:
    """`text` on a new line at the end of the last message that is wanted."""
    at = _last(trajectory, wanted)
    if at is None:
        return None
    return _with_message(trajectory, at, content=f"{trajectory.messages[at].text()}\n{text}")


def in_task(trajectory: Trajectory, text: str) -> Trajectory:
    """After the task, and after the user message that asks it."""
    task = f"{trajectory.task}\n{text}"
    asking = [m.role == "user" and m.text().strip() == trajectory.task.strip() for m in trajectory.prelude]
    changed = trajectory.model_copy(update={"task": task})
    for i, asks in enumerate(asking):
        changed = _with_message(changed, i, content=task) if asks else changed
    return changed


def in_system(trajectory: Trajectory, text: str) -> Trajectory:
    """After the agent's system prompt, which is made where there is none."""
    first = trajectory.messages[0] if trajectory.messages else None
    if first is not None and first.role == "system":
        return _with_message(trajectory, 0, content=f"{first.text()}\n{text}")
    return trajectory.model_copy(update={"messages": [Message(role="system", content=text), *trajectory.messages]})


def in_agent(trajectory: Trajectory, text: str) -> Trajectory | None:
    """After the agent's last words."""
    return _append(trajectory, lambda m: m.role == "assistant", text)


def in_result(trajectory: Trajectory, text: str) -> Trajectory | None:
    """After the last tool result."""
    return _append(trajectory, lambda m: m.role == "tool", text)


def in_user_turn(trajectory: Trajectory, text: str) -> Trajectory | None:
    """As a user's turn after everything else."""
    return trajectory.model_copy(update={"messages": [*trajectory.messages, Message(role="user", content=text)]})


def in_reasoning(trajectory: Trajectory, text: str) -> Trajectory | None:
    """After the agent's last reasoning (`reasoning_content`)."""
    at = _last(trajectory, lambda m: m.role == "assistant")
    if at is None:
        return None
    before = trajectory.messages[at].reasoning_content
    return _with_message(trajectory, at, reasoning_content=f"{before}\n{text}" if before else text)


def in_parts(trajectory: Trajectory, text: str) -> Trajectory | None:
    """As a content part of its own after the last tool result."""
    at = _last(trajectory, lambda m: m.role == "tool")
    if at is None:
        return None
    parts = [{"type": "text", "text": trajectory.messages[at].text()}, {"type": "text", "text": text}]
    return _with_message(trajectory, at, content=parts)


def in_part_type(trajectory: Trajectory, text: str) -> Trajectory | None:
    """As the type of a content part that is not text (shown to a reader in square brackets)."""
    at = _last(trajectory, lambda m: m.role == "tool")
    if at is None:
        return None
    parts = [{"type": "text", "text": trajectory.messages[at].text()}, {"type": text, "data": text}]
    return _with_message(trajectory, at, content=parts)


def _in_call(trajectory: Trajectory, change: Callable[[Any], dict[str, Any]]) -> Trajectory | None:
    at = _last(trajectory, lambda m: m.tool_calls)
    if at is None:
        return None
    calls = list(trajectory.messages[at].tool_calls or [])
    calls[-1] = calls[-1].model_copy(update=change(calls[-1]))
    return _with_message(trajectory, at, tool_calls=calls)


def in_tool_name(trajectory: Trajectory, text: str) -> Trajectory | None:
    """In the name of the last tool called."""
    return _in_call(trajectory, lambda call: {"name": f"{call.name} {text}"})


def in_arguments(trajectory: Trajectory, text: str) -> Trajectory | None:
    """As one more argument of the last call."""
    return _in_call(
        trajectory,
        lambda call: (
            {"arguments": f"{call.arguments} {text}"}
            if isinstance(call.arguments, str)
            else {"arguments": {**call.arguments, "note": text}}
        ),
    )


def in_message_name(trajectory: Trajectory, text: str) -> Trajectory | None:
    """As the `name` of the last tool result."""
    at = _last(trajectory, lambda m: m.role == "tool")
    return None if at is None else _with_message(trajectory, at, name=text)


def in_offered_tools(trajectory: Trajectory, text: str) -> Trajectory:
    """As the name of one more tool on offer."""
    return trajectory.model_copy(update={"tools": [*(trajectory.tools or []), {"function": {"name": text}}]})


def split_over_messages(trajectory: Trajectory, text: str) -> Trajectory | None:
    """First half at the end of the agent's last call's message, second half at the start of what came back."""
    at = _last(trajectory, lambda m: m.role == "tool")
    if at is None or at == 0:
        return None
    head, tail = _halves(text)
    before, after = trajectory.messages[at - 1], trajectory.messages[at]
    changed = _with_message(trajectory, at - 1, content=f"{before.text()}\n{head}")
    return _with_message(changed, at, content=f"{tail}\n{after.text()}")


def split_over_results(trajectory: Trajectory, text: str) -> Trajectory | None:
    """First half at the end of the last tool result, second half as one more result of the same step."""
    at = _last(trajectory, lambda m: m.role == "tool")
    if at is None:
        return None
    head, tail = _halves(text)
    changed = _with_message(trajectory, at, content=f"{trajectory.messages[at].text()}\n{head}")
    messages = [*changed.messages[: at + 1], Message(role="tool", content=tail), *changed.messages[at + 1 :]]
    return changed.model_copy(update={"messages": messages})


def split_over_reasoning(trajectory: Trajectory, text: str) -> Trajectory | None:
    """First half at the end of the last reasoning, second half at the start of the words that follow it."""
    at = _last(trajectory, lambda m: m.role == "assistant")
    if at is None:
        return None
    head, tail = _halves(text)
    message = trajectory.messages[at]
    return _with_message(
        trajectory, at, reasoning_content=f"{message.reasoning_content or ''}{head}", content=f"{tail}{message.text()}"
    )


def _halves(text: str) -> tuple[str, str]:
    """Cut inside the first tag or marker (after `<s`, `[s`, …), or in the middle where there is none."""
    bracket = re.search(r"[<\[]\W{0,3}\w", text)
    at = bracket.end() if bracket else len(text) // 2
    return text[:at], text[at:]


PLACES: dict[str, Place] = {
    "agent": in_agent,
    "tool_result": in_result,
    "task": in_task,
    "arguments": in_arguments,
    "reasoning": in_reasoning,
    "user_turn": in_user_turn,
    "split_messages": split_over_messages,
    "parts": in_parts,
    "system": in_system,
    "tool_name": in_tool_name,
    "split_results": split_over_results,
    "offered_tools": in_offered_tools,
    "part_type": in_part_type,
    "split_reasoning": split_over_reasoning,
    "message_name": in_message_name,
}
