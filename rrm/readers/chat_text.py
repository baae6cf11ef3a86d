"""Split a chat kept as text: ChatML's or Llama-3's marks, or role lines where those are missing.

A mark inside a message is that message's text: a turn begins only where the turn before it ended, and a tool's response only ends
with its own closing tag. Where the marks themselves were left out (verl decodes so), role lines take their place; a tool's text that
imitates those cannot be told from them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rrm.data.jsonl import DECODER
from rrm.readers.chat import ROLES, agent_message

Turn = tuple[str, str]
"""A role (of `ROLES`' values) and the text as it stands."""
_NAMES = "system|developer|user|assistant|tool|ipython|environment"
_PADS = r"(?:\s|<\|endoftext\|>|<\|begin_of_text\|>|<\|end_of_text\|>|<s>|</s>|<\|finetune_right_pad_id\|>)*+"
_PADDING = re.compile(_PADS)
_FAMILIES = {
    "<|im_start|>": (rf"<\|im_start\|>({_NAMES})\n", r"<\|im_end\|>"),
    "<|im_end|>": (rf"<\|im_start\|>({_NAMES})\n", r"<\|im_end\|>"),
    "<|start_header_id|>": (
        rf"<\|start_header_id\|>({_NAMES})<\|end_header_id\|>\n{{0,2}}",
        r"(?:<\|eot_id\|>|<\|eom_id\|>)",
    ),
    "<|eot_id|>": (rf"<\|start_header_id\|>({_NAMES})<\|end_header_id\|>\n{{0,2}}", r"(?:<\|eot_id\|>|<\|eom_id\|>)"),
}
"""A mark that tells the family -> (a turn's beginning, its end)."""
RESPONSE, RESPONSE_END = "<tool_response>", "</tool_response>"
_TAG = re.compile(r"</?(?:think|tool_call|tool_response)>")
_ENDS = {
    "text": ("<think>", "<tool_call>", RESPONSE),
    "think": ("</think>",),
    "call": ("</tool_call>",),
    "response": (RESPONSE_END,),
}
"""State of the parser -> the tags that end it."""
_LINE = re.compile(rf"(?:\A|\n)({_NAMES})\n")
_GLUED = re.compile(r"\A\s*+(system|user)\n\n(.*?)assistant\n\n\Z", re.DOTALL)
_OPENS = re.compile(rf"\s*{RESPONSE}")


def prompt_turns(text: str) -> tuple[list[Turn], str]:
    """Return a prompt's turns, and the text with which it opens the model's turn ('' or, say, `<think>`)."""
    if (marks := _marks(text)) is not None:
        turns, closed = _marked(text, "user", *marks)
    elif glued := _GLUED.match(text):  # Llama-3's without its marks: nothing stands between a text and the next role
        system, separator, user = glued[2].partition("user\n\n")
        turns = [("system", system), ("user", user)] if glued[1] == "system" and separator else [(glued[1], glued[2])]
        return [(role, content.strip()) for role, content in turns if content.strip()], ""
    else:
        turns, closed = _lines(text, "user", anywhere=re.match(rf"\s*(?:{_NAMES})\n", text) is not None), False
    if turns and turns[-1][0] == "assistant" and not closed:
        return turns[:-1], turns[-1][1].lstrip()
    return turns, ""


def reply_turns(text: str, begun: str = "") -> list[Turn]:
    """Split the text after a prompt into turns: the model's first, then tools' and the model's.

    Args:
        begun: text with which the prompt opened the model's turn.
    """
    marks = _marks(text)
    turns = _lines(text, "assistant", anywhere=False) if marks is None else _marked(text, "assistant", *marks)[0]
    if turns and turns[0][0] == "assistant":
        turns[0] = ("assistant", begun + turns[0][1])
    return [(role, content) for role, content in turns if content.strip()]


def _marks(text: str) -> tuple[str, str] | None:
    """Return the marks of the first family in the text; None for none."""
    positions = [(position, mark) for mark in _FAMILIES if (position := text.find(mark)) >= 0]
    return _FAMILIES[min(positions)[1]] if positions else None


def _marked(text: str, first: str, begin: str, end: str) -> tuple[list[Turn], bool]:
    """Return the turns between marks, and whether the last one was ended."""
    padded = _PADDING.match(text)
    start = re.compile(begin).match(text, padded.end() if padded else 0)
    role, position = (ROLES[start[1]], start.end()) if start else (first, 0)
    last_response = text.rfind(RESPONSE_END)
    is_open = _opens(role, text, position)
    turns: list[Turn] = []
    for mark in re.compile(rf"{end}{_PADS}{begin}").finditer(text, position):
        if is_open and last_response > mark.start() and not _closes(text, mark.start()):
            continue
        turns.append((role, text[position : mark.start()]))
        role, position = ROLES[mark[1]], mark.end()
        is_open = _opens(role, text, position)
    rest = text[position:]
    ended = re.compile(rf"{end}(?:{end}|{_PADS})\Z").search(rest)
    turns.append((role, rest[: ended.start()] if ended else rest))
    return [(r, content) for r, content in turns if content.strip() or (r, content) == turns[-1]], ended is not None


def _opens(role: str, text: str, position: int) -> bool:
    """Return whether the turn at this position is a tool's response in its tags."""
    return role in ("user", "tool") and _OPENS.match(text, position) is not None


def _closes(text: str, position: int) -> bool:
    """Return whether a response's closing tag ends before this position."""
    return text[max(0, position - 100) : position].rstrip().endswith(RESPONSE_END)


def _lines(text: str, first: str, *, anywhere: bool) -> list[Turn]:
    """Return the turns between lines that hold a role alone.

    Args:
        anywhere: a prompt's, which begins with such a line. Of a reply they count only in pairs: a result, and the model again.
    """
    marks = [m for m in _LINE.finditer(text) if anywhere or m.start() > 0]
    last = max((m.start() for m in marks if ROLES[m[1]] == "assistant"), default=-1)
    role, position, is_open = first, 0, False
    turns: list[Turn] = []
    for mark in marks:
        then = ROLES[mark[1]]
        if mark.start() > 0:
            if not _may_follow(then, role) or (is_open and not _closes(text, mark.start())):
                continue
            back = not anywhere and then in ("user", "tool")
            if back and last < mark.start() and _OPENS.match(text, mark.end()) is None:
                continue
            turns.append((role, text[position : mark.start()]))
        role, position = then, mark.end()
        is_open = _opens(role, text, position)
    return [*turns, (role, text[position:])]


def _may_follow(role: str, before: str) -> bool:
    if before == "system":
        return role == "user"
    return role == "assistant" if before in ("user", "tool") else role in ("user", "tool")


# ---- turns as messages -----------------------------------------------------------------------------------------------


def turn_messages(turns: list[Turn], calls_before: int = 0) -> list[dict[str, Any]]:
    """Turn turns into messages; complete tags of thinking, calls and responses leave the text."""
    messages: list[dict[str, Any]] = []
    count = calls_before
    for role, text in turns:
        if role == "assistant":
            reply = _assistant(text, count)
            count += sum(len(m.get("tool_calls", ())) for m in reply)
            messages += reply
        elif role == "tool" or text.lstrip().startswith(RESPONSE):
            messages += _responses(text, messages)
        else:
            messages.append({"role": role, "content": text.strip()})
    return messages


def _responses(content: str, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a turn's responses, each for one call of the message before; never more than calls."""
    calls = before[-1].get("tool_calls", []) if before and before[-1]["role"] == "assistant" else []
    text = content.strip()
    if text.startswith(RESPONSE):
        text = text.removeprefix(RESPONSE).removesuffix(RESPONSE_END)
        parts = (
            re.split(r"</tool_response>\s*<tool_response>", text, maxsplit=max(len(calls) - 1, 0)) if calls else [text]
        )
    else:
        parts = [text]
    return [_tool(response, calls[i] if i < len(calls) else None) for i, response in enumerate(parts)]


def _tool(text: str, call: dict[str, Any] | None) -> dict[str, Any]:
    answered = {"name": "environment"} if call is None else {"tool_call_id": call["id"], "name": call["name"]}
    return {"role": "tool", "content": text.strip("\n"), **answered}


def _assistant(text: str, count: int) -> list[dict[str, Any]]:
    """Return a turn of the model; several messages where it holds tools' responses (one-text runs)."""
    writer = _MessageWriter(count)
    state, position = "text", 0
    tags = list(_TAG.finditer(text))
    if tags and tags[0].group() == "</think>":  # the prompt opened it
        state = "think"
    for tag in tags:
        name = tag.group()
        if name not in _ENDS[state] or (name == RESPONSE and not writer.asked(text, position, tag.start())):
            continue
        span = text[position : tag.start()]
        if state == "text":
            writer.text += span
        elif state == "think":
            writer.thought += span
        elif state == "call":
            writer.call(span)
        else:
            writer.response(span)
        state = {"<think>": "think", "<tool_call>": "call", RESPONSE: "response"}.get(name, "text")
        position = tag.end()
    rest = text[position:]
    if state == "think":
        writer.thought += rest
    elif state == "response":
        writer.response(rest)
    else:
        writer.text += ("<tool_call>" if state == "call" else "") + rest
    writer.flush()
    return writer.messages


class _MessageWriter:
    """Collects text, thinking and calls into messages."""

    def __init__(self, count: int) -> None:
        self.messages: list[dict[str, Any]] = []
        self.text = self.thought = ""
        self._calls: list[dict[str, Any]] = []
        self._count = count
        self._asked_at = -1

    def call(self, text: str) -> None:
        """Add a call; a malformed one stays in the text, as evidence."""
        try:
            raw = DECODER.decode(text)
        except (ValueError, RecursionError):
            raw = None
        if isinstance(raw, dict) and isinstance(raw.get("name"), str) and raw["name"]:
            arguments = raw.get("arguments", raw.get("parameters", {}))
            self._count += 1
            call = {"name": raw["name"], "arguments": arguments, "id": f"call_{self._count}"}
            if not isinstance(arguments, dict | str):
                call["arguments"] = json.dumps(arguments, ensure_ascii=False)
            rest = {k: v for k, v in raw.items() if k not in ("name", "arguments", "parameters", "id")}
            self._calls.append({**rest, **call})
        else:
            self.text += f"<tool_call>{text}</tool_call>"
        self._asked_at = len(self.text)

    def asked(self, text: str, start: int, end: int) -> bool:
        """Return whether a call ends here; only then is a response one, and not the model's own words."""
        return self._asked_at == len(self.text) and end - start < 1000 and not text[start:end].strip()

    def response(self, text: str) -> None:
        """Add a tool's response from the middle of the text."""
        waiting = list(self._calls)
        self.flush()
        answered = [m.get("tool_call_id") for m in self.messages if m["role"] == "tool"]
        if not waiting:  # the second response to the calls of one message
            last = next((m for m in reversed(self.messages) if m["role"] == "assistant"), {})
            waiting = [c for c in last.get("tool_calls", ()) if c["id"] not in answered]
        self.messages.append(_tool(text, waiting[0] if waiting else None))
        self._asked_at = 0

    def flush(self) -> None:
        self.messages += agent_message(self.text.strip(), self.thought.strip(), self._calls)
        self.text, self.thought, self._calls, self._asked_at = "", "", [], -1


def declared_tools(turns: list[Turn]) -> list[dict[str, Any]] | None:
    """Return the tools between a system prompt's `<tools>` tags (one JSON object per line); None for none."""
    text = next((content for role, content in turns if role == "system"), "")
    listed = text.partition("<tools>\n")[2].partition("\n</tools>")
    if not listed[1]:
        return None
    try:
        tools = [DECODER.decode(line) for line in listed[0].splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    return tools if tools and all(isinstance(tool, dict) for tool in tools) else None
