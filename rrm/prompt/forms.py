"""Forms of a run: the same steps as native tool calls, or as ReAct text. A judge's rendering of all of them is the same."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Literal

from rrm.data.trajectory import Message, Trajectory
from rrm.prompt.answers import ANSWER_CALLS
from rrm.prompt.canonical import CanonicalCall, CanonicalStep, canonical_message, canonical_step

Form = Literal["own", "native", "react"]
_REACT_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def in_form(trajectory: Trajectory, form: Form) -> Trajectory:
    """The run in another form; `own` is the log's."""
    if form == "own":
        return trajectory
    write = native_step if form == "native" else _react_step
    messages = list(trajectory.prelude)
    for number, step in enumerate(trajectory.steps, start=1):
        messages += write(canonical_step(step), number)
    return trajectory.model_copy(update={"messages": messages})


def native_step(step: CanonicalStep, number: int) -> list[Message]:
    """One step as a message with `tool_calls` and its results; a marked answer is a call of `finish`.

    Ids say which result is whose where each call has one. A thought that would be read as an action is the message's reasoning.
    """
    calls = list(step.calls) + ([] if step.answer is None else [CanonicalCall("finish", {"answer": step.answer})])
    each = step.answer is None and sum(label == "result" for label, _ in step.returns) == len(step.calls)
    ids = [f"call_{number}_{i}" if each else None for i in range(len(calls))]
    named = [{"id": id, "name": c.name, "arguments": _arguments(c)} for id, c in zip(ids, calls, strict=True)]
    message = Message.model_validate({"role": "assistant", "content": step.thought, "tool_calls": named or None})
    if not _reads_as(message, step):
        message = message.model_copy(update={"content": "", "reasoning_content": step.thought})
    returned, free = list[Message](), iter(ids[: len(step.calls)])
    for label, text in step.returns:
        if label != "result":
            returned.append(Message(role="user" if label == "user" else "system", content=text))
        else:
            returned.append(Message(role="tool", content=text, tool_call_id=next(free, None)))
    return [message, *returned]


def _arguments(call: CanonicalCall) -> dict[str, Any] | str:
    """As a native call holds them: text that is no malformed call (code, a ReAct input) is its one argument."""
    if isinstance(call.arguments, dict) or call.malformed:
        return call.arguments
    return {"input": call.arguments} if call.arguments else {}


def _reads_as(message: Message, step: CanonicalStep) -> bool:
    """Whether an agent's message is read as this step's thought, calls and answer."""
    return CanonicalStep(*canonical_message(message), ()).action_text == step.action_text


def _react_step(step: CanonicalStep, number: int) -> list[Message]:
    """`Thought:`, `Action:` and `Action Input:`; code stands in a block; results are observations. What these cannot hold (a malformed
    call, a code block in the thought) stays native."""
    lines = [f"Thought {number}: {step.thought}"] if step.thought else []
    lines += map(_react_call, step.calls)
    if step.answer is not None:
        lines.append(f"<answer>{step.answer}</answer>")
    returned = [
        Message(role="user", content=text)
        if label == "user"
        else Message(role="tool", name="environment", content=f"Observation: {text}")
        for label, text in step.returns
    ]
    message = Message(role="assistant", content="\n".join(lines))
    if any(call.malformed for call in step.calls) or not _reads_as(message, step):
        return native_step(step, number)
    return [message, *returned]


def _react_call(call: CanonicalCall) -> str:
    """A call in ReAct's lines; in a tagged block where those cannot hold it (a name with blanks, a text of several lines)."""
    single = _only_string(call)
    if call.name == "python" and single is not None and "</execute>" not in single:
        return f"<execute>{single}</execute>"
    if call.name == "bash" and single is not None and "```" not in single:
        return f"```bash\n{single}\n```"
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    if _REACT_NAME.fullmatch(call.name) and call.name.lower() not in ANSWER_CALLS and "\n" not in text:
        return f"Action: {call.name}\nAction Input: {text}"
    body = json.dumps({"name": call.name, "arguments": _arguments(replace(call, malformed=False))})
    return f"<tool_call>{body.replace('<', chr(92) + 'u003c')}</tool_call>"


def _only_string(call: CanonicalCall) -> str | None:
    if isinstance(call.arguments, str):
        return call.arguments
    values = list(call.arguments.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None
