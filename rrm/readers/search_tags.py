"""`search_tags`: a search agent's text with tags around its queries (R1-Searcher, Search-R1, …)."""

from __future__ import annotations

import re
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation, own_id, text_field
from rrm.readers.chat import agent_message

NAME = "search_tags"
FIELDS = ("gen_text_store", "trajectory", "transcript", "output", "response", "completion", "generated_text", "text")
QUERY = ("<|begin_of_query|>", "<|begin_search_query|>", "<search>")
QUERY_END = ("<|end_of_query|>", "<|end_search_query|>", "</search>")
RESULT = ("<|begin_of_documents|>", "<|begin_search_result|>", "<information>", "<result>")
RESULT_END = ("<|end_of_documents|>", "<|end_search_result|>", "</information>", "</result>")
KINDS = (
    {t: "query" for t in QUERY}
    | {t: "query_end" for t in QUERY_END}
    | {t: "result" for t in RESULT}
    | {t: "result_end" for t in RESULT_END}
    | {"<think>": "think", "</think>": "think_end"}
)
TAG = re.compile("|".join(re.escape(tag) for tag in KINDS))
ASSISTANT = re.compile(r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n*")


def _text(value: Any) -> tuple[str | None, str | None]:
    """(field, text) of the tagged text; field is None for a plain string."""
    if isinstance(value, str):
        return None, value if _tagged(value) else None
    if not isinstance(value, dict):
        return None, None
    return next(((k, v) for k in FIELDS if isinstance(v := value.get(k), str) and _tagged(v)), (None, None))


def _tagged(text: str) -> bool:
    return any(tag in text for tag in QUERY) or ("</think>" in text and "<answer>" in text)


def sniff(value: Any) -> bool:
    """A text with query tags, or with thinking and an `<answer>`."""
    return _text(value)[1] is not None


def parse(item: SourceItem) -> Trajectory:
    """Thinking becomes `reasoning_content`, a query a call of `search`, documents its result."""
    key, text = _text(item.value)
    if text is None:
        raise ValueError(f"no text with search tags ({', '.join(QUERY)}) under {', '.join(FIELDS)}")
    record = item.value if isinstance(item.value, dict) else {}
    match = ASSISTANT.search(text)  # logs may hold the rendered prompt in front
    prompt, cut, run = (text[: match.start()], True, text[match.end() :]) if match else ("", False, text)
    question = text_field(record, "question", "query", "task")
    if question is None and cut:
        question = re.split(r"Question:\s*", prompt)[-1].replace("<|im_end|>", "").strip()
    question = question or ""
    prelude = [{"role": "system", "content": prompt}] if cut else []
    used = [k for k in ("question", "query", "task") if record.get(k) == question]
    messages = [*prelude, {"role": "user", "content": question}, *turns(run)]
    used += ["id", "question_id"] + ([key] if key else [])
    return conversation(item, NAME, record, messages, used, task=question, question_id=own_id(record, "question_id"))


class _Writer:
    """Collects text, calls and results into messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.said = self.thought = ""
        self.calls: list[dict[str, Any]] = []
        self.count = 0

    def add(self, text: str, thinking: bool) -> None:
        """Add text between tags; after a query without a result it starts the next message."""
        if text.strip() and self.calls:
            self.flush()
        if thinking:
            self.thought += text
        else:
            self.said += text

    def call(self, query: str) -> None:
        self.count += 1
        self.calls.append({"name": "search", "arguments": {"query": query.strip()}, "id": f"call_{self.count}"})

    def result(self, text: str) -> None:
        """Add a result; documents without a query are a tool message without a call."""
        answered = self.calls[-1]["id"] if self.calls else None
        self.flush()
        message = {"role": "tool", "name": "search", "content": text.strip()}
        self.messages.append(message | ({"tool_call_id": answered} if answered else {}))

    def flush(self) -> None:
        self.messages += agent_message(self.said.strip(), self.thought.strip(), self.calls)
        self.said = self.thought = ""
        self.calls = []


def turns(text: str) -> list[dict[str, Any]]:
    """Split the agent's text into messages; a query or result ends only at its own tag."""
    writer = _Writer()
    first = re.search(r"</?think>", text)
    thinking = first is not None and first.group() == "</think>"  # the prompt opened it
    state, position = "text", 0
    for tag in TAG.finditer(text):
        tag_kind = KINDS[tag.group()]
        span = text[position : tag.start()]
        if state == "result" and tag_kind != "result_end":
            continue
        if state == "query" and tag_kind not in ("query_end", "result"):
            continue
        if state == "text":
            writer.add(span, thinking)
        elif state == "query":
            writer.call(span)
        else:
            writer.result(span)
        position = tag.end()
        state = tag_kind if tag_kind in ("query", "result") else "text"
        thinking = tag_kind == "think" or (thinking and tag_kind != "think_end")
    rest = text[position:]
    if state == "query":
        writer.call(rest)
    elif state == "result":
        writer.result(rest)
    else:
        writer.add(rest, thinking)
    writer.flush()
    return writer.messages
