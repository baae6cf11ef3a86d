"""GLM's calls, in the forms of GLM-4.5 and of GLM-4. A turn without a call is the final answer.

GLM-4.5 and later: `<tool_call>search<arg_key>query</arg_key><arg_value>…</arg_value></tool_call>`, with line breaks or not; a value is
text where the tool's schema wants text, else JSON. GLM-4: the tool's name on a line, JSON below it. The engine stops at
`<|observation|>` after a call and at `<|user|>` after an answer."""

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from reagent.env.parsers.base import CallFormat, MalformedCall, call_text, called, calls_after, read_json, think
from rrm.data.trajectory import ToolCall

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_NAME = re.compile(r"\s*([^\s<>{}\[\]\"]{1,64})\s*(?=<arg_key>|</tool_call>)")
_PAIR = re.compile(r"\s*+<arg_key>(?>(.{0,400}?)</arg_key>)\s*+<arg_value>(?>(.*?)</arg_value>)", re.DOTALL)
_WRITE = f"write {_OPEN}name, a pair <arg_key>…</arg_key><arg_value>…</arg_value> for each argument, {_CLOSE}"
_FORM = f"{_OPEN}NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n{_CLOSE}"
_TURN = "<|assistant|>"
_LINE = re.compile(r"\s*([A-Za-z_][\w.-]{0,63})[ \t]*\n\s*(?=\{)")
_WRITE_LINE = "write the tool's name on a line of its own, and its arguments as JSON below it"


class GlmParser(CallFormat):
    name: ClassVar[str] = "glm"
    tags: tuple[str, ...] = ("tool_call", "arg_key", "arg_value", "tool_response", "think")
    write: ClassVar[str] = _WRITE
    short: ClassVar[str] = f"Call: {_FORM} At the end: Answer: ..."
    full: ClassVar[str] = (
        "You can call these tools:\n<tools>\n{tools}\n</tools>\nFor each call write, with a pair for each argument:\n"
        f"{_FORM}"
    )

    def __init__(self, tools: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(tools)
        self._schemas = {
            str(t["function"]["name"]): t["function"].get("parameters", {}).get("properties", {}) for t in tools
        }

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        return calls_after(text, _OPEN, self._read)

    def _read(self, text: str, start: int) -> tuple[ToolCall | MalformedCall, int]:
        named = _NAME.match(text, start)
        name, arguments, end, problem = named and named.group(1), {}, named.end() if named else start, None
        while named and (pair := _PAIR.match(text, end)):
            key = pair.group(1).strip()
            problem = problem or (f"the argument {key!r} is given twice" if key in arguments else None)
            arguments[key], end = self._value(str(name), key, pair.group(2)), pair.end()
        rest = text[end:].lstrip()
        if name and rest.startswith(_CLOSE):
            after = len(text) - len(rest) + len(_CLOSE)
            body = text[start : after - len(_CLOSE)].strip()
            return (
                MalformedCall(body, f"{problem}: {_WRITE}", name) if problem else called(name, arguments, body, _WRITE)
            ), after
        close, again = text.find(_CLOSE, end), text.find(_OPEN, end)
        closed = close >= 0 and not 0 <= again < close
        stop = close if closed else again if again >= 0 else len(text)
        if not closed:
            problem = f"{_CLOSE} is missing"
        elif not name:
            problem = "no tool's name"
        else:
            problem = "a key without its value, or text between the arguments"
        body = text[start:stop].strip()
        return MalformedCall(body or _OPEN, f"{problem}: {_WRITE}", name), stop + len(_CLOSE) if closed else stop

    def _value(self, tool: str, key: str, text: str) -> Any:
        schema = self._schemas.get(tool, {}).get(key, {})
        if _takes_text(schema):
            return text
        value, end, problem = read_json(text.strip(), 0)
        return text if problem or end < len(text.strip()) else value  # the tool says what it wants instead

    def render_call(self, call: ToolCall) -> str:
        """Name and pairs, a line each, as the model's chat template writes them.
        Raises ValueError: arguments that are no object, or a text that holds `</arg_value>`, which the form cannot say."""
        if isinstance(call.arguments, str) or any("</arg_value>" in str(v) for v in call.arguments.values()):
            raise ValueError(f"GLM's form cannot say this call's arguments: {call.arguments_text():.200}")
        pairs = [
            f"<arg_key>{key}</arg_key>\n<arg_value>{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            "</arg_value>"
            for key, value in call.arguments.items()
        ]
        return "\n".join([f"{_OPEN}{call.name}", *pairs, _CLOSE])


class Glm4Parser(GlmParser):
    name: ClassVar[str] = "glm4"
    write: ClassVar[str] = _WRITE_LINE
    short: ClassVar[str] = "Call: NAME\n{...}\nAt the end: Answer: ..."
    full: ClassVar[str] = (
        "You can call these tools:\n{tools}\nTo call one, write its name on a line and its arguments as JSON below it."
    )

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        pieces: list[str] = []
        calls: list[ToolCall | MalformedCall] = []
        for message in text.split(_TURN):
            named = _LINE.match(message)
            if not named:
                pieces.append(message)
                continue
            value, end, problem = read_json(message, named.end())
            problem = problem or ("there is more than one JSON object" if message[end:].strip() else None)
            body, name = message[named.end() :].strip(), named.group(1)
            calls.append(
                MalformedCall(body, f"{problem}: {_WRITE_LINE}", name)
                if problem
                else called(name, value, body, _WRITE_LINE)
            )
        return pieces, calls

    def render_call(self, call: ToolCall) -> str:
        return f"{call.name}\n{call_text(call)}"

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        """Thoughts, then the calls, or a line break and the answer: a reply's first line names a tool."""
        text = _TURN.join(self.render_call(call) for call in calls)
        return (think(reasoning) if reasoning else "") + text + ("" if answer is None else f"\nAnswer: {answer}")


def _takes_text(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or [])
    return "string" in kinds or any(_takes_text(option) for key in ("anyOf", "oneOf") for option in schema.get(key, ()))
