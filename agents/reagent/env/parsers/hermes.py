"""Hermes JSON: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Qwen and the Hermes models write it.

A turn without a call is the final answer: what follows the last `Answer:`, or all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from reagent.env.parsers.base import (
    CallFormat,
    MalformedCall,
    ParsedTurn,
    calls_after,
    checked,
    conclude,
    read_json,
    split_reasoning,
    tool_list,
    tool_named,
    unthought,
)
from rrm.data.trajectory import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_WRITE = f'write {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE}'


class HermesParser(CallFormat):
    """See the module's docstring."""

    name: ClassVar[str] = "hermes"
    tags: tuple[str, ...] = ("tool_call", "tool_response", "think")

    def parse(self, text: str) -> ParsedTurn:
        """Calls in order; where there are none, the answer."""
        reasoning, rest = split_reasoning(text)
        kept, calls = calls_after(rest, OPEN, _read_call)
        return conclude(reasoning, "\n".join(kept), calls, _WRITE)

    def render_call(self, call: ToolCall) -> str:
        """`<tool_call>{"name": "search", "arguments": {"query": "…"}}</tool_call>`."""
        name = json.dumps(call.name, ensure_ascii=False)
        return OPEN + unthought(f'{{"name": {name}, "arguments": {call.arguments_text()}}}') + CLOSE

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        """The tools' schemas (`brief`: their signatures), and how to call and to answer."""
        listed = tool_list(tools, brief)
        if brief:
            return f'{listed}\nCall: {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE} At the end: Answer: ...'
        return (
            f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
            f'For each call write a JSON object in its tags: {OPEN}{{"name": <tool>, "arguments": <object>}}{CLOSE}\n'
            f"{self.answering}"
        )


def _read_call(text: str, at: int) -> tuple[ToolCall | MalformedCall, int]:
    """One call whose opening tag ends at `at`, and where it ends."""
    value, end, problem = read_json(text, at)
    rest = text[end:].lstrip()
    if problem is None and rest.startswith(CLOSE):
        return checked(value, text[at:end].strip(), _WRITE, ("arguments",)), len(text) - len(rest) + len(CLOSE)
    close, again = text.find(CLOSE, end), text.find(OPEN, end)
    if close >= 0 and not 0 <= again < close:
        stop, after = close, close + len(CLOSE)
        problem = problem or "there is more than one JSON object"
    else:
        stop = after = again if again >= 0 else len(text)
        problem = problem or f"{CLOSE} is missing"
    body = text[at:stop].strip()
    return MalformedCall(body, f"{problem}: {_WRITE}", tool_named(body)), after
