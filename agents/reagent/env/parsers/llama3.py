"""Llama 3's calls: JSON, `{"name": "search", "parameters": {"query": "…"}}`.

`<|python_tag|>` may stand before it; `;` separates calls. Built-in tools have a form of their own,
`<|python_tag|>search.call(query="…")`. A turn without a call is the final answer."""

import ast
import json
import re
from typing import ClassVar

from reagent.env.parsers.base import CallFormat, MalformedCall, call_text, checked, read_json, tool_named
from rrm.data.trajectory import ToolCall

_TAG = "<|python_tag|>"
_BEGIN = re.compile(rf'{re.escape(_TAG)}\s*|^[ \t]*(?=\{{\s*"(?:name|type|function|parameters)"\s*:)', re.MULTILINE)
_MORE = re.compile(rf"[\s;,]*(?:{re.escape(_TAG)}\s*)?(?=\{{)")
_BUILT_IN = re.compile(r"([A-Za-z_][\w.-]{0,63})\.call\(")
_WRITE = 'write {"name": ..., "parameters": {...}}'


class Llama3Parser(CallFormat):
    name: ClassVar[str] = "llama3"
    between: ClassVar[str] = "; "
    write: ClassVar[str] = _WRITE
    short: ClassVar[str] = 'Call: {"name": ..., "parameters": {...}} At the end: Answer: ...'
    full: ClassVar[str] = (
        "You can call these functions:\n{tools}\nTo call one, respond with nothing but JSON in the form "
        '{"name": function name, "parameters": dictionary of argument name and its value}.'
    )

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        pieces: list[str] = []
        calls: list[ToolCall | MalformedCall] = []
        position = 0
        while begin := _BEGIN.search(text, position):
            pieces.append(text[position : begin.start()])
            call, position = _read(text, begin.end())
            calls.append(call)
            while more := _MORE.match(text, position):
                call, position = _read(text, more.end())
                calls.append(call)
            position += len(text[position:]) - len(text[position:].lstrip(" ;"))
        pieces.append(text[position:])
        return pieces, calls

    def render_call(self, call: ToolCall) -> str:
        return f'{{"name": {json.dumps(call.name)}, "parameters": {call_text(call)}}}'


def _read(text: str, start: int) -> tuple[ToolCall | MalformedCall, int]:
    if text[start : start + 1] != "{":
        return _built_in(text, start)
    value, end, problem = read_json(text, start)
    body = text[start:end].strip()
    if problem:
        return MalformedCall(text[start:].strip(), f"{problem}: {_WRITE}", tool_named(text[start:])), len(text)
    if isinstance(value, dict) and isinstance(value.get("function"), str) and "name" not in value:
        value = {**value, "name": value["function"]}
    return checked(value, body, _WRITE, ("parameters", "arguments")), end


def _built_in(text: str, start: int) -> tuple[ToolCall | MalformedCall, int]:
    """Read `search.call(query="…")`, all that is left of the text; other Python is no call of a tool."""
    body = text[start:].strip()
    match = _BUILT_IN.match(body)
    try:
        tree = ast.parse(body, mode="eval").body if match else None
        if match and isinstance(tree, ast.Call) and not tree.args and all(k.arg for k in tree.keywords):
            arguments = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords}
            json.dumps(arguments)
            return ToolCall(name=match.group(1), arguments=arguments), len(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    name = match.group(1) if match else None
    return MalformedCall(body or _TAG, f"no JSON call follows {_TAG}: {_WRITE}", name), len(text)
