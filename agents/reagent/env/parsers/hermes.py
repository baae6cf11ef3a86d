"""Hermes JSON, as Qwen writes it: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

A turn without a call is the final answer: what follows the last `Answer:`, or all of it."""

import json
from typing import ClassVar

from reagent.env.parsers.base import CallFormat, MalformedCall, calls_after, checked, read_json, tool_named, unthought
from rrm.data.trajectory import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_WRITE = f'write {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE}'


class HermesParser(CallFormat):
    name: ClassVar[str] = "hermes"
    tags: tuple[str, ...] = ("tool_call", "tool_response", "think")
    write: ClassVar[str] = _WRITE
    short: ClassVar[str] = f'Call: {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE} At the end: Answer: ...'
    full: ClassVar[str] = (
        "You can call these tools:\n<tools>\n{tools}\n</tools>\n"
        f'For each call write a JSON object in its tags: {OPEN}{{"name": <tool>, "arguments": <object>}}{CLOSE}'
    )

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        return calls_after(text, OPEN, _read_call)

    def render_call(self, call: ToolCall) -> str:
        name = json.dumps(call.name, ensure_ascii=False)
        return OPEN + unthought(f'{{"name": {name}, "arguments": {call.arguments_text()}}}') + CLOSE


def _read_call(text: str, start: int) -> tuple[ToolCall | MalformedCall, int]:
    value, end, problem = read_json(text, start)
    rest = text[end:].lstrip()
    if problem is None and rest.startswith(CLOSE):
        return checked(value, text[start:end].strip(), _WRITE, ("arguments",)), len(text) - len(rest) + len(CLOSE)
    close, again = text.find(CLOSE, end), text.find(OPEN, end)
    if close >= 0 and not 0 <= again < close:
        stop, after = close, close + len(CLOSE)
        problem = problem or "there is more than one JSON object"
    else:
        stop = after = again if again >= 0 else len(text)
        problem = problem or f"{CLOSE} is missing"
    body = text[start:stop].strip()
    return MalformedCall(body, f"{problem}: {_WRITE}", tool_named(body)), after
