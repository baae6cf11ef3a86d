"""What a parser is: the agent's text of one turn in, calls or an answer out, and back again for supervised data.

Rules all formats share: only text outside the reasoning counts; a turn with a call, well-formed or not, is not the last
one; of several answers the last well-formed one wins; a turn without a call or an answer is a malformed call, so that
the agent is told rather than ended.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from rrm.data.trajectory import ToolCall
from rrm.prompt.actions import RESULT


@dataclass(frozen=True)
class MalformedCall:
    """Text that was meant as a call and is none."""

    text: str
    """What the agent wrote; empty where it wrote neither a call nor an answer."""
    reason: str
    """For the agent: what is wrong and what to write."""
    name: str | None = None
    """The tool, where it could still be read."""


@dataclass(frozen=True)
class ParsedTurn:
    """One turn as understood."""

    reasoning: str | None
    content: str
    """What is neither reasoning nor a call."""
    calls: list[ToolCall | MalformedCall]
    answer: str | None
    """The final answer; None in a turn with calls."""


class Parser(Protocol):
    """One tool-call format."""

    name: ClassVar[str]
    answering: ClassVar[str]
    """How the agent ends: what `instructions` says of the answer."""
    stop: tuple[str, ...]
    """Texts after which a turn is over, for the sampler."""
    tags: tuple[str, ...]
    """Names of the format's tags: disarmed in tool results."""

    def parse(self, text: str) -> ParsedTurn:
        """Understand a turn. Raises nothing, whatever the text."""
        ...

    def render_call(self, call: ToolCall) -> str:
        """The text of one call; `parse` understands it."""
        ...

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        """The text of a whole turn, for supervised data."""
        ...

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]:
        """A tool's result as the chat message the policy reads."""
        ...

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        """What a system message says about the tools and the format; `brief` for small models."""
        ...


class CallFormat(ABC):
    """What formats share whose turns are thoughts in `<think>`, calls, and `Answer: …`, a line each."""

    answering: ClassVar[str] = "When you know the answer, call nothing and write one line: Answer: <answer>"
    stop: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("think",)
    between: ClassVar[str] = "\n"
    """Calls of a turn."""

    def __init__(self, tools: Sequence[dict[str, Any]] = ()) -> None:
        del tools  # a call names its arguments

    @abstractmethod
    def render_call(self, call: ToolCall) -> str:
        """The text of one call."""

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of a turn's calls."""
        return self.between.join(self.render_call(call) for call in calls)

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        """Thoughts in `<think>`, the calls, `Answer: …`."""
        parts = [think(reasoning)] if reasoning else []
        parts += [self.render_calls(calls)] if calls else []
        return "\n".join(parts + ([] if answer is None else [f"Answer: {answer}"]))

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]:
        """A message of the role `tool`; the chat template puts it in its own tokens."""
        return result_message(text, name, call_id)


def made_up_at(text: str, parser: Parser) -> int | None:
    """Find the character at which a turn begins to write results of its own calls (`<tool_response>`, `Observation:`), which no tool
    has given yet. None: it writes none, or its format has stop texts, which end the turn there."""

    def calls_of(part: str) -> list[type[ToolCall | MalformedCall]]:
        return [type(call) for call in parser.parse(part).calls if isinstance(call, ToolCall) or call.text]

    if parser.stop or not (whole := calls_of(text)):
        return None
    for found in RESULT.finditer(text):
        calls = calls_of(text[: found.start()])
        if calls and calls == whole[: len(calls)]:  # inside of an argument the cut would make a call malformed
            return found.start()
    return None


_DECODER = json.JSONDecoder()
_ANSWER = re.compile(r"^[^\S\n]*+(?:final[^\S\n]++)?+answer[^\S\n]*+:[ \t]*+(\S[^\n]*+)", re.IGNORECASE | re.MULTILINE)
_LOOK_ALIKE = re.compile(
    r"</?\s*tool[_ -]?call\b|<\|?tool_calls?\b|\[TOOL_CALLS\]|<function\s*=|<｜tool|｜DSML｜|<\|python_tag\|>|<\|channel\|>",
    re.IGNORECASE,
)
_BARE = re.compile(r'(?:```\w*+\s*+)?+\{\s*+"name"\s*+:')
_NAME = re.compile(r'"name"\s*:\s*"([^"\n]{1,64})"')
_THINK = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def split_reasoning(text: str) -> tuple[str | None, str]:
    """(reasoning, the rest). A `</think>` without its opening tag closes what the prompt opened; an unclosed `<think>`
    runs to the end, so that a call inside unfinished thoughts is none."""
    head, closed, tail = text.partition("</think>")
    thoughts: list[str] = []
    if closed and "<think>" not in head:
        thoughts, text = [head], tail
    thoughts += _THINK.findall(text)
    reasoning = "\n".join(t.strip() for t in thoughts if t.strip())
    return reasoning or None, _THINK.sub("", text)


def think(reasoning: str) -> str:
    """Thoughts in their tags."""
    return f"<think>{reasoning}</think>"


def read_json(text: str, at: int) -> tuple[Any, int, str | None]:
    """(the JSON value that begins at `at`, blanks skipped; where it ends; what is wrong). Behind it anything may stand."""
    begin = len(text) - len(text[at:].lstrip())
    try:
        return *_DECODER.raw_decode(text, begin), None
    except (ValueError, RecursionError) as error:
        return None, begin, "not valid JSON" if isinstance(error, ValueError) else "JSON nested too deep"


def calls_after(
    text: str, opening: str, read: Callable[[str, int], tuple[ToolCall | MalformedCall, int]]
) -> tuple[list[str], list[ToolCall | MalformedCall]]:
    """(the pieces of text between the calls, stripped, no empty ones; the calls in order).

    Args:
        read: the call whose opening ends at a place, and where it ends; an argument may hold the opening.
    """
    kept: list[str] = []
    calls: list[ToolCall | MalformedCall] = []
    at = 0
    while (start := text.find(opening, at)) >= 0:
        kept.append(text[at:start])
        call, at = read(text, start + len(opening))
        calls.append(call)
    kept.append(text[at:])
    return [k.strip() for k in kept if k.strip()], calls


def tool_named(text: str) -> str | None:
    """The tool that JSON names, where it can still be read."""
    found = _NAME.search(text)
    return found.group(1) if found else None


def called(name: str, arguments: object, body: str, write: str) -> ToolCall | MalformedCall:
    """A call, where its arguments are an object, or a text that holds one (OpenAI's form).

    Args:
        body: what the agent wrote; write: for the agent, the form to write.
    """
    if isinstance(arguments, str):
        value, end, problem = read_json(arguments, 0)
        arguments = None if problem or arguments[end:].strip() else value
    if not isinstance(arguments, dict):
        return MalformedCall(body, f"arguments must be a JSON object: {write}", name)
    return ToolCall(name=name.strip(), arguments=arguments)


def checked(value: object, body: str, write: str, keys: Sequence[str]) -> ToolCall | MalformedCall:
    """A call as one JSON object with a name, and its arguments under the first of `keys` that it has; see `called`."""
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name.strip():
        return MalformedCall(body, f"no object with a name: {write}", tool_named(body))
    return called(name, next((value[key] for key in keys if key in value), {}), body, write)


def conclude(reasoning: str | None, content: str, calls: list[ToolCall | MalformedCall], write: str) -> ParsedTurn:
    """The turn: its calls, or its answer; another format's call, and a turn that says nothing, are malformed calls."""
    stray = None if calls else _LOOK_ALIKE.search(content) or _BARE.match(content)
    if stray:
        reason = f"a call must stand in its own form: {write}"
        calls = [MalformedCall(content[stray.start() :], reason, tool_named(content))]
        content = content[: stray.start()].strip()
    if calls:
        return ParsedTurn(reasoning, content, calls, None)
    if not content:
        nothing = MalformedCall("", f"neither a call nor an answer: {write}, or the answer")
        return ParsedTurn(reasoning, content, [nothing], None)
    return ParsedTurn(reasoning, content, [], stated(content))


def call_text(call: ToolCall) -> str:
    """A call's arguments as JSON; see `unthought`."""
    return unthought(call.arguments_text())


def unthought(text: str) -> str:
    """JSON of the same value, in which nothing opens or closes a thought."""
    return text.replace("<think>", "\\u003cthink>").replace("</think>", "\\u003c/think>")


def stated(text: str) -> str:
    """The answer: what follows the last `Answer:`, or all of the text."""
    answers = _ANSWER.findall(text)
    return answers[-1].rstrip() if answers else text


def result_message(text: str, name: str, call_id: str) -> dict[str, Any]:
    """A tool's result as a message of the role `tool`."""
    return {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}


def tool_list(tools: Sequence[dict[str, Any]], brief: bool) -> str:
    """A line a tool: its schema, or its signature."""
    return "\n".join(signature(t) if brief else json.dumps(t, ensure_ascii=False) for t in tools)


def first_argument(tools: Sequence[dict[str, Any]]) -> dict[str, str | None]:
    """For each tool the argument that a plain text stands for: the first required one, or the first; None without any."""
    found: dict[str, str | None] = {}
    for schema in tools:
        function = schema["function"]
        parameters = function.get("parameters", {})
        names = [*parameters.get("required", ()), *parameters.get("properties", {})]
        found[function["name"]] = names[0] if names else None
    return found


def signature(schema: dict[str, Any]) -> str:
    """`search(query): Search the facts.`"""
    function = schema["function"]
    arguments = ", ".join(function.get("parameters", {}).get("properties", {}))
    return f"{function['name']}({arguments}): {function['description']}"


def argument_text(call: ToolCall) -> str:
    """A call's arguments as one plain text: the value of a single text argument, otherwise JSON."""
    if isinstance(call.arguments, str):
        return call.arguments
    values = list(call.arguments.values())
    if not values:
        return ""
    return values[0] if len(values) == 1 and isinstance(values[0], str) else json.dumps(call.arguments)
