"""`gemini`: Gemini CLI's sessions and saved chats, and bodies of the Gemini API (`contents`).

Sessions are `chats/session-*.json` or `.jsonl`. A message holds its thoughts, calls and results. In a session of lines a repeated
message counts once, and a rewind takes back what stood behind it. Fields: https://github.com/google-gemini/gemini-cli, https://ai.google.dev/api/caching#Content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import google
from rrm.readers.base import SourceItem, conversation
from rrm.readers.chat import as_text
from rrm.readers.google import field
from rrm.readers.left import PARENT
from rrm.readers.turns import Turns

NAME = "gemini"
MARKS = (
    "messages[].type=gemini|contents[].parts|[].parts|type=gemini",
    "projectHash|contents[].role|[].role|toolCalls",
)
OVER_FOLDER = False
TYPES = ("user", "gemini", "info", "error", "warning")
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """A session, one line of it, a request's body, or a list of contents."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(c, dict) and "role" in c and google.is_content(c) for c in value)
    if not isinstance(value, dict):
        return False
    listed = value.get("messages")
    if isinstance(value.get("sessionId"), str) and "projectHash" in value:
        return True
    if isinstance(listed, list) and listed and isinstance(value.get("sessionId"), str):
        return all(isinstance(m, dict) and m.get("type") in TYPES and "content" in m for m in listed)
    return "$set" in value or "$rewindTo" in value or _is_line(value) or sniff(value.get("contents"))


def _is_line(value: Message) -> bool:
    is_message = value.get("type") in TYPES and "content" in value and "role" not in value
    return is_message and isinstance(value.get("id"), str) and isinstance(value.get("timestamp"), str)


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield documents as they are, and a session of lines as one document."""
    run: SourceItem | None = None
    for item in items:
        value = item.value
        if isinstance(value, dict) and "messages" not in value and "contents" not in value:
            if run is None or value.get("sessionId", run.value.get("sessionId")) != run.value.get("sessionId"):
                if run is not None:
                    yield run
                run = SourceItem({"messages": []}, item.path, item.line, context={"lines": 0, "lines_of": "session"})
            _take(run.value, value)
            run.context["lines"] += 1
        else:
            yield item
    if run is not None:
        yield run


def _take(session: Message, line: Message) -> None:
    """Apply one line: a message (again), set fields, or a rewind; what that takes back is kept beside."""
    messages: list[Message] = session["messages"]
    fields = line["$set"] if isinstance(line.get("$set"), dict) else {}
    if "$rewindTo" in line:  # to one that is not there: to the beginning
        index = next((k for k, m in enumerate(messages) if m.get("id") == line["$rewindTo"]), 0)
        _take_back(session, messages[index:])
        del messages[index:]
    elif "$set" in line:
        session |= {k: v for k, v in fields.items() if k not in ("messages", "taken_back")}
        if isinstance(fields.get("messages"), list):
            fresh = [m for m in fields["messages"] if isinstance(m, dict)]
            _take_back(session, [m for m in messages if m.get("id") not in [h.get("id") for h in fresh]])
            messages[:] = fresh
    elif _is_line(line):
        index = next((k for k, m in enumerate(messages) if m.get("id") == line["id"]), len(messages))
        messages[index : index + 1] = [line]
    else:
        session |= {k: v for k, v in line.items() if k not in ("messages", "taken_back")}


def _take_back(session: Message, messages: list[Message]) -> None:
    if messages:
        session["taken_back"] = [*session.get("taken_back", []), *messages]


def parse(item: SourceItem) -> Trajectory:
    record = item.value if isinstance(item.value, dict) else {"contents": item.value}
    turns = Turns()
    if isinstance(record.get("contents"), list):
        system = field(record, "systemInstruction")
        if system is not None:
            google.add(turns, "system", system)
        for content in record["contents"]:
            google.add(turns, as_text(field(content, "role") or "user"), content)
        for candidate in (record.get("candidates") or [])[:1] if isinstance(record.get("candidates"), list) else []:
            google.add(turns, "model", field(candidate, "content"))
        used = ("id", "contents", "systemInstruction", "system_instruction", "candidates", "tools")
        tools = google.tools_of(record.get("tools"))
        return conversation(item, NAME, record, turns.messages, used, tools=tools)
    meta = _session(turns, record) | {"lines": item.context.get("lines", 1)}
    meta |= {PARENT: {"kind": "subagent"}} if record.get("kind") == "subagent" else {}
    return conversation(item, NAME, record, turns.messages, ("messages", "sessionId"), ids=("sessionId",), meta=meta)


def _session(turns: Turns, record: Message) -> Message:
    """Read a session's messages into `turns`; return its meta."""
    if not isinstance(record.get("messages"), list):
        raise ValueError("no list of `messages`")
    notes, usage, model = list[Message](), Counter[str](), None
    for i, message in enumerate(record["messages"]):
        if not isinstance(message, dict):
            raise ValueError(f"messages[{i}] must be an object, got {type(message).__name__}")
        message_type, more = message.get("type"), {"id": message.get("id"), "timestamp": message.get("timestamp")}
        if message_type == "user":
            google.add(turns, "user", message.get("content"), **more)
        elif message_type == "gemini":
            turns.close()
            model = model or message.get("model")
            if isinstance(tokens := message.get("tokens"), dict):
                usage.update({k: v for k, v in tokens.items() if isinstance(v, int)})
                more["usage"] = tokens
            _reply(turns, message, more)
        else:
            notes.append({k: v for k, v in message.items() if k != "id"})
    return {k: v for k, v in (("notes", notes), ("usage", dict(usage)), ("model", model)) if v}


def _reply(turns: Turns, message: Message, more: Message) -> None:
    thoughts = message.get("thoughts")
    for thought in thoughts if isinstance(thoughts, list) else []:
        texts = [
            as_text(thought[k]) for k in ("subject", "description") if isinstance(thought, dict) and thought.get(k)
        ]
        turns.thought(": ".join(texts), **more)
    google.add(turns, "model", message.get("content") or [], **more)
    calls = message.get("toolCalls")
    calls = [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
    for call in calls:
        turns.agent(**more)
        turns.called(call.get("name", ""), call.get("args"), call.get("id"))
    for call in calls:
        _result(turns, call)


def _result(turns: Turns, call: Message) -> None:
    """Add a call's result: its function responses, else what was displayed."""
    failed, number, time = call.get("status") in ("error", "cancelled"), call.get("id"), call.get("timestamp")
    parts = google.parts_of(call.get("result"))
    answers = [a for p in parts if isinstance(a := field(p, "functionResponse"), dict)]
    results = [google.result_of(a) for a in answers]
    if len(results) == 1:
        content = results[0][0]
    elif results:
        content = "\n".join(as_text(text) for text, _ in results)
    else:
        content = "\n".join(as_text(p["text"]) for p in parts if "text" in p) or call.get("resultDisplay")
        if content is None:
            content = f"[{call['status']}]" if call.get("status") else None
    if content is not None:
        failed = failed or any(error for _, error in results)
        turns.came_back(content, number, call.get("name"), failed=failed, timestamp=time)
