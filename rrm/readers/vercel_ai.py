"""`vercel_ai`: Vercel's AI SDK: UI messages (`parts`) and model messages (`tool-call` parts).

A step is one message of the agent: it ends where `step-start` or a tool's output stands. Parts:
https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, conversation, own_id, record_of
from rrm.readers.chat import as_text, is_chat, tool_list
from rrm.readers.turns import Turns, picture

NAME = "vercel_ai"
MARKS = ("messages[].parts[].type|[].parts[].type|messages[].toolInvocations", "messages[].role|[].role")
OF_MODELS = ("tool-call", "tool-result", "tool-error")
"""Parts of the SDK's model messages alone."""
KINDS = ("step-start", "dynamic-tool", "file")
SETTLED = ("output-available", "result")
FAILED = {"output-error": "errorText", "output-denied": "approval"}
"""States of a failed call → the field with the reason."""
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """Match messages (or a bare list) with typed `parts`, `toolInvocations` or the SDK's own parts."""
    listed = value.get("messages") if isinstance(value, dict) else value
    return isinstance(listed, list) and is_chat(listed) and any(_marked(m) for m in listed)


def _marked(message: Message) -> bool:
    parts, content = message.get("parts"), message.get("content")
    if isinstance(message.get("toolInvocations"), list):
        return True
    for item in parts if isinstance(parts, list) else []:  # parts of a text under `content` are OpenTelemetry's
        part_type = as_text(item.get("type")) if isinstance(item, dict) else ""
        if part_type in KINDS or part_type.startswith(("tool-", "source-", "data-")) or (part_type and "text" in item):
            return True
    return has_parts(content)


def has_parts(content: Any) -> bool:
    """Return whether a content is in the SDK's parts that no one else has."""
    return isinstance(content, list) and any(isinstance(p, dict) and p.get("type") in OF_MODELS for p in content)


def read_messages(messages: list[Any], where: str, turns: Turns) -> list[Message]:
    """Read the SDK's messages as chat messages, behind those in `turns`.

    Raises:
        ValueError: one is no object with a role.
    """
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError(f"{where}[{i}] must be an object with a role")
        _Message(turns, message).read()
    return turns.messages


def parse(item: SourceItem) -> Trajectory:
    record, turns = record_of(item, "messages"), Turns()
    if record.get("system"):
        turns.add_text("system", record["system"])
    read_messages(record["messages"], "messages", turns)
    tools = tool_list(record.get("tools"))
    used, question_id = ["id", "messages", "system"] + ["tools"] * (tools is not None), own_id(record, "question_id")
    ids = ("id", "chatId")
    return conversation(item, NAME, record, turns.messages, used, ids=ids, question_id=question_id, tools=tools)


class _Message:
    """Reads one message into `turns`; tool results wait until the step's calls are complete."""

    def __init__(self, turns: Turns, raw: Message) -> None:
        self.turns, self.raw = turns, raw
        self.is_agent = raw["role"] in ("assistant", "ai")
        self.results, self.content, self.beside = list[Message](), list[Message](), list[Any]()
        time = raw.get("createdAt", raw.get("timestamp"))
        self.more = {"id": raw.get("id"), "metadata": raw.get("metadata"), "timestamp": time}

    def read(self) -> None:
        raw, content = self.raw, self.raw.get("content")
        parts = raw.get("parts") or content
        parts = parts if isinstance(parts, list) else [{"type": "text", "text": as_text(parts or "")}]
        if "parts" not in raw and isinstance(raw.get("toolInvocations"), list):  # version 3: calls beside the text
            calls = [{"type": "tool-invocation", "toolInvocation": call} for call in raw["toolInvocations"]]
            parts = [*calls, *parts]
        if self.is_agent:
            self.turns.close()
        for item in parts:
            self._part(item if isinstance(item, dict) else {"type": "text", "text": as_text(item)})
        self._flush()
        if self.content and not self.is_agent:
            self.turns.add_text(raw["role"], self.content, **{k: v for k, v in self.more.items() if v is not None})
        if self.beside and self.turns.messages:
            self.turns.messages[-1]["other_parts"] = self.beside

    def _flush(self) -> None:
        for result in self.results:
            self.turns.came_back(**result)
        self.results.clear()

    def _part(self, item: Message) -> None:
        part_type = as_text(item.get("type"))
        if part_type == "step-start":
            self._flush()
            self.turns.close()
        elif part_type == "text":
            self._said({"type": "text", "text": as_text(item.get("text", ""))})
        elif part_type in ("reasoning", "thinking"):
            self._flush()
            self.turns.thought(as_text(item.get("text", item.get("reasoning", ""))), **self.more)
        elif part_type == "tool-invocation" and isinstance(item.get("toolInvocation"), dict):
            self._call(item["toolInvocation"])
        elif part_type == "tool-call":
            self.turns.called(item.get("toolName", ""), item.get("input", item.get("args")), item.get("toolCallId"))
            self.turns.agent(**self.more)
        elif part_type in ("tool-result", "tool-error"):
            self._result(item)
        elif part_type == "dynamic-tool" or (part_type.startswith("tool-") and "toolCallId" in item):
            self._call({"toolName": part_type.removeprefix("tool-"), **item})
        elif part_type in ("file", "image"):
            data, media = (
                item.get("url", item.get("data", item.get("image"))),
                item.get("mediaType", item.get("mimeType")),
            )
            is_image = isinstance(data, str) and (part_type == "image" or as_text(media or "").startswith("image/"))
            self._said(picture(data, media) if is_image and isinstance(data, str) else item)
        else:
            self.beside.append(item)  # sources, data of the application

    def _said(self, item: Message) -> None:
        if not self.is_agent:
            self.content.append(item)
            return
        self._flush()
        self.turns.said([item], **self.more)

    def _call(self, call: Message) -> None:
        """Add a call and its result."""
        state, number, name = as_text(call.get("state")), call.get("toolCallId"), call.get("toolName", "")
        arguments = next((call[k] for k in ("input", "args", "rawInput") if call.get(k) is not None), None)
        self.turns.agent(**self.more)
        flags = {k: call.get(k) for k in ("providerExecuted", "approval", "title")}
        waits = {} if state in SETTLED or state in FAILED else {"state": state}
        self.turns.called(name, arguments, number, **flags, **waits)
        if state in FAILED:
            reason = call.get(FAILED[state])
            self.results.append({"content": reason or f"[{state}]", "id": number, "name": name, "failed": True})
        elif state in SETTLED:
            self.results.append({"content": call.get("output", call.get("result")), "id": number, "name": name})

    def _result(self, item: Message) -> None:
        """Add a result of a model message: `{type, value}` says whether it failed."""
        output = item.get("output", item.get("result", item.get("error")))
        form = output.get("type") if isinstance(output, dict) and "value" in output else None
        failed = (
            item.get("type") == "tool-error" or as_text(form or "").startswith("error") or item.get("isError") is True
        )
        output = output["value"] if form is not None and isinstance(output, dict) else output
        result = {"content": output, "id": item.get("toolCallId"), "name": item.get("toolName"), "failed": failed}
        if self.is_agent:  # of a tool that the model's server ran
            self.results.append(result)
        else:
            self.turns.came_back(**result)
