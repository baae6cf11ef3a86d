"""Llama 3's calls: bare JSON, `{"name": "search", "parameters": {"query": "…"}}`, with `<|python_tag|>` before it or not.

Several calls are parted by `;`. The models' built-in tools have a form of their own, `<|python_tag|>search.call(query="…")`.
A turn without a call is the final answer.
"""

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
    """See the module's docstring."""

    name: ClassVar[str] = "llama3"
    between: ClassVar[str] = "; "
    write: ClassVar[str] = _WRITE
    short: ClassVar[str] = 'Call: {"name": ..., "parameters": {...}} At the end: Answer: ...'
    full: ClassVar[str] = (
        "You can call these functions:\n{tools}\nTo call one, respond with nothing but JSON in the form "
        '{"name": function name, "parameters": dictionary of argument name and its value}.'
    )

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        kept: list[str] = []
        calls: list[ToolCall | MalformedCall] = []
        at = 0
        while begin := _BEGIN.search(text, at):
            kept.append(text[at : begin.start()])
            call, at = _read(text, begin.end())
            calls.append(call)
            while more := _MORE.match(text, at):
                call, at = _read(text, more.end())
                calls.append(call)
            at += len(text[at:]) - len(text[at:].lstrip(" ;"))
        kept.append(text[at:])
        return kept, calls

    def render_call(self, call: ToolCall) -> str:
        """`{"name": "search", "parameters": {"query": "…"}}`."""
        return f'{{"name": {json.dumps(call.name)}, "parameters": {call_text(call)}}}'


def _read(text: str, at: int) -> tuple[ToolCall | MalformedCall, int]:
    """The call that begins at `at`, and where it ends."""
    if text[at : at + 1] != "{":
        return _built_in(text, at)
    value, end, problem = read_json(text, at)
    body = text[at:end].strip()
    if problem:
        return MalformedCall(text[at:].strip(), f"{problem}: {_WRITE}", tool_named(text[at:])), len(text)
    if isinstance(value, dict) and isinstance(value.get("function"), str) and "name" not in value:
        value = {**value, "name": value["function"]}
    return checked(value, body, _WRITE, ("parameters", "arguments")), end


def _built_in(text: str, at: int) -> tuple[ToolCall | MalformedCall, int]:
    """`search.call(query="…")`, all that is left of the text; other Python is no call of a tool."""
    body = text[at:].strip()
    found = _BUILT_IN.match(body)
    try:
        tree = ast.parse(body, mode="eval").body if found else None
        if found and isinstance(tree, ast.Call) and not tree.args and all(k.arg for k in tree.keywords):
            arguments = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords}
            json.dumps(arguments)
            return ToolCall(name=found.group(1), arguments=arguments), len(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    name = found.group(1) if found else None
    return MalformedCall(body or _TAG, f"no JSON call follows {_TAG}: {_WRITE}", name), len(text)
