"""Claude Code's hooks: JSON on standard input, an answer on standard output (docs/guard.md).

`PostToolUse`, `PostToolUseFailure` and `Stop` judge the session if the step is over, `PreToolUse` applies the standing verdict,
`UserPromptSubmit` begins the counts anew. The transcript file lags behind, so the hook's own call and result are added where it
lacks them. Calls of a sub-agent, which has a transcript of its own, are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrm.data.trajectory import Message, ToolCall, Trajectory
from rrm.errors import ReadError, RRMError
from rrm.guard.policy import Action
from rrm.readers import read

JUDGED = ("PostToolUse", "PostToolUseFailure", "Stop")
STANDING = "PreToolUse"
SPOKEN = "UserPromptSubmit"
MOST = 64 * 2**20  # characters of a hook's input that are read


def hook_input(text: str) -> dict[str, Any]:
    """Parse a hook's JSON; other input raises RRMError."""
    try:
        hook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RRMError(f"standard input is not the JSON of a hook: {error}") from error
    needed = ("hook_event_name", "session_id", "transcript_path")
    absent = [name for name in needed if not isinstance(hook, dict) or not isinstance(hook.get(name), str)]
    if absent:
        raise RRMError(f"standard input is not the JSON of a Claude Code hook: it has no text {', '.join(absent)}")
    return hook


def session_of(hook: Mapping[str, Any]) -> Trajectory:
    """The session so far, with the hook's own call and result; ReadError without one."""
    path, session = Path(hook["transcript_path"]).expanduser(), hook["session_id"]
    if not path.is_file():
        raise ReadError(str(path), None, "is not there: the hook's transcript_path names it")
    trouble: list[ReadError] = []  # a half-written last line is no reason to say nothing
    sessions = [
        t for t in read([str(path)], format="claude_code", on_error=trouble.append) if "sidechain" not in t.meta
    ]
    own = [t for t in sessions if t.meta.get("session_id") == session] or sessions
    if not own:
        raise trouble[0] if trouble else ReadError(str(path), None, "holds no session")
    return completed(own[-1], hook)


def completed(trajectory: Trajectory, hook: Mapping[str, Any]) -> Trajectory:
    name, id = hook.get("tool_name"), hook.get("tool_use_id")
    if not isinstance(name, str) or not isinstance(id, str):
        return trajectory
    messages = list(trajectory.messages)
    if not any(call.id == id for m in messages for call in m.tool_calls or []):
        tool_input = hook.get("tool_input")
        call = ToolCall(name=name, arguments=tool_input if isinstance(tool_input, dict) else _text(tool_input), id=id)
        messages.append(Message(role="assistant", tool_calls=[call]))
    result = hook.get("tool_response", hook.get("error"))
    if result is not None and not any(m.role == "tool" and m.tool_call_id == id for m in messages):
        messages.append(Message(role="tool", name=name, tool_call_id=id, content=_text(result)))
    return trajectory.model_copy(update={"messages": messages})


def step_is_over(trajectory: Trajectory) -> bool:
    """True if each call of the latest step has its result; the last call's hook judges them all."""
    if not trajectory.steps:
        return False
    step = trajectory.steps[-1]
    answered = {m.tool_call_id for m in step.observations if m.role == "tool"}
    return all(call.id in answered for call in step.message.tool_calls or [])


def answer(event: str, action: Action, why: str | None) -> dict[str, Any]:
    """Claude Code's answer: `continue: false` ends the turn, `permissionDecision` decides on a call."""
    text = f"Agent-RRM guard: {action}" + (f" ({why})" if why else "")
    if action == "continue" or event not in (*JUDGED, STANDING) or event == "Stop":
        return {"suppressOutput": True}
    if event == STANDING:
        decision = {
            "hookEventName": STANDING,
            "permissionDecision": "deny" if action == "halt" else "ask",
            "permissionDecisionReason": text,
        }
        stops = {"continue": False, "stopReason": text} if action == "halt" else {}
        return {**stops, "hookSpecificOutput": decision}
    return {"continue": False, "stopReason": text} if action == "halt" else {"systemMessage": text}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
