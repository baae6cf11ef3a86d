"""Parsers turn the text of one turn into calls or an answer, and back again for supervised data.

All formats: only text outside the reasoning counts; a turn with a call, well-formed or not, is not the last one; of several answers the
last well-formed one wins; a turn without a call or an answer is a malformed call, so that the agent is told rather than ended."""

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

    text: str  # the agent's text; empty where it wrote neither a call nor an answer
    reason: str  # for the agent: the mistake, and what to write
    name: str | None = None  # the tool, where it could still be read


@dataclass(frozen=True)
class ParsedTurn:
    reasoning: str | None
    content: str  # text that is neither reasoning nor a call
    calls: list[ToolCall | MalformedCall]
    answer: str | None  # the final answer; None in a turn with calls


class Parser(Protocol):
    name: ClassVar[str]
    answering: ClassVar[str]  # the part of `instructions` about the answer
    stop: tuple[str, ...]  # texts after which a turn is over, for the sampler
    tags: tuple[str, ...]  # names of the format's tags: disarmed in tool results

    def parse(self, text: str) -> ParsedTurn:
        """Parse a turn. Raises nothing, whatever the text."""
        ...

    def render_call(self, call: ToolCall) -> str:
        """The text of one call; `parse` reads it back."""
        ...

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        """The text of a whole turn, for supervised data."""
        ...

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]: ...

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        """The part of a system message about the tools and the format; `brief` for small models."""
        ...


class CallFormat(ABC):
    answering: ClassVar[str] = "When you know the answer, call nothing and write one line: Answer: <answer>"
    stop: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("think",)
    between: ClassVar[str] = "\n"  # separator of a turn's calls
    write: ClassVar[str]  # the form of a call, for the agent
    short: ClassVar[str]  # the form in a system message for small models, behind the tools' signatures
    full: ClassVar[str]  # the form in a system message, before `answering`; `{tools}` stands for the tools' schemas

    def __init__(self, tools: Sequence[dict[str, Any]] = ()) -> None:
        del tools  # a call names its arguments

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        """(pieces of text between the calls, calls in order) of a turn without its thoughts."""
        raise NotImplementedError

    def parse(self, text: str) -> ParsedTurn:
        reasoning, rest = split_reasoning(text)
        pieces, calls = self.read(rest)
        return conclude(reasoning, "\n".join(p.strip() for p in pieces if p.strip()), calls, self.write)

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        listed = tool_list(tools, brief)
        return f"{listed}\n{self.short}" if brief else f"{self.full.replace('{tools}', listed)}\n{self.answering}"

    @abstractmethod
    def render_call(self, call: ToolCall) -> str: ...

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return self.between.join(self.render_call(call) for call in calls)

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        parts = [think(reasoning)] if reasoning else []
        parts += [self.render_calls(calls)] if calls else []
        return "\n".join(parts + ([] if answer is None else [f"Answer: {answer}"]))

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]:
        return result_message(text, name, call_id)


def made_up_at(text: str, parser: Parser) -> int | None:
    """The character at which a turn begins to write its own results (`<tool_response>`, `Observation:`).
    None: it writes none, or its format has stop texts, which end the turn there."""

    def calls_of(beginning: str) -> list[type[ToolCall | MalformedCall]]:
        return [type(call) for call in parser.parse(beginning).calls if isinstance(call, ToolCall) or call.text]

    if parser.stop or not (all_calls := calls_of(text)):
        return None
    for result in RESULT.finditer(text):
        calls = calls_of(text[: result.start()])
        if calls and calls == all_calls[: len(calls)]:  # inside of an argument the cut would make a call malformed
            return result.start()
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
    """(reasoning, the rest). A `</think>` without its opening tag closes what the prompt opened.
    An unclosed `<think>` runs to the end, so that a call inside unfinished thoughts is none."""
    head, closed, tail = text.partition("</think>")
    thoughts: list[str] = []
    if closed and "<think>" not in head:
        thoughts, text = [head], tail
    thoughts += _THINK.findall(text)
    reasoning = "\n".join(t.strip() for t in thoughts if t.strip())
    return reasoning or None, _THINK.sub("", text)


def think(reasoning: str) -> str:
    return f"<think>{reasoning}</think>"


def read_json(text: str, start: int) -> tuple[Any, int, str | None]:
    """(the JSON value that begins at `start`, its end, the problem or None). Any text may follow it."""
    begin = len(text) - len(text[start:].lstrip())
    try:
        return *_DECODER.raw_decode(text, begin), None
    except (ValueError, RecursionError) as error:
        return None, begin, "not valid JSON" if isinstance(error, ValueError) else "JSON nested too deep"


def calls_after(
    text: str, opening: str, read: Callable[[str, int], tuple[ToolCall | MalformedCall, int]]
) -> tuple[list[str], list[ToolCall | MalformedCall]]:
    """(non-empty, stripped pieces of text between the calls, calls in order).
    `read`: (text, end of an opening) → (call, its end); an argument may hold the opening."""
    pieces: list[str] = []
    calls: list[ToolCall | MalformedCall] = []
    position = 0
    while (opened := text.find(opening, position)) >= 0:
        pieces.append(text[position:opened])
        call, position = read(text, opened + len(opening))
        calls.append(call)
    pieces.append(text[position:])
    return [p.strip() for p in pieces if p.strip()], calls


def tool_named(text: str) -> str | None:
    """The tool that JSON names, where it can still be read."""
    match = _NAME.search(text)
    return match.group(1) if match else None


def called(name: str, arguments: object, body: str, write: str) -> ToolCall | MalformedCall:
    """A call, where its arguments are an object, or a text that holds one (OpenAI's form).
    `body`: the agent's text; `write`: for the agent, the form to write."""
    if isinstance(arguments, str):
        value, end, problem = read_json(arguments, 0)
        arguments = None if problem or arguments[end:].strip() else value
    if not isinstance(arguments, dict):
        return MalformedCall(body, f"arguments must be a JSON object: {write}", name)
    return ToolCall(name=name.strip(), arguments=arguments)


def checked(value: object, body: str, write: str, keys: Sequence[str]) -> ToolCall | MalformedCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name.strip():
        return MalformedCall(body, f"no object with a name: {write}", tool_named(body))
    return called(name, next((value[key] for key in keys if key in value), {}), body, write)


def conclude(reasoning: str | None, content: str, calls: list[ToolCall | MalformedCall], write: str) -> ParsedTurn:
    """The turn: its calls, or its answer. Another format's call and an empty turn are malformed calls."""
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
    return unthought(call.arguments_text())


def unthought(text: str) -> str:
    """JSON of the same value, in which nothing opens or closes a thought."""
    return text.replace("<think>", "\\u003cthink>").replace("</think>", "\\u003c/think>")


def stated(text: str) -> str:
    """The answer: what follows the last `Answer:`, or all of the text."""
    answers = _ANSWER.findall(text)
    return answers[-1].rstrip() if answers else text


def result_message(text: str, name: str, call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}


def tool_list(tools: Sequence[dict[str, Any]], brief: bool) -> str:
    return "\n".join(signature(t) if brief else json.dumps(t, ensure_ascii=False) for t in tools)


def first_argument(tools: Sequence[dict[str, Any]]) -> dict[str, str | None]:
    """Tool → the argument that a plain text stands for: the first required one, or the first, or None."""
    arguments: dict[str, str | None] = {}
    for schema in tools:
        function = schema["function"]
        parameters = function.get("parameters", {})
        names = [*parameters.get("required", ()), *parameters.get("properties", {})]
        arguments[function["name"]] = names[0] if names else None
    return arguments


def signature(schema: dict[str, Any]) -> str:
    function = schema["function"]
    arguments = ", ".join(function.get("parameters", {}).get("properties", {}))
    return f"{function['name']}({arguments}): {function['description']}"


def argument_text(call: ToolCall) -> str:
    """A call's arguments as plain text: the value of a single text argument, otherwise JSON."""
    if isinstance(call.arguments, str):
        return call.arguments
    values = list(call.arguments.values())
    if not values:
        return ""
    return values[0] if len(values) == 1 and isinstance(values[0], str) else json.dumps(call.arguments)
