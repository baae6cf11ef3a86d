"""`claude_code`: session files of Claude Code. One file holds one session on many lines; a session is one trajectory.

Lines are grouped by `sessionId`; each sidechain (a sub-agent's run) becomes a trajectory of its own. Lines that are no
messages (summaries, snapshots, progress) are counted by type in `meta["other_lines"]`; summaries keep their text. All
lines of a file are held until its end, because a session's last line is only known there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.errors import ReadError
from rrm.readers.anthropic import unblock
from rrm.readers.base import Item, describe, make, own_id, printable
from rrm.readers.chat import text_of
from rrm.trajectory import Trajectory

NAME = "claude_code"
MARKS = ("type", "sessionId", "message|uuid")
OVER_FOLDER = False
ORPHANS = {"summary", "file-history-snapshot", "queue-operation", "progress", "custom-title", "last-prompt"}
"""Line types that may come without a session id; they belong to the session beside them in the file."""
SESSION_KEYS = ("version", "cwd", "gitBranch")


def sniff(value: Any) -> bool:
    """A line with a type and a session, or one of the types that need none."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if isinstance(value.get("sessionId"), str):
        return "message" in value or "uuid" in value or value["type"] in ORPHANS
    return (value["type"] == "summary" and "leafUuid" in value) or (
        value["type"] == "file-history-snapshot" and "snapshot" in value
    )


def gather(items: Iterable[Item]) -> Iterator[Item | ReadError]:
    """All lines of one file as items: each session, then each of its sidechains, in order of appearance.

    An item's value is the list of its lines; its context says which session and chain they are, each line's number, and
    the first one's also holds the lines that name no session.
    """
    runs: dict[tuple[str, str], list[Item]] = {}
    roots: dict[str, str] = {}
    orphans = list[Item]()
    path = "-"
    for item in items:
        path = item.path
        if not isinstance(item.value, dict):
            yield ReadError(item.path, item.line, f"a session line is an object, got {type(item.value).__name__}")
        elif not isinstance(item.value.get("sessionId"), str):
            orphans.append(item)
        else:
            runs.setdefault((item.value["sessionId"], _chain(item.value, roots)), []).append(item)
    if not runs and orphans:
        lines = f"{len(orphans)} lines without a sessionId"
        yield ReadError(path, orphans[0].line, f"no session in this file, only {lines}: nothing to judge")
    for number, ((session, chain), lines) in enumerate(runs.items()):
        context: dict[str, Any] = {"session": session, "chain": chain, "numbers": [line.line for line in lines]}
        context["orphans"] = [o.value for o in orphans] if number == 0 else []
        yield Item([line.value for line in lines], path, lines[0].line, context=context)


def parse(item: Item) -> Trajectory:
    """One session or sidechain, as `gather` gives it."""
    count = len(item.value) + len(item.context["orphans"])
    try:
        return _trajectory(item)
    except ValueError as error:
        counted = printable(f"({count} lines of session {item.context['session'][:40]})")
        raise ValueError(f"{describe(error)} {counted}") from error


def _chain(line: dict[str, Any], roots: dict[str, str]) -> str:
    """'' for the main conversation; for a sidechain the agent's id, or the uuid of its first line."""
    if line.get("isSidechain") is not True:
        return ""
    agent = line.get("agentId")
    uuid, parent = str(line.get("uuid")), str(line.get("parentUuid"))
    root = agent if isinstance(agent, str) and agent else roots.get(parent, uuid)
    roots[uuid] = root
    return root


def _trajectory(item: Item) -> Trajectory:
    lines: list[dict[str, Any]] = item.value
    session, chain, orphans = item.context["session"], item.context["chain"], item.context["orphans"]
    messages = list[dict[str, Any]]()
    others: Counter[str] = Counter(str(o.get("type"))[:40] for o in orphans)
    open_id: str | None = None  # one reply is written block by block, on lines that share the reply's id
    for line, number in zip(lines, item.context["numbers"], strict=True):
        if line.get("type") not in ("user", "assistant") or not isinstance(line.get("message"), dict):
            others[str(line.get("type"))[:40]] += 1
            continue
        made = _messages(line, f"line {number}")
        reply = own_id(line["message"]) if line["type"] == "assistant" else None
        if reply is not None and reply == open_id and len(made) == 1:
            _merge(messages[-1], made[0])
        else:
            messages += made
        open_id = reply if messages and messages[-1]["role"] == "assistant" else None
    meta: dict[str, Any] = {"session_id": session, "lines": len(lines) + len(orphans)}
    meta |= {k: lines[0][k] for k in SESSION_KEYS if lines[0].get(k) is not None}
    meta |= {"sidechain": chain} if chain else {}
    meta |= {"other_lines": dict(others)} if others else {}
    model = next((m for line in lines if (m := _model(line)) is not None), None)
    meta |= {"model": model} if model else {}
    if summaries := [s for line in [*orphans, *lines] if isinstance(s := line.get("summary"), str)]:
        meta["summaries"] = summaries
    name = f"{session}/{chain}" if chain else session
    asked = (text_of(m["content"]) for m in messages if m["role"] == "user" and not m.get("is_meta"))
    return make(item, NAME, messages, meta=meta, id=name, task=next((t for t in asked if t.strip()), ""))


def _model(line: dict[str, Any]) -> str | None:
    message = line.get("message")
    model = message.get("model") if isinstance(message, dict) else None
    return model if isinstance(model, str) else None


def _messages(line: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The line's message, with its time; what the tool took where the line says so."""
    inner = line["message"]
    raw = {"role": inner.get("role", line["type"]), "content": inner.get("content"), "timestamp": line.get("timestamp")}
    made = unblock(raw, where)
    outcome = line.get("toolUseResult")
    took = (
        next((outcome[k] for k in ("durationMs", "totalDurationMs") if k in outcome), None)
        if isinstance(outcome, dict)
        else None
    )
    for message in made:
        if line.get("isMeta") is True:
            message["is_meta"] = True
        if message["role"] == "tool" and isinstance(took, int | float) and not isinstance(took, bool):
            message["duration_s"] = took / 1000
    return made


def _merge(message: dict[str, Any], more: dict[str, Any]) -> None:
    """Add the next blocks of the same reply."""
    for key in ("content", "reasoning_content"):
        a, b = message.get(key), more.get(key)
        if a and b:
            both_text = isinstance(a, str) and isinstance(b, str)
            message[key] = f"{a}\n{b}" if both_text else [*_parts(a), *_parts(b)]
        elif b:
            message[key] = b
    if calls := more.get("tool_calls"):
        message["tool_calls"] = [*message.get("tool_calls", []), *calls]


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
