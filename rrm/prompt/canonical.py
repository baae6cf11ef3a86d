"""Canonical steps: thought, calls, results and answer in one form, whatever the log has (DESIGN §4).

ReAct text, tagged blocks, code blocks and native tool calls become

    thought, as text
    call search: Ada Lovelace                      a call with one string; code keeps its lines
    call refund(order="A-17", amount=20.0)         any other
    answer: 42                                     an answer that the step marks
    result: id: A-17, status: paid                 JSON as readable text
    user: thanks
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from rrm.data.jsonl import strict
from rrm.data.trajectory import Message, Step, ToolCall, Trajectory
from rrm.prompt.actions import Action, actions_in
from rrm.prompt.actions import observation_text as environment_text
from rrm.prompt.answers import ANSWER_CALLS
from rrm.prompt.failures import error_of
from rrm.prompt.neutralise import neutralise_canonical
from rrm.prompt.rendering import LABELS, NO_RESULT, answers, on_one_line, water_fill

MOST_JSON = 200_000  # characters of a result that is read as JSON; a longer one stays as it is
MOST_DEPTH = 8
MOST_SIGNATURES = 12  # tools whose parameters are shown; of more, names alone
TASK = 0.75  # share of a cut head that the task may take of the others' room
LEFT_OUT = " … {} tokens left out … "  # replaces the middle of a cut part of the head
# written around a thought by frameworks
_LABELS = re.compile(
    r"^[ \t]*(?:Thought|Action)(?:[ \t]\d+)?:[ \t]*|</?(?:thought|think|function_thought|function_call|final_answer|tool_call)>",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CanonicalCall:
    """One call. `arguments` is text where the agent wrote no JSON object (code, ReAct input, malformed)."""

    name: str
    arguments: dict[str, Any] | str
    malformed: bool = False

    @property
    def text(self) -> str:
        """`name: value` for one string, else `name(key=value, …)`; long strings follow on lines of their own."""
        name = on_one_line(self.name)
        if isinstance(self.arguments, str):
            return f"{name}: {self.arguments}" if self.arguments else f"{name}()"
        values = list(self.arguments.values())
        if len(values) == 1 and isinstance(values[0], str):
            return f"{name}: {values[0]}"
        long = {k: v for k, v in self.arguments.items() if isinstance(v, str) and "\n" in v}
        short = ", ".join(f"{k}={_value(v)}" for k, v in self.arguments.items() if k not in long)
        return "\n".join([f"{name}({short})", *(f"{k}:\n{v}" for k, v in long.items())])


@dataclass(frozen=True)
class CanonicalStep:
    thought: str
    calls: tuple[CanonicalCall, ...]
    answer: str | None  # a final answer that the step marks (`finish`, `<solution>`, `Finish[…]`)
    returns: tuple[tuple[str, str], ...]  # (`result`, `user` or `instructions`, text) in the order shown

    @property
    def action_text(self) -> str:
        """Thought, calls and answer, disarmed: nothing in it opens a block of the judge's prompt."""
        lines = (
            [neutralise_canonical(f"\n{self.thought}")] if self.thought else []
        )  # it begins a line: no label of ours opens it
        lines += [neutralise_canonical(f"call {call.text}") for call in self.calls]
        lines += [] if self.answer is None else [f"answer: {neutralise_canonical(self.answer)}"]
        return "\n".join(line.strip() for line in lines) or "(nothing)"

    @property
    def return_text(self) -> str:
        return "\n".join(f"{label}: {neutralise_canonical(text).strip()}" for label, text in self.returns)


def canonical_step(step: Step) -> CanonicalStep:
    thought, calls, answer = canonical_message(step.message)
    return CanonicalStep(thought, calls, answer, tuple(_returns(step)))


def canonical_message(message: Message) -> tuple[str, tuple[CanonicalCall, ...], str | None]:
    """(thought, calls, answer) of an agent's message; native calls that its text repeats are listed once."""
    text = message.text()
    written = [(action, _from_text(action, text)) for action in actions_in(text)]
    items = [_from_native(call) for call in message.tool_calls or []] or [item for _, item in written]
    stated = [item for item in items if isinstance(item, str)] or [p for _, p in written if p and isinstance(p, str)]
    calls, answer = tuple(item for item in items if isinstance(item, CanonicalCall)), stated[-1] if stated else None
    listed = {answer, *(call.text for call in calls)}
    rest = _without(text, {a.span for a, item in written if (item if isinstance(item, str) else item.text) in listed})
    thought = "\n".join(p for p in ((message.reasoning_content or "").strip(), rest) if p)
    return thought, calls, answer


def _from_native(call: ToolCall) -> CanonicalCall | str:
    if isinstance(call.arguments, str):
        return CanonicalCall(call.name, call.arguments, malformed=True)
    if call.name.lower() in ANSWER_CALLS and len(call.arguments) == 1:
        return str(next(iter(call.arguments.values())))
    return CanonicalCall(call.name, call.arguments)


def _from_text(action: Action, text: str) -> CanonicalCall | str:
    raw = action.raw.strip("\n")
    if action.kind == "answer":
        return raw.strip()
    if action.kind == "code":
        fence = text[action.span[0] : action.span[0] + 7]
        return CanonicalCall("bash" if fence.startswith(("```bash", "```sh")) else "python", raw, action.malformed)
    written = text[action.span[0] :]
    if written.startswith("<function_call>"):  # `raw` is that of all calls of the list
        body = _keyword_arguments(action.text)
        text = raw.strip() if action.malformed else action.text
        return CanonicalCall(action.name, text if body is None else body, action.malformed)
    body = _json_object(raw)
    if body is not None and body.get("name") == action.name and written.startswith("<tool_call>"):
        body = body.get("arguments") or {}
        body = body if isinstance(body, dict) else None
    return CanonicalCall(action.name, raw.strip() if body is None else body, action.malformed)


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = strict(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _keyword_arguments(text: str) -> dict[str, Any] | None:
    """`send(to="a", cc=["b"])` as a dict; None unless a call with JSON literals alone."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Call) and not call.args:
            return json.loads(json.dumps({k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return None


def _without(text: str, spans: set[tuple[int, int]]) -> str:
    pieces, position = list[str](), 0
    for start, end in sorted(spans):
        pieces.append(text[position:start])
        position = max(position, end)
    return _LABELS.sub("", "".join([*pieces, text[position:]])).strip()


def _returns(step: Step) -> Iterator[tuple[str, str]]:
    """(label, readable text) of each result and user turn, results in the order of their calls."""
    for _, message in answers(step):
        if message is None:
            yield tuple(NO_RESULT.split(": ", 1))  # pyright: ignore[reportReturnType]
            continue
        text = environment_text(step.model_copy(update={"observations": [message]}))
        if message.role in LABELS:
            yield LABELS[message.role], text
            continue
        flagged = (message.model_extra or {}).get("is_error") is True and error_of(text) is None
        yield "result", ("error: " if flagged else "") + readable(text)


# ---- JSON as readable text -------------------------------------------------------------------------------------------


def readable(text: str) -> str:
    """A JSON (or Python) object or list as lines of `key: value`; any other text as it is."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[") or stripped[-1:] not in ("}", "]") or len(stripped) > MOST_JSON:
        return text
    for parse in (json.loads, ast.literal_eval):
        try:
            value = parse(stripped)
            if isinstance(value, dict | list):
                return "\n".join(_lines(value, MOST_DEPTH)) if value else stripped
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue  # also what can be parsed and not be written: a key that is a tuple, a number of 5,000 digits
    return text


def _lines(value: Any, depth: int) -> list[str]:
    if _is_leaf(value):
        return [_leaf(value)]
    if isinstance(value, str):
        return value.splitlines()
    if not value or depth == 0:
        return [json.dumps(value, ensure_ascii=False, default=str)]
    if isinstance(value, dict):
        return _dict_lines(value, depth)
    if all(_is_leaf(v) for v in value):
        return [", ".join(_leaf(v) for v in value)]
    lines = list[str]()
    for item in value:
        first, *rest = _lines(item, depth - 1) or [""]
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    return lines


def _dict_lines(value: dict[Any, Any], depth: int) -> list[str]:
    lines, plain = list[str](), list[str]()
    for key, inner in value.items():
        if _is_leaf(inner):
            plain.append(f"{key}: {_leaf(inner)}")
            continue
        if plain:
            lines.append(", ".join(plain))
            plain = []
        below = _lines(inner, depth - 1)
        if len(below) == 1:
            lines.append(f"{key}: {below[0]}")
        else:
            lines += [f"{key}:", *(f"  {line}" for line in below)]
    return [*lines, ", ".join(plain)] if plain else lines


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, dict | list | tuple) and not (isinstance(value, str) and "\n" in value)


def _leaf(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# ---- what stands before the steps ------------------------------------------------------------------------------------


def head_texts(trajectory: Trajectory) -> dict[str, str]:
    """`Instructions` (messages before the agent's first), `Tools` (signatures) and `Task`."""
    task = trajectory.task.strip()
    instructions = [text for m in trajectory.prelude if (text := m.text().strip()) and text != task]
    users = [m.text().strip() for m in trajectory.prelude if m.role == "user"]
    if not task and users:
        task = users[-1]
        instructions = [text for text in instructions if text != task]
    parts = {
        "Instructions": "\n".join(instructions),
        "Tools": _signatures(trajectory),
        "Task": task or "(no task given)",
    }
    return {label: neutralise_canonical(text) for label, text in parts.items() if text}


def canonical_room(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """Divide `room` ids: the task gets its size up to `TASK` of it, the other parts the rest."""
    others = {label: size for label, size in sizes.items() if label != "Task"}
    task = min(sizes["Task"], max(room - sum(others.values()), int(room * TASK)))
    return {"Task": task} | dict(zip(others, water_fill(list(others.values()), room - task), strict=True))


def _signatures(trajectory: Trajectory) -> str:
    signatures = list[str]()
    many = len(trajectory.tools or []) > MOST_SIGNATURES
    for tool in trajectory.tools or []:
        inner = tool["function"] if isinstance(tool.get("function"), dict) else tool
        parameters = inner.get("parameters") or inner.get("input_schema") or {}
        names = parameters.get("properties") if isinstance(parameters, dict) else None
        signatures.append(
            f"{inner.get('name', '?')}({', '.join(map(str, names))})"
            if isinstance(names, dict) and names and not many
            else str(inner.get("name", "?"))
        )
    return ", ".join(signatures)


Form = Literal["own", "native", "react"]
_REACT_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def in_form(trajectory: Trajectory, form: Form) -> Trajectory:
    if form == "own":
        return trajectory
    write = native_step if form == "native" else _react_step
    messages = list(trajectory.prelude)
    for number, step in enumerate(trajectory.steps, start=1):
        messages += write(canonical_step(step), number)
    return trajectory.model_copy(update={"messages": messages})


def native_step(step: CanonicalStep, number: int) -> list[Message]:
    """One step as a message with `tool_calls` (a marked answer is `finish`) and its results.

    Calls have ids if each has a result. A thought that would be read as an action becomes the message's reasoning.
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
    # a text that is not malformed (code, a ReAct input) is the one argument of a native call
    if isinstance(call.arguments, dict) or call.malformed:
        return call.arguments
    return {"input": call.arguments} if call.arguments else {}


def _reads_as(message: Message, step: CanonicalStep) -> bool:
    return CanonicalStep(*canonical_message(message), ()).action_text == step.action_text


def _react_step(step: CanonicalStep, number: int) -> list[Message]:
    """ReAct lines, results as observations; a step that these cannot hold stays native."""
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
    """A call in ReAct's lines, or in a tagged block (a name with blanks, a text of several lines)."""
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
