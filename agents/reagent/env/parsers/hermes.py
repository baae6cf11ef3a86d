"""Hermes JSON: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Qwen and the Hermes models write it.

A turn without a call is the final answer: what follows the last `Answer:`, or all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from reagent.env.parsers.base import MalformedCall, ParsedTurn, signature, split_reasoning
from rrm.trajectory import ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_ANSWER = re.compile(r"^\s*(?:final\s+)?answer\s*:[ \t]*(\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)
_LOOK_ALIKE = re.compile(r"</?\s*tool[_ -]?call\b|<\|?tool_calls?\b|\[TOOL_CALLS\]|<function\s*=", re.IGNORECASE)
_BARE = re.compile(r'(?:```\w*\s*)?\{\s*"name"\s*:')
_NAME = re.compile(r'"name"\s*:\s*"([^"\n]{1,64})"')
_WRITE = f'write {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE}'
_DECODER = json.JSONDecoder()


class HermesParser:
    """See the module's docstring."""

    name: ClassVar[str] = "hermes"
    stop: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("tool_call", "tool_response", "think")

    def __init__(self, tools: Sequence[dict[str, Any]] = ()) -> None:
        del tools  # a call names its arguments

    def parse(self, text: str) -> ParsedTurn:
        """Calls in order; where there are none, the answer."""
        reasoning, rest = split_reasoning(text)
        content, calls = _find_calls(rest)
        stray = None if calls else _LOOK_ALIKE.search(content) or _BARE.match(content)
        if stray:
            reason = f"a call must stand in its tags: {_WRITE}"
            calls.append(MalformedCall(content[stray.start() :], reason, _name(content)))
            content = content[: stray.start()].strip()
        if calls:
            return ParsedTurn(reasoning, content, calls, None)
        if not content:
            nothing = MalformedCall("", f"neither a call nor an answer: {_WRITE}, or the answer")
            return ParsedTurn(reasoning, content, [nothing], None)
        answers = _ANSWER.findall(content)
        return ParsedTurn(reasoning, content, [], answers[-1] if answers else content)

    def render_call(self, call: ToolCall) -> str:
        """`<tool_call>{"name": "search", "arguments": {"query": "…"}}</tool_call>`."""
        if isinstance(call.arguments, str):
            body = f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
        else:
            body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        # the same JSON value, but nothing in it opens or closes a thought
        return OPEN + body.replace("<think>", "\\u003cthink>").replace("</think>", "\\u003c/think>") + CLOSE

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        """Thoughts in `<think>`, one line a call, `Answer: …`."""
        parts = [f"<think>{reasoning}</think>"] if reasoning else []
        parts += [self.render_call(call) for call in calls]
        return "\n".join(parts + ([] if answer is None else [f"Answer: {answer}"]))

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]:
        """A message of the role `tool`; the chat template puts it in its own tags."""
        return {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        """The tools' schemas (`brief`: their signatures), and how to call and to answer."""
        listed = "\n".join(signature(t) if brief else json.dumps(t, ensure_ascii=False) for t in tools)
        if brief:
            return f'{listed}\nCall: {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE} At the end: Answer: ...'
        return (
            f"You can call these tools:\n<tools>\n{listed}\n</tools>\n"
            f'For each call write a JSON object in its tags: {OPEN}{{"name": <tool>, "arguments": <object>}}{CLOSE}\n'
            "When you know the answer, call nothing and write one line: Answer: <answer>"
        )


def _name(text: str) -> str | None:
    found = _NAME.search(text)
    return found.group(1) if found else None


def _find_calls(text: str) -> tuple[str, list[ToolCall | MalformedCall]]:
    """(the text without its calls, the calls). JSON is read from the opening tag on, so an argument may hold a tag."""
    kept: list[str] = []
    calls: list[ToolCall | MalformedCall] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        kept.append(text[at:start])
        call, at = _read_call(text, start + len(OPEN))
        calls.append(call)
    kept.append(text[at:])
    return "\n".join(k.strip() for k in kept if k.strip()), calls


def _read_call(text: str, at: int) -> tuple[ToolCall | MalformedCall, int]:
    """One call whose opening tag ends at `at`, and where it ends."""
    value, problem = None, None
    begin = len(text) - len(text[at:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        end, problem = begin, "not valid JSON" if isinstance(error, ValueError) else "JSON nested too deep"
    rest = text[end:].lstrip()
    if problem is None and rest.startswith(CLOSE):
        return _checked(value, text[at:end].strip()), len(text) - len(rest) + len(CLOSE)
    close, again = text.find(CLOSE, end), text.find(OPEN, end)
    if close >= 0 and not 0 <= again < close:
        stop, after = close, close + len(CLOSE)
        problem = problem or "there is more than one JSON object"
    else:
        stop = after = again if again >= 0 else len(text)
        problem = problem or f"{CLOSE} is missing"
    body = text[at:stop].strip()
    return MalformedCall(body, f"{problem}: {_WRITE}", _name(body)), after


def _checked(value: object, body: str) -> ToolCall | MalformedCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name.strip():
        return MalformedCall(body, f"no object with a name: {_WRITE}", _name(body))
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):  # OpenAI's form: the arguments as JSON in a string
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        return MalformedCall(body, f"arguments must be a JSON object: {_WRITE}", name)
    return ToolCall(name=name.strip(), arguments=arguments)
