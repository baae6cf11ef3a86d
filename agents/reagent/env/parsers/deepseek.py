"""DeepSeek's calls, in control tokens. `deepseek` writes V3's and R1's form, `deepseek_v31` V3.1's.

V3 and R1: `<｜tool▁call▁begin｜>function<｜tool▁sep｜>search`, a line with ```` ```json````, the arguments, a line with ```` ``` ````,
`<｜tool▁call▁end｜>`. V3.1: `<｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "…"}<｜tool▁call▁end｜>`. All of a turn's calls stand between
`<｜tool▁calls▁begin｜>` and `<｜tool▁calls▁end｜>`. A turn without a call is the final answer. Both parsers read either form."""

import re
from collections.abc import Sequence
from typing import ClassVar

from reagent.env.parsers.base import CallFormat, MalformedCall, call_text, called, calls_after, read_json
from rrm.data.trajectory import ToolCall

_ALL, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_OPEN, _SEP, _CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCED = re.compile(r"\s*([^\s`{]{1,64})\s*```(?:json)?\s*")
_WRITE = "write each call in the tool-call tokens: its name and a JSON object of arguments"


class DeepSeekParser(CallFormat):
    name: ClassVar[str] = "deepseek"
    write: ClassVar[str] = _WRITE
    # control tokens have no place in a text, and these models' templates show no tools: the form is said in words
    short: ClassVar[str] = "Call: with your tool-call tokens, name and JSON. At the end: Answer: ..."
    full: ClassVar[str] = (
        "You can call these tools:\n{tools}\nCall with your tool-call tokens: the tool's name and its arguments as JSON."
    )

    def read(self, text: str) -> tuple[list[str], list[ToolCall | MalformedCall]]:
        pieces, calls = calls_after(text, _OPEN, _read)
        opened = any(_ALL in p for p in pieces)
        pieces = [p.replace(_ALL, "").replace(_ALL_END, "") for p in pieces]
        if opened and not calls:
            calls.append(MalformedCall(_ALL, f"no call follows {_ALL}: {_WRITE}"))
        return pieces, calls

    def render_call(self, call: ToolCall) -> str:
        return f"{_OPEN}function{_SEP}{call.name}\n```json\n{call_text(call)}\n```{_CLOSE}"

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return f"{_ALL}{super().render_calls(calls)}{_ALL_END}"


class DeepSeekV31Parser(DeepSeekParser):
    name: ClassVar[str] = "deepseek_v31"
    between: ClassVar[str] = ""

    def render_call(self, call: ToolCall) -> str:
        return f"{_OPEN}{call.name}{_SEP}{call_text(call)}{_CLOSE}"


def _read(text: str, start: int) -> tuple[ToolCall | MalformedCall, int]:
    ends = [text.find(token, start) for token in (_OPEN, _ALL_END)]
    limit = min([e for e in ends if e >= 0], default=len(text))
    sep = text.find(_SEP, start)
    name, end, value, problem = None, start, None, f"{_SEP} is missing"
    if start <= sep < limit:
        fenced = _FENCED.match(text, sep + len(_SEP))
        name = (fenced.group(1) if fenced else text[start:sep].strip()) or None
        begin = fenced.end() if fenced else sep + len(_SEP)
        value, end, problem = read_json(text, begin)
        rest = re.sub(r"\A\s*```", "", text[end:]).lstrip() if fenced else text[end:].lstrip()
        if not problem and name and rest.startswith(_CLOSE):
            stop = len(text) - len(rest)
            return called(name, value, text[begin:end].strip(), _WRITE), stop + len(_CLOSE)
        problem = problem or ("no tool's name" if not name else f"{_CLOSE} is missing")
    close = text.find(_CLOSE, end)
    closed = close >= 0 and not end <= limit < close  # not the next call's end
    stop = close if closed else max(limit, end)
    body = text[start:stop].strip()
    return MalformedCall(body or _OPEN, f"{problem}: {_WRITE}", name), stop + len(_CLOSE) if closed else stop
