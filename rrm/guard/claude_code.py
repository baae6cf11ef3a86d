"""Claude Code's hooks: what one is told on standard input, and what it answers on standard output.

    event                what the guard does                          what it answers where it does not say `continue`
    PostToolUse          judges the session so far, if the step       halt: the session stops (`continue: false`)
    PostToolUseFailure   is over                                      ask: the user reads why; the next call is asked for
    PreToolUse           nothing is judged; what stands counts        halt: the call is denied and the session stops; ask: the user decides
    UserPromptSubmit     a person has spoken: counts begin anew
    Stop                 judges the session as it ends                nothing: it has stopped

The transcript is written a little behind what happens, so the call (and its result) that the hook is told of is added where the
file does not have it yet. Calls inside of a sub-agent, which has a transcript of its own, are left alone.
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
MOST = 64 * 2**20
"""Characters of a hook's input that are read."""


def hook_input(text: str) -> dict[str, Any]:
    """What a hook is told.

    Raises:
        RRMError: not a hook's JSON.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RRMError(f"standard input is not the JSON of a hook: {error}") from error
    needed = ("hook_event_name", "session_id", "transcript_path")
    absent = [name for name in needed if not isinstance(said, dict) or not isinstance(said.get(name), str)]
    if absent:
        raise RRMError(f"standard input is not the JSON of a Claude Code hook: it has no text {', '.join(absent)}")
    return said


def session_of(hook: Mapping[str, Any]) -> Trajectory:
    """The session so far, with what the hook is told of.

    Raises:
        ReadError: there is no such file, or no session in it.
    """
    path, session = Path(hook["transcript_path"]).expanduser(), hook["session_id"]
    if not path.is_file():
        raise ReadError(str(path), None, "is not there: the hook's transcript_path names it")
    trouble: list[ReadError] = []  # a half-written last line is no reason to say nothing
    found = [t for t in read([str(path)], format="claude_code", on_error=trouble.append) if "sidechain" not in t.meta]
    own = [t for t in found if t.meta.get("session_id") == session] or found
    if not own:
        raise trouble[0] if trouble else ReadError(str(path), None, "holds no session")
    return completed(own[-1], hook)


def completed(trajectory: Trajectory, hook: Mapping[str, Any]) -> Trajectory:
    """The session with the call, and the result, that the file does not have yet."""
    name, id = hook.get("tool_name"), hook.get("tool_use_id")
    if not isinstance(name, str) or not isinstance(id, str):
        return trajectory
    messages = list(trajectory.messages)
    if not any(call.id == id for m in messages for call in m.tool_calls or []):
        given = hook.get("tool_input")
        call = ToolCall(name=name, arguments=given if isinstance(given, dict) else _text(given), id=id)
        messages.append(Message(role="assistant", tool_calls=[call]))
    result = hook.get("tool_response", hook.get("error"))
    if result is not None and not any(m.role == "tool" and m.tool_call_id == id for m in messages):
        messages.append(Message(role="tool", name=name, tool_call_id=id, content=_text(result)))
    return trajectory.model_copy(update={"messages": messages})


def step_is_over(trajectory: Trajectory) -> bool:
    """Whether each call of the latest step has its result: of calls made at once the last one's hook judges them all."""
    if not trajectory.steps:
        return False
    step = trajectory.steps[-1]
    answered = {m.tool_call_id for m in step.observations if m.role == "tool"}
    return all(call.id in answered for call in step.message.tool_calls or [])


def answer(event: str, action: Action, why: str | None) -> dict[str, Any]:
    """What Claude Code reads.

    Returns:
        `continue: false` ends the session's turn, `stopReason` and `systemMessage` are shown to the user, `permissionDecision` decides
        on a call.
    """
    said = f"Agent-RRM guard: {action}" + (f" ({why})" if why else "")
    if action == "continue" or event not in (*JUDGED, STANDING) or event == "Stop":
        return {"suppressOutput": True}
    if event == STANDING:
        decision = {
            "hookEventName": STANDING,
            "permissionDecision": "deny" if action == "halt" else "ask",
            "permissionDecisionReason": said,
        }
        stops = {"continue": False, "stopReason": said} if action == "halt" else {}
        return {**stops, "hookSpecificOutput": decision}
    return {"continue": False, "stopReason": said} if action == "halt" else {"systemMessage": said}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
