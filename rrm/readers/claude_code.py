"""`claude_code`: session files of Claude Code, and what it prints with `--output-format stream-json`. A session is one trajectory.

Lines are grouped by their session's id; each sidechain (a sub-agent's run) becomes a trajectory of its own that names its session. One reply
is one `message.id`, wherever its blocks stand: a block that is written again, or grows, counts once. The run is the branch of the last
message; what the user took back (an edited prompt, a rewind) is in `meta["taken_back"]`. What Claude Code says itself is no step of the agent
and no word of the user's: errors of the API are in `meta["errors"]`, its notes in `meta["notes"]` or messages of the role system. Lines that are no
messages (summaries, snapshots, progress) are counted by type in `meta["other_lines"]`; summaries keep their text, and the stream's `result` its fields. All lines of a file are held until its end, because a session's last line is only known there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.anthropic import unblock
from rrm.readers.base import SourceItem, describe, make, printable
from rrm.readers.chat import text_of, tool_list
from rrm.readers.claude_session import OF_THE_REPLY, Replies, abandoned, is_of_the_harness
from rrm.readers.left import PARENT

NAME = "claude_code"
MARKS = ("type", "sessionId|session_id", "message|uuid|subtype")
OVER_FOLDER = False
ORPHANS = {"summary", "file-history-snapshot", "queue-operation", "progress", "custom-title", "last-prompt"}
"""Line types that may come without a session id; they belong to the session beside them in the file."""
MARKED = {"isMeta": "is_meta", "isCompactSummary": "is_summary"}
"""Marks of a user's line that Claude Code wrote → the field of its message."""
SESSION_KEYS = ("version", "cwd", "gitBranch", "model", "permissionMode", "claude_code_version")
STREAMED = {"system", "assistant", "user", "result", "stream_event"}
"""Types of the stream's lines."""
LOCAL = ("<command-name>", "<local-command-")
"""How lines begin that tell of a command of Claude Code's own, which no model reads as asked."""


def sniff(value: Any) -> bool:
    """A line with a type and a session, or one of the types that need none."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if isinstance(value.get("sessionId"), str):
        return "message" in value or "uuid" in value or value["type"] in ORPHANS
    if isinstance(value.get("session_id"), str) and value["type"] in STREAMED:
        return any(k in value for k in ("message", "subtype", "event"))
    return (value["type"] == "summary" and "leafUuid" in value) or (
        value["type"] == "file-history-snapshot" and "snapshot" in value
    )


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """All lines of one file as items: each session, then each of its sidechains, in order of appearance.

    An item's value is the list of its lines; its context says which session and chain they are, each line's number, and
    the first one's also holds the lines that name no session.
    """
    runs: dict[tuple[str, str], list[SourceItem]] = {}
    roots: dict[str, str] = {}
    orphans = list[SourceItem]()
    path = "-"
    for item in items:
        path = item.path
        if not isinstance(item.value, dict):
            yield ReadError(item.path, item.line, f"a session line is an object, got {type(item.value).__name__}")
        elif (session := _session(item.value)) is None:
            orphans.append(item)
        else:
            runs.setdefault((session, _chain(item.value, roots)), []).append(item)
    if not runs and orphans:
        lines = f"{len(orphans)} lines without a sessionId"
        yield ReadError(path, orphans[0].line, f"no session in this file, only {lines}: nothing to judge")
    for number, ((session, chain), lines) in enumerate(runs.items()):
        context: dict[str, Any] = {"session": session, "chain": chain, "numbers": [line.line for line in lines]}
        context["orphans"] = [o.value for o in orphans] if number == 0 else []
        yield SourceItem([line.value for line in lines], path, lines[0].line, context=context)


def parse(item: SourceItem) -> Trajectory:
    """One session or sidechain, as `gather` gives it."""
    count = len(item.value) + len(item.context["orphans"])
    try:
        return _trajectory(item)
    except ValueError as error:
        counted = printable(f"({count} lines of session {item.context['session'][:40]})")
        raise ValueError(f"{describe(error)} {counted}") from error


def _session(line: dict[str, Any]) -> str | None:
    return next((line[k] for k in ("sessionId", "session_id") if isinstance(line.get(k), str)), None)


def _chain(line: dict[str, Any], roots: dict[str, str]) -> str:
    """'' for the main conversation; for a sidechain the agent's id, the call that started it, or the uuid of its first line."""
    if isinstance(call := line.get("parent_tool_use_id"), str):
        return call
    if line.get("isSidechain") is not True:
        return ""
    agent = line.get("agentId")
    uuid, parent = str(line.get("uuid")), str(line.get("parentUuid"))
    root = agent if isinstance(agent, str) and agent else roots.get(parent, uuid)
    roots[uuid] = root
    return root


def _trajectory(item: SourceItem) -> Trajectory:
    lines: list[dict[str, Any]] = item.value
    session, chain, orphans = item.context["session"], item.context["chain"], item.context["orphans"]
    others: Counter[str] = Counter(str(o.get("type"))[:40] for o in orphans)
    spoken, noted = list[tuple[dict[str, Any], str]](), list[tuple[dict[str, Any], str]]()
    replies, results = Replies(lines), list[dict[str, Any]]()
    gone, beside = abandoned(lines), dict[str, list[Any]]()
    for k, (line, number) in enumerate(zip(lines, item.context["numbers"], strict=True)):
        if line.get("type") not in ("user", "assistant") or not isinstance(line.get("message"), dict):
            if line.get("type") == "result":
                results.append(
                    {k: v for k, v in line.items() if k not in ("type", "session_id", "uuid") and v is not None}
                )
            else:
                others[str(line.get("type"))[:40]] += 1
        elif (name := _beside(line, k in gone, bool(spoken))) is not None:
            held = line["message"].get("content")
            beside.setdefault(name, []).append(
                {"errors": text_of(held) or held, "notes": held}.get(name, line["message"])
            )
            noted += [({**line, "isMeta": True}, f"line {number}")] if name == "notes" else []
        elif line["type"] == "user":
            replies.add_result(line)
            spoken.append((line, f"line {number}"))
        elif (begun := replies.taken(line)) is not None:
            spoken.append((begun, f"line {number}"))
    if not spoken:  # a session of Claude Code's own commands alone is a run without a step
        spoken = noted
    messages = [message for line, where in spoken for message in _messages(line, where)]
    meta: dict[str, Any] = {"session_id": session, "lines": len(lines) + len(orphans)}
    meta |= {k: lines[0][k] for k in SESSION_KEYS if lines[0].get(k) is not None}
    meta |= {"sidechain": chain, PARENT: {"session_id": session}} if chain else {}
    meta |= {"results": results} if results else {}
    meta |= {"other_lines": dict(others)} if others else {}
    meta |= beside
    model = next((m for line in lines if (m := _model(line)) is not None), None)
    meta |= {"model": model} if model else {}
    if summaries := [s for line in [*orphans, *lines] if isinstance(s := line.get("summary"), str)]:
        meta["summaries"] = summaries
    name = f"{session}/{chain}" if chain else session
    asked = (text_of(m["content"]) for m in messages if m["role"] == "user")
    task = next((t for t in asked if t.strip()), "")
    offered = next((line["tools"] for line in lines if line.get("subtype") == "init" and "tools" in line), None)
    # a stream does not hold what was asked: sessions of no known question are no attempts at one
    question = None if task else name
    return make(
        item, NAME, messages, meta=meta, id=name, task=task, question_id=question, tools=tool_list(offered) or None
    )


def _model(line: dict[str, Any]) -> str | None:
    message = line.get("message")
    model = message.get("model") if isinstance(message, dict) else None
    return model if isinstance(model, str) and model != "<synthetic>" else None


def _beside(line: dict[str, Any], is_gone: bool, has_begun: bool) -> str | None:
    """The field of the meta that a message belongs in; None for one of the run. Notes before the task head no prompt."""
    if is_gone:
        return "taken_back"
    if is_of_the_harness(line):
        return "errors"
    text = text_of(line["message"].get("content")).lstrip()
    if line["type"] == "user" and (text.startswith(LOCAL) or (line.get("isMeta") is True and not has_begun)):
        return "notes"
    return None


def _messages(line: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The line's message, with its time; what the tool took where the line says so."""
    inner = line["message"]
    raw = {"role": inner.get("role", line["type"]), "content": inner.get("content"), "timestamp": line.get("timestamp")}
    made = unblock(raw, where)
    if line["type"] == "assistant":
        made[0] |= {k: inner[k] for k in OF_THE_REPLY if inner.get(k) is not None}
    outcome = line.get("toolUseResult")
    took = (
        next((outcome[k] for k in ("durationMs", "totalDurationMs") if k in outcome), None)
        if isinstance(outcome, dict)
        else None
    )
    for message in made:
        if message["role"] == "user" and (marks := {MARKED[k]: True for k in MARKED if line.get(k) is True}):
            message |= {"role": "system", **marks}
        if message["role"] == "tool" and isinstance(took, int | float) and not isinstance(took, bool):
            message["duration_s"] = took / 1000
    return made
