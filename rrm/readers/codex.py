"""`codex`: OpenAI's Codex CLI: sessions (`rollout-*.jsonl`) and the output of `codex exec --json`.

A session, or a thread, is one run. A rollout's `response_item` lines are the conversation; `event_msg` lines repeat it, and give usage,
errors and the question. The output of `exec --json` lacks the question. All lines of a file are held until its end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.chat import as_text, text_of
from rrm.readers.left import PARENT
from rrm.readers.otel_messages import from_json
from rrm.readers.response_items import ItemReader
from rrm.readers.turns import Turns

NAME = "codex"
MARKS = (
    "type=response_item|type=session_meta|type=item.completed|type=thread.started",
    "payload.type|payload.id|item.type|thread_id",
)
OVER_FOLDER = False
ROLLOUT = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
EXEC = {
    "thread.started",
    "turn.started",
    "turn.completed",
    "turn.failed",
    "item.started",
    "item.updated",
    "item.completed",
}
BEGINNINGS = ("session_meta", "thread.started")
PREAMBLE = re.compile(
    r"\s*<(?:environment_context|user_instructions|permissions|INSTRUCTIONS)|# AGENTS\.md instructions"
)
"""Beginnings of messages that Codex puts before the user's question."""
EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,9})\b", re.MULTILINE)
TROUBLE = ("error", "stream_error", "turn_aborted", "context_compacted", "thread_rolled_back")
Message = dict[str, Any]
Line = dict[str, Any]


def sniff(value: Any) -> bool:
    """One line of either."""
    if not isinstance(value, dict):
        return False
    line_type = value.get("type")
    if not isinstance(line_type, str):
        return False
    if isinstance(value.get("payload"), dict):
        return line_type in ROLLOUT
    return line_type in EXEC and (
        isinstance(value.get("item"), dict) or "thread_id" in value or line_type.startswith("turn.")
    )


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Group a file's lines into sessions; a forked session may repeat the other's head behind its own."""
    runs, ids = list[list[SourceItem]](), set[str]()
    for item in items:
        if not isinstance(item.value, dict):
            yield ReadError(
                item.path, item.line, f"a line is an object, got {type(item.value).__name__} (format {NAME})"
            )
            continue
        begins = as_text(item.value.get("type")) in BEGINNINGS
        if not runs or (begins and (own_id(_session_fields(item.value), "id", "thread_id") or "") not in ids):
            runs.append([])
            ids.clear()
        if begins:
            head = _session_fields(item.value)
            ids |= {v for k in ("id", "thread_id", "forked_from_id") if isinstance(v := head.get(k), str)}
        runs[-1].append(item)
    for lines in runs:
        context = {"lines": len(lines), "lines_of": "session"}
        yield SourceItem([line.value for line in lines], lines[0].path, lines[0].line, context=context)


def _session_fields(line: Line) -> Message:
    """Return a line's fields about the session it begins."""
    return line["payload"] if isinstance(line.get("payload"), dict) else line


def parse(item: SourceItem) -> Trajectory:
    lines = item.value
    return _exec(item, lines) if any(as_text(line.get("type")) in EXEC for line in lines) else _rollout(item, lines)


def _rollout(item: SourceItem, lines: list[Line]) -> Trajectory:
    reader, head, settings = ItemReader(), dict[str, Any](), dict[str, Any]()
    others, troubles = Counter[str](), list[Message]()
    question, usage = "", None
    for line in lines:
        line_type, payload = line.get("type"), line.get("payload")
        payload = payload if isinstance(payload, dict) else {}
        if line_type == "response_item":
            before = len(reader.messages)
            shell = {"name": "shell"} if payload.get("type") == "local_shell_call" else {}
            reader.read([payload | shell])
            for message in reader.messages[before:]:
                message.setdefault("timestamp", line.get("timestamp"))
        elif line_type == "session_meta":
            head = head or payload
        elif line_type == "turn_context":
            settings = settings or payload
        elif line_type == "event_msg" and as_text(payload.get("type")) in TROUBLE:
            troubles.append(payload)
        else:
            if payload.get("type") == "user_message":
                question = question or as_text(payload.get("message", ""))
            elif payload.get("type") == "token_count" and isinstance(info := payload.get("info"), dict):
                usage = info.get("total_token_usage", usage)
            others[as_text(payload.get("type", line_type))[:40]] += 1
    messages = [_settled(m) for m in reader.messages]
    texts = [text_of(m["content"]) for m in messages if m["role"] == "user"]
    task = question or next((text for text in texts if text.strip() and not PREAMBLE.match(text)), "")
    about = {k: v for k, v in settings.items() if k in ("model", "effort", "approval_policy", "sandbox_policy")}
    about |= {"usage": usage, "trouble": troubles, "other_items": reader.others, "other_lines": dict(others)}
    started_by = head.get("source") if isinstance(head.get("source"), dict) else None
    about |= {PARENT: started_by} if started_by and "subagent" in started_by else {}
    meta = {k: v for k, v in head.items() if k != "id"} | about | {"lines": len(lines)}
    meta = {k: v for k, v in meta.items() if v not in (None, "", [], {})}
    return make(item, NAME, messages, meta=meta, id=own_id(head), task=task, tools=reader.tools or None)


def _settled(message: Message) -> Message:
    """Drop empty fields; split a command's result into its output, exit code and duration."""
    message = {k: v for k, v in message.items() if v is not None or k == "content"}
    if message["role"] != "tool" or not isinstance(message["content"], str):
        return message
    value, text = from_json(message["content"]), message["content"]
    if isinstance(value, dict) and isinstance(value.get("output"), str) and value.keys() <= {"output", "metadata"}:
        about = value["metadata"] if isinstance(value.get("metadata"), dict) else {}
        message["content"], code, took = value["output"], about.get("exit_code"), about.get("duration_seconds")
        message |= {"exit_code": code} if code is not None else {}
        message |= {"duration_s": took} if isinstance(took, int | float) and not isinstance(took, bool) else {}
        failed = code not in (None, 0)
    elif isinstance(value, dict) and value.keys() >= {"content", "success"}:
        message["content"], failed = as_text(value["content"]), value["success"] is False
    else:
        code = EXIT.search(text[:400])
        failed = code is not None and code[1] != "0"
    return message | ({"is_error": True} if failed else {})


def _exec(item: SourceItem, lines: list[Line]) -> Trajectory:
    turns, thread = Turns(), None
    open_items: dict[str, Message] = {}
    usage, troubles, others = Counter[str](), list[Any](), Counter[str]()
    for line in lines:
        line_type, inner = line.get("type"), line.get("item")
        if line_type == "thread.started":
            thread = own_id(line, "thread_id")
        elif isinstance(inner, dict):
            number = as_text(inner.get("id", ""))
            if line_type == "item.completed":
                open_items.pop(number, None)
                _add_item(turns, inner, troubles)
            else:
                open_items[number] = inner
        elif line_type == "turn.completed" and isinstance(line.get("usage"), dict):
            usage.update({k: v for k, v in line["usage"].items() if isinstance(v, int)})
        elif line_type in ("turn.failed", "error"):
            troubles.append({k: v for k, v in line.items() if k != "type"})
        else:
            others[as_text(line_type)[:40]] += 1
    for inner in open_items.values():  # it was begun, and the log ends
        _add_item(turns, inner, troubles, complete=False)
    meta = {"usage": dict(usage), "trouble": troubles, "other_lines": dict(others), "lines": len(lines)}
    name = thread or item.default_id()
    return make(
        item, NAME, turns.messages, meta={k: v for k, v in meta.items() if v}, id=name, task="", question_id=name
    )


def _add_item(turns: Turns, item: Message, troubles: list[Any], complete: bool = True) -> None:
    """Add an item of a thread: a text, a thought, or a call with its result."""
    item_type, number = as_text(item.get("type", item.get("item_type", ""))), item.get("id")
    if item_type in ("agent_message", "assistant_message"):
        turns.said(item.get("text", ""), id=number)
        turns.close()
    elif item_type == "reasoning":
        turns.thought(as_text(item.get("text", "")))
    elif item_type == "error":
        troubles.append({k: v for k, v in item.items() if k != "type"})
    else:
        name, arguments, result = _call(item_type, item)
        turns.called(name, arguments, number)
        code, status = item.get("exit_code"), item.get("status")
        failed = status in ("failed", "declined") or code not in (None, 0) or item.get("error") is not None
        if complete:
            turns.came_back(result or f"[{status or 'done'}]", number, failed=failed, exit_code=code)


def _call(item_type: str, item: Message) -> tuple[str, Any, Any]:
    """Return (name, arguments, result) of a call's item."""
    if item_type == "command_execution":
        return "shell", {"command": item.get("command", "")}, item.get("aggregated_output")
    if item_type == "mcp_tool_call":
        name = ".".join(as_text(item[k]) for k in ("server", "tool") if item.get(k))
        error, result = item.get("error"), item.get("result")
        text = result.get("content") if isinstance(result, dict) else result
        text = text or (result.get("structured_content") if isinstance(result, dict) else None)
        return (
            name,
            item.get("arguments"),
            (error.get("message", error) if isinstance(error, dict) else error) or text,
        )
    arguments = {
        k: v
        for k, v in item.items()
        if k not in ("id", "type", "item_type", "status", "error", "result") and v is not None
    }
    name = {"file_change": "apply_patch", "todo_list": "update_plan"}.get(item_type, item_type)
    return name, arguments, item.get("result", item.get("error"))
