"""Harmony, GPT-OSS's form: a turn is several messages, each with a channel.

`<|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>commentary to=functions.search
<|constrain|>json<|message|>{"query": "…"}<|call|>`; a final answer stands in the channel `final`. The recipient may also stand before the
channel. The engine stops at `<|call|>` and `<|return|>`, so a turn makes one call."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from reagent.env.parsers.base import (
    CallFormat,
    MalformedCall,
    ParsedTurn,
    call_text,
    called,
    conclude,
    read_json,
    stated,
)
from rrm.data.trajectory import ToolCall

_START = "<|start|>"
_END = re.compile(r"<\|(?:end|call|return)\|>")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_WRITE = (
    "call a tool in the channel commentary, to=functions.<tool>, with a JSON object as the message; answer in the channel "
    "final"
)


class HarmonyParser(CallFormat):
    name: ClassVar[str] = "harmony"
    answering: ClassVar[str] = "When you know the answer, write in the channel final one line: Answer: <answer>"
    tags: tuple[str, ...] = ()
    # the model knows the form, and control tokens have no place in a text: the channels are said in words
    short: ClassVar[str] = "Call: channel commentary, to=functions.NAME, JSON. At the end: channel final, Answer: ..."
    full: ClassVar[str] = (
        "You can call these tools:\n{tools}\nCall one in the channel commentary, to=functions.NAME, its message a JSON object of "
        "arguments."
    )

    def parse(self, text: str) -> ParsedTurn:
        """Read the analysis as reasoning, messages with a recipient as calls, the last final one as answer."""
        thoughts: list[str] = []
        preambles: list[str] = []
        finals: list[str] = []
        calls: list[ToolCall | MalformedCall] = []
        for message in text.split(_START):
            head, marked, body = message.partition("<|message|>")
            channel, to = _CHANNEL.search(head), _RECIPIENT.search(head)
            body = _END.split(body, maxsplit=1)[0].strip()
            if to and marked:
                calls.append(_call(to.group(1), body))
            elif not (channel and marked):
                if message.strip():
                    stray = _END.split(message, maxsplit=1)[0].strip()
                    calls.append(MalformedCall(stray, f"a message without channel and <|message|>: {_WRITE}"))
            elif channel.group(1) == "analysis":
                thoughts.append(body)
            else:
                (finals if channel.group(1) == "final" else preambles).append(body)
        finals = [*filter(None, finals)]
        content = "\n".join(filter(None, [*preambles, *finals]))
        turn = conclude("\n".join(filter(None, thoughts)) or None, content, calls, _WRITE)
        if turn.answer is None:
            return turn
        if finals:
            return replace(turn, answer=stated(finals[-1]))
        nothing = MalformedCall("", f"neither a call nor an answer: {_WRITE}")  # a preamble answers nothing
        return replace(turn, calls=[nothing], answer=None)

    def render_call(self, call: ToolCall) -> str:
        return f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{call_text(call)}"

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        """The analysis, then the call or the final message, behind the prompt's `<|start|>assistant`."""
        messages = [f"<|channel|>analysis<|message|>{reasoning}<|end|>"] if reasoning else []
        messages += [f"{self.render_call(call)}<|call|>" for call in calls]
        messages += [] if answer is None else [f"<|channel|>final<|message|>Answer: {answer}"]
        return f"{_START}assistant".join(messages).removesuffix("<|call|>")


def _call(recipient: str, body: str) -> ToolCall | MalformedCall:
    name = recipient.removeprefix("functions.")
    value, end, problem = read_json(body, 0)
    if problem or body[end:].strip():
        problem = problem or "there is more than one JSON object"
        return MalformedCall(body or json.dumps(name), f"{problem}: {_WRITE}", name)
    return called(name, value, body, _WRITE)
