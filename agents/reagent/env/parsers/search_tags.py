"""Search tags of Search-R1 and R1-Searcher: `<think>…</think><search>…</search>`, `<answer>…</answer>`

Results stand in `<information>…</information>`. Each tool's name is a tag, whose text is the tool's first argument."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from reagent.env.parsers.base import (
    MalformedCall,
    ParsedTurn,
    argument_text,
    first_argument,
    signature,
    split_reasoning,
)
from rrm.data.trajectory import ToolCall

SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


class SearchTagsParser:
    """Parser of search tags; without `tools` there is one, `search(query)`.
    `role`: of the messages that hold results; few chat templates of models trained in this form know `tool`."""

    name: ClassVar[str] = "search_tags"
    answering: ClassVar[str] = "When you know the answer, write <answer>…</answer>"

    def __init__(self, tools: Sequence[dict[str, Any]] = (), role: str = "user") -> None:
        self.arguments = first_argument(tools or (SEARCH,))
        self.role = role
        self.stop: tuple[str, ...] = tuple(f"</{name}>" for name in (*self.arguments, "answer"))
        self.tags: tuple[str, ...] = (*self.arguments, "answer", "think", "information")
        names = "|".join(re.escape(name) for name in (*self.arguments, "answer"))
        self._tag = re.compile(rf"<(/?)({names})>")

    def parse(self, text: str) -> ParsedTurn:
        """Read well-formed blocks; a tag without its partner is a malformed call."""
        reasoning, rest = split_reasoning(text)
        pieces: list[str] = []
        calls: list[ToolCall | MalformedCall] = []
        answers: list[str] = []
        opened: re.Match[str] | None = None
        position = 0
        for tag in self._tag.finditer(rest):
            body = rest[position : tag.start()].strip()
            if tag.group(1) and opened and opened.group(2) == tag.group(2):
                self._block(tag.group(2), body, calls, answers)
                opened = None
            elif opened:
                calls.append(self._unclosed(opened, body))
                opened = None if tag.group(1) else tag
            elif tag.group(1):
                calls.append(MalformedCall(tag.group(), f"{tag.group()} closes nothing: {self._write}", tag.group(2)))
            else:
                pieces.append(body)
                opened = tag
            position = tag.end()
        if opened:
            calls.append(self._unclosed(opened, rest[position:].strip()))
        else:
            pieces.append(rest[position:].strip())
        content = "\n".join([*filter(None, pieces), *(f"Answer: {answer}" for answer in answers)])
        if not calls and not answers:
            calls.append(MalformedCall("", f"neither a call nor an answer: {self._write}"))
        return ParsedTurn(reasoning, content, calls, None if calls else answers[-1])

    @property
    def _write(self) -> str:
        return "write " + ", ".join(f"<{n}>...</{n}>" for n in self.arguments) + " or <answer>...</answer>"

    def _block(self, name: str, body: str, calls: list[ToolCall | MalformedCall], answers: list[str]) -> None:
        argument = self.arguments.get(name)
        if name != "answer" and argument is None:
            calls.append(ToolCall(name=name, arguments={}))
        elif not body:
            calls.append(MalformedCall(f"<{name}></{name}>", f"<{name}> is empty: {self._write}", name))
        elif argument is None:
            answers.append(body)
        else:
            calls.append(ToolCall(name=name, arguments={argument: body}))

    def _unclosed(self, opened: re.Match[str], body: str) -> MalformedCall:
        name = opened.group(2)
        return MalformedCall(opened.group() + body, f"</{name}> is missing: {self._write}", name)

    def render_call(self, call: ToolCall) -> str:
        return f"<{call.name}>{argument_text(call)}</{call.name}>"

    def render_turn(self, *, reasoning: str = "", calls: Sequence[ToolCall] = (), answer: str | None = None) -> str:
        parts = [f"<think>{reasoning}</think>"] if reasoning else []
        parts += [self.render_call(call) for call in calls]
        return "\n".join(parts + ([] if answer is None else [f"<answer>{answer}</answer>"]))

    def observation(self, text: str, name: str, call_id: str) -> dict[str, Any]:
        content = f"<information>{text}</information>"
        return {"role": self.role, "content": content, "name": name, "tool_call_id": call_id}

    def instructions(self, tools: Sequence[dict[str, Any]], brief: bool) -> str:
        listed = "\n".join(signature(t) for t in tools)
        tags = ", ".join(f"<{n}>{a or ''}</{n}>" for n, a in self.arguments.items())
        if brief:
            return f"{listed}\nCall: {tags} At the end: <answer>...</answer>"
        return (
            f"You can call these tools:\n{listed}\nThink first: <think>…</think>. Call with {tags}; the result comes in "
            "<information>…</information>. When you know the answer, write <answer>…</answer>."
        )
