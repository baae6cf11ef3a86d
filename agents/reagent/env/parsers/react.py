"""ReAct text (Yao et al. 2023, arXiv 2210.03629): Thought, Action, Observation, Final Answer.

`Action: search` with `Action Input: …` (JSON, or plain text for the tool's first argument), or `Action: search[…]`. An observation that
the agent made up ends the turn."""

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from reagent.env.parsers.base import MalformedCall, ParsedTurn, argument_text, first_argument, signature
from rrm.data.trajectory import ToolCall

_LABEL = re.compile(r"^[ \t]*(Thought|Action Input|Action|Observation|Final Answer)[ \t]*:[ \t]*", re.MULTILINE)
_BRACKETS = re.compile(r"([\w.-]{1,64})\s*\[(.*)\]", re.DOTALL)
_WRITE = "write `Action: <tool>` and `Action Input: <arguments>`, or `Final Answer: <answer>`"


class ReactParser:
    """ReAct's parser; `role`: of the messages that hold observations."""

    name: ClassVar[str] = "react"
    answering: ClassVar[str] = "When you know the answer, write Final Answer: <answer>"
    stop: tuple[str, ...] = ("\nObservation:",)
    tags: tuple[str, ...] = ()

    def __init__(self, tools: Sequence[dict[str, Any]] = (), role: str = "user") -> None:
        self.arguments = first_argument(tools)
        self.role = role

    def parse(self, text: str) -> ParsedTurn:
        """Read thoughts as reasoning and actions as calls; without calls the last final answer counts."""
        pieces = _pieces(text)
        thoughts = [body for label, body in pieces if label == "Thought" and body]
        answers = [body for label, body in pieces if label == "Final Answer" and body]
        calls: list[ToolCall | MalformedCall] = []
        for i, (label, body) in enumerate(pieces):
            argument = pieces[i + 1][1] if i + 1 < len(pieces) and pieces[i + 1][0] == "Action Input" else None
            if label == "Action":
                calls.append(self._call(body, argument))
            elif label == "Action Input" and (i == 0 or pieces[i - 1][0] != "Action"):
                calls.append(MalformedCall(body, f"an input without an action: {_WRITE}"))
        if not calls and not answers:
            calls.append(MalformedCall("", f"neither an action nor an answer: {_WRITE}"))
        content = "\n".join(
            [body for label, body in pieces if label == "" and body] + [f"Final Answer: {a}" for a in answers]
        )
        return ParsedTurn("\n".join(thoughts) or None, content, calls, None if calls else answers[-1])

    def _call(self, action: str, argument: str | None) -> ToolCall | MalformedCall:
        if argument is None:
            match = _BRACKETS.fullmatch(action)
            if not match:
                return MalformedCall(action, f"an action without its input: {_WRITE}", action[:64] or None)
            action, argument = str(match.group(1)), str(match.group(2)).strip()
        written = f"{action}\n{argument}"
        if not action or "\n" in action:
            return MalformedCall(written, f"an action must be the name of a tool: {_WRITE}")
        if argument.startswith("{"):
            try:
                arguments = json.loads(argument)
            except (ValueError, RecursionError):
                return MalformedCall(written, f"the input is not valid JSON: {_WRITE}", action)
            return ToolCall(name=action, arguments=arguments)
        if not argument:
            return ToolCall(name=action, arguments={})
        # an unknown tool stays a call, for the environment to say that there is none
        return ToolCall(name=action, arguments={self.arguments.get(action) or "input": argument})

    def render_call(self, call: ToolCall) -> str:
        return f"Action: {call.name}\nAction Input: {argument_text(call)}"

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        parts = [f"Thought: {reasoning}"] if reasoning else []
        parts += [self.render_call(call) for call in calls]
        return "\n".join(parts + ([] if answer is None else [f"Final Answer: {answer}"]))

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]:
        return {"role": self.role, "content": f"Observation: {text}", "name": name, "tool_call_id": call_id}

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        listed = "\n".join(signature(t) for t in tools)
        if brief:
            return f"{listed}\nCall: Action: ... Action Input: ... At the end: Final Answer: ..."
        return (
            f"You can call these tools:\n{listed}\nWrite in this form, one action a turn:\nThought: <what you think>\n"
            "Action: <tool>\nAction Input: <arguments as JSON>\n"
            "The result comes as an observation. When you know the answer, write:\nFinal Answer: <answer>"
        )


def _pieces(text: str) -> list[tuple[str, str]]:
    """(label, text) in order, up to the first observation; text before the first label has an empty one."""
    labels = list(_LABEL.finditer(text))
    ends = [label.start() for label in labels[1:]] + [len(text)]
    pieces = [("", text[: labels[0].start()].strip() if labels else text.strip())]
    for label, end in zip(labels, ends, strict=False):
        if label.group(1) == "Observation":
            break
        pieces.append((label.group(1), text[label.end() : end].strip()))
    return pieces
