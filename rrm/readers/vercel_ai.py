"""`vercel_ai`: Vercel's AI SDK: UI messages (`parts`), as `useChat` and its servers keep them, and model messages (`tool-call` parts).

A step is one message of the agent: it ends where `step-start` or a tool's output stands. Parts: https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, first_user_text, make, own_id, text_field, without
from rrm.readers.chat import as_text, is_chat, tool_list
from rrm.readers.outcomes import find_outcome
from rrm.readers.turns import Turns, picture

NAME = "vercel_ai"
MARKS = ("messages[].parts[].type|[].parts[].type|messages[].toolInvocations", "messages[].role|[].role")
OF_MODELS = ("tool-call", "tool-result", "tool-error")
"""Parts that only the SDK's model messages have."""
KINDS = ("step-start", "dynamic-tool", "file")
SETTLED = ("output-available", "result")
FAILED = {"output-error": "errorText", "output-denied": "approval"}
"""States of a call that gave nothing → where it says why."""
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """Chat messages with typed `parts`, with `toolInvocations`, or with parts of the SDK's model messages; also as a bare list."""
    listed = value.get("messages") if isinstance(value, dict) else value
    return isinstance(listed, list) and is_chat(listed) and any(_marked(m) for m in listed)


def _marked(message: Message) -> bool:
    parts, content = message.get("parts"), message.get("content")
    if isinstance(message.get("toolInvocations"), list):
        return True
    typed = isinstance(parts, list) and any(isinstance(p, dict) and _is_part(p) for p in parts)
    return typed or has_parts(content)


def has_parts(content: Any) -> bool:
    """Whether a message's content is in the SDK's parts that no one else has."""
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") in OF_MODELS for p in content)


def read_messages(messages: list[Any], where: str, turns: Turns) -> list[Message]:
    """The SDK's messages as chat messages, behind those that `turns` has.

    Raises:
        ValueError: one is no object with a role.
    """
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError(f"{where}[{i}] must be an object with a role")
        _Message(turns, message).read()
    return turns.messages


def _is_part(part: Message) -> bool:
    """Whether a part is one of the SDK's: parts of a text under `content` are OpenTelemetry's."""
    kind = as_text(part.get("type"))
    return "text" in part or kind in KINDS or kind.startswith(("tool-", "source-", "data-"))


def parse(item: SourceItem) -> Trajectory:
    """One chat."""
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    if not isinstance(record.get("messages"), list):
        raise ValueError("no list of `messages`")
    turns = Turns()
    if record.get("system"):
        turns.add_text("system", record["system"])
    read_messages(record["messages"], "messages", turns)
    tools = tool_list(record.get("tools"))
    question_id = own_id(record, "question_id")
    return make(
        item,
        NAME,
        turns.messages,
        meta=without(record, "id", "messages", "system", *["tools"] * (tools is not None)),
        id=own_id(record, "id", "chatId"),
        task=text_field(record, "question") or first_user_text(turns.messages),
        question_id=question_id,
        outcome=find_outcome(record),
        tools=tools,
    )


class _Message:
    """Reads one message into `turns`; what its tools gave waits until the step's calls are all there."""

    def __init__(self, turns: Turns, raw: Message) -> None:
        self.turns, self.raw = turns, raw
        self.is_agent = raw["role"] in ("assistant", "ai")
        self.results, self.content, self.beside = list[Message](), list[Message](), list[Any]()
        time = raw.get("createdAt", raw.get("timestamp"))
        self.more = {"id": raw.get("id"), "metadata": raw.get("metadata"), "timestamp": time}

    def read(self) -> None:
        """All parts, in their order."""
        raw, content = self.raw, self.raw.get("content")
        parts = raw.get("parts") or content
        parts = parts if isinstance(parts, list) else [{"type": "text", "text": as_text(parts or "")}]
        if "parts" not in raw and isinstance(raw.get("toolInvocations"), list):  # version 3: calls beside the text
            calls = [{"type": "tool-invocation", "toolInvocation": call} for call in raw["toolInvocations"]]
            parts = [*calls, *parts]
        if self.is_agent:
            self.turns.close()
        for part in parts:
            self._part(part if isinstance(part, dict) else {"type": "text", "text": as_text(part)})
        self._flush()
        if self.content and not self.is_agent:
            self.turns.add_text(raw["role"], self.content, **{k: v for k, v in self.more.items() if v is not None})
        if self.beside and self.turns.messages:
            self.turns.messages[-1]["other_parts"] = self.beside

    def _flush(self) -> None:
        """The step's results, behind its calls."""
        for result in self.results:
            self.turns.came_back(**result)
        self.results.clear()

    def _part(self, part: Message) -> None:
        kind = as_text(part.get("type"))
        if kind == "step-start":
            self._flush()
            self.turns.close()
        elif kind == "text":
            self._said({"type": "text", "text": as_text(part.get("text", ""))})
        elif kind in ("reasoning", "thinking"):
            self._flush()
            self.turns.thought(as_text(part.get("text", part.get("reasoning", ""))), **self.more)
        elif kind == "tool-invocation" and isinstance(part.get("toolInvocation"), dict):
            self._call(part["toolInvocation"])
        elif kind == "tool-call":
            self.turns.called(part.get("toolName", ""), part.get("input", part.get("args")), part.get("toolCallId"))
            self.turns.agent(**self.more)
        elif kind in ("tool-result", "tool-error"):
            self._result(part)
        elif kind == "dynamic-tool" or (kind.startswith("tool-") and "toolCallId" in part):
            self._call({"toolName": kind.removeprefix("tool-"), **part})
        elif kind in ("file", "image"):
            data, media = (
                part.get("url", part.get("data", part.get("image"))),
                part.get("mediaType", part.get("mimeType")),
            )
            is_image = isinstance(data, str) and (kind == "image" or as_text(media or "").startswith("image/"))
            self._said(picture(data, media) if is_image and isinstance(data, str) else part)
        else:
            self.beside.append(part)  # sources, data of the application

    def _said(self, part: Message) -> None:
        if not self.is_agent:
            self.content.append(part)
            return
        self._flush()
        self.turns.said([part], **self.more)

    def _call(self, call: Message) -> None:
        """A call with what became of it."""
        state, number, name = as_text(call.get("state")), call.get("toolCallId"), call.get("toolName", "")
        given = next((call[k] for k in ("input", "args", "rawInput") if call.get(k) is not None), None)
        self.turns.agent(**self.more)
        flags = {k: call.get(k) for k in ("providerExecuted", "approval", "title")}
        waits = {} if state in SETTLED or state in FAILED else {"state": state}
        self.turns.called(name, given, number, **flags, **waits)
        if state in FAILED:
            said = call.get(FAILED[state])
            self.results.append({"content": said or f"[{state}]", "id": number, "name": name, "failed": True})
        elif state in SETTLED:
            self.results.append({"content": call.get("output", call.get("result")), "id": number, "name": name})

    def _result(self, part: Message) -> None:
        """A result of a model message: `{type, value}` says whether it failed."""
        output = part.get("output", part.get("result", part.get("error")))
        kind = output.get("type") if isinstance(output, dict) and "value" in output else None
        failed = (
            part.get("type") == "tool-error" or as_text(kind or "").startswith("error") or part.get("isError") is True
        )
        output = output["value"] if kind is not None and isinstance(output, dict) else output
        result = {"content": output, "id": part.get("toolCallId"), "name": part.get("toolName"), "failed": failed}
        if self.is_agent:  # of a tool that the model's server ran
            self.results.append(result)
        else:
            self.turns.came_back(**result)
