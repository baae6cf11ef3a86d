"""What a parser is: the agent's text of one turn in, calls or an answer out, and back again for supervised data.

Rules all formats share: only text outside the reasoning counts; a turn with a call, well-formed or not, is not the last
one; of several answers the last well-formed one wins; a turn without a call or an answer is a malformed call, so that
the agent is told rather than ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from rrm.trajectory import ToolCall


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
