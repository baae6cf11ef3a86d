"""`claude_code`: Claude Code's session files, and what it prints with `--output-format stream-json`.

A session is one trajectory, and so is each sidechain (a sub-agent's run), which names its session. One reply is one `message.id`: a
block that is repeated, or grows, counts once. The run is the branch of the last message; what the user took back is in
`meta["taken_back"]`, Claude Code's own words in `meta["errors"]`, `meta["notes"]` or system messages; the rest in `meta["other_lines"]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.anthropic import unblock
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.chat import as_text, text_of, tool_list
from rrm.readers.left import PARENT

NAME = "claude_code"
MARKS = ("type", "sessionId|session_id", "message|uuid|subtype")
OVER_FOLDER = False
ORPHANS = {"summary", "file-history-snapshot", "queue-operation", "progress", "custom-title", "last-prompt"}
"""Line types that may lack a session id; they belong to the session beside them in the file."""
MARKED = {"isMeta": "is_meta", "isCompactSummary": "is_summary"}
"""Marks of a user's line that Claude Code wrote → the field of its message."""
SESSION_KEYS = ("version", "cwd", "gitBranch", "model", "permissionMode", "claude_code_version")
STREAMED = {"system", "assistant", "user", "result", "stream_event"}
"""Types of the stream's lines."""
OF_THE_REPLY = ("id", "usage", "stop_reason")
"""Fields of a reply that its message keeps."""
Line = dict[str, Any]
LOCAL = ("<command-name>", "<local-command-")
"""Beginnings of lines about Claude Code's own commands, which no model reads as a request."""


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
    """Group a file's lines: each session, then each of its sidechains, in order of appearance.

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
        elif not (named := [v for k in ("sessionId", "session_id") if isinstance(v := item.value.get(k), str)]):
            orphans.append(item)
        else:
            runs.setdefault((named[0], _chain(item.value, roots)), []).append(item)
    if not runs and orphans:
        lines = f"{len(orphans)} lines without a sessionId"
        yield ReadError(path, orphans[0].line, f"no session in this file, only {lines}: nothing to judge")
    for number, ((session, chain), lines) in enumerate(runs.items()):
        context: dict[str, Any] = {"session": session, "chain": chain, "numbers": [line.line for line in lines]}
        context["orphans"] = [o.value for o in orphans] if number == 0 else []
        context |= {"lines": len(lines) + len(context["orphans"]), "lines_of": f"session {session[:40]}"}
        yield SourceItem([line.value for line in lines], path, lines[0].line, context=context)


def _chain(line: dict[str, Any], roots: dict[str, str]) -> str:
    """Return '' for the main conversation; for a sidechain its agent's id, call or first uuid."""
    if isinstance(call := line.get("parent_tool_use_id"), str):
        return call
    if line.get("isSidechain") is not True:
        return ""
    agent = line.get("agentId")
    uuid, parent = str(line.get("uuid")), str(line.get("parentUuid"))
    root = agent if isinstance(agent, str) and agent else roots.get(parent, uuid)
    roots[uuid] = root
    return root


def parse(item: SourceItem) -> Trajectory:
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
            content = line["message"].get("content")
            beside.setdefault(name, []).append(
                {"errors": text_of(content) or content, "notes": content}.get(name, line["message"])
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
    meta: dict[str, Any] = {"session_id": session, "lines": item.context["lines"]}
    meta |= {k: lines[0][k] for k in SESSION_KEYS if lines[0].get(k) is not None}
    meta |= {"sidechain": chain, PARENT: {"session_id": session}} if chain else {}
    meta |= {"results": results} if results else {}
    meta |= {"other_lines": dict(others)} if others else {}
    meta |= beside
    models = (line["message"].get("model") for line in lines if isinstance(line.get("message"), dict))
    model = next((m for m in models if isinstance(m, str) and m != "<synthetic>"), None)
    meta |= {"model": model} if model else {}
    if summaries := [s for line in [*orphans, *lines] if isinstance(s := line.get("summary"), str)]:
        meta["summaries"] = summaries
    name = f"{session}/{chain}" if chain else session
    prompts = (text_of(m["content"]) for m in messages if m["role"] == "user")
    task = next((t for t in prompts if t.strip()), "")
    offered = next((line["tools"] for line in lines if line.get("subtype") == "init" and "tools" in line), None)
    # a stream does not hold what was asked: sessions of no known question are no attempts at one
    question = None if task else name
    return make(
        item, NAME, messages, meta=meta, id=name, task=task, question_id=question, tools=tool_list(offered) or None
    )


def _beside(line: dict[str, Any], is_gone: bool, has_begun: bool) -> str | None:
    """Return the meta field of a message; None for the run's own. Notes before the task go to meta."""
    if is_gone:
        return "taken_back"
    if is_of_the_harness(line):
        return "errors"
    text = text_of(line["message"].get("content")).lstrip()
    if line["type"] == "user" and (text.startswith(LOCAL) or (line.get("isMeta") is True and not has_begun)):
        return "notes"
    return None


def _messages(line: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the line's message, with its time and the tool's duration."""
    inner = line["message"]
    raw = {"role": inner.get("role", line["type"]), "content": inner.get("content"), "timestamp": line.get("timestamp")}
    messages = unblock(raw, where)
    if line["type"] == "assistant":
        messages[0] |= {k: inner[k] for k in OF_THE_REPLY if inner.get(k) is not None}
    outcome = line.get("toolUseResult")
    took = (
        next((outcome[k] for k in ("durationMs", "totalDurationMs") if k in outcome), None)
        if isinstance(outcome, dict)
        else None
    )
    for message in messages:
        if message["role"] == "user" and (marks := {MARKED[k]: True for k in MARKED if line.get(k) is True}):
            message |= {"role": "system", **marks}
        if message["role"] == "tool" and isinstance(took, int | float) and not isinstance(took, bool):
            message["duration_s"] = took / 1000
    return messages


# ---- branches --------------------------------------------------------------------------------------------------------


def abandoned(lines: list[Line]) -> set[int]:
    """Return the indices of lines taken back: those below a fork (an edited prompt, a rewind, a repeated
    reply) that do not lead to the last message. Results, and pieces of a reply that goes on, are no forks."""
    nodes = [(str(line["uuid"]), _parent(line), k) for k, line in enumerate(lines) if line.get("uuid") is not None]
    parents = {uuid: parent for uuid, parent, _ in nodes}
    last = next((str(x["uuid"]) for x in reversed(lines) if _is_message(x) and x.get("uuid") is not None), None)
    branch, current = set[str](), last
    while current is not None and current not in branch:
        branch.add(current)
        current = parents.get(current)
    # a log that names no parents has no branches
    rootless = any(p is None and lines[k].get("type") == "assistant" for _, p, k in nodes)
    begins = next((n for n in nodes if n[0] in branch and n[1] is None and _is_prompt(lines[n[2]])), None)
    replies: dict[str | None, set[str | None]] = {}
    for uuid, parent, k in nodes:
        if uuid in branch:
            replies.setdefault(parent, set()).add(_reply(lines[k]))
            replies.setdefault(uuid, set()).add(_reply(lines[k]))
    gone, indices = set[str](), set[int]()
    for uuid, parent, k in nodes:
        if uuid in branch:
            continue
        line = lines[k]
        if parent is None:
            fork = begins is not None and not rootless and k < begins[2] and _is_prompt(line)
        else:
            fork = parent in replies and _is_turn(line) and _reply(line) not in replies[parent] - {None}
        if fork or parent in gone:
            gone.add(uuid)
            indices.add(k)
        elif parent in branch:
            branch.add(uuid)
            replies.setdefault(uuid, set()).add(_reply(line))
    return indices


def _parent(line: Line) -> str | None:
    """Return the uuid of the line before; behind a compaction the one that it names."""
    parent = line.get("parentUuid")
    parent = line.get("logicalParentUuid") if parent is None else parent
    return None if parent is None else str(parent)


def _is_message(line: Line) -> bool:
    return line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)


def _reply(line: Line) -> str | None:
    return own_id(line["message"]) if line.get("type") == "assistant" and _is_message(line) else None


def _is_turn(line: Line) -> bool:
    """Return whether a line begins something: the user's request, or a reply."""
    return _is_message(line) and not is_of_the_harness(line) and (line["type"] == "assistant" or _is_prompt(line))


def is_of_the_harness(line: Line) -> bool:
    """Return whether an agent's line is Claude Code's own: an API error, or a stand-in for a reply."""
    return line.get("isApiErrorMessage") is True or line["message"].get("model") == "<synthetic>"


def _is_prompt(line: Line) -> bool:
    """Return whether a line is the user's own: no result, nothing that Claude Code put there."""
    if not _is_message(line) or line["type"] != "user" or line.get("isMeta") is True or line.get("isCompactSummary"):
        return False
    return not any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks_of(line["message"]))


# ---- replies ---------------------------------------------------------------------------------------------------------


class Replies:
    """Joins the lines of a reply: those of one `message.id`, wherever its blocks stand.

    A gateway may give every reply the same id. It shows by a block that is new behind another prompt, in another request, or said when
    all calls were answered; such an id joins only lines that follow each other, or come while a call waits for its result.
    """

    def __init__(self, lines: list[Line]) -> None:
        self._constant = _constant(lines)
        self._known: dict[str, Line] = {}
        self._last: str | None = None
        self._waiting: dict[str, set[str]] = {}
        self._asked: dict[str, str] = {}
        """Call → the reply that made it."""

    def add_result(self, line: Line) -> None:
        """Add a line that is no reply; its results end the wait of their calls."""
        self._last = None
        for number in _answered(line) & self._asked.keys():
            self._waiting[self._asked[number]].discard(number)

    def taken(self, line: Line) -> Line | None:
        """Return the line where it begins a reply; else add it to its reply and return None."""
        name = _reply(line)
        if name is None:
            self._last = None
            return line
        message, calls = line["message"], _calls(blocks_of(line["message"]))
        reply = self._known.get(name)
        if reply is not None and name in self._constant and name != self._last and not self._waiting[name]:
            reply = reply if calls & _calls(reply["message"]["content"]) else None
        self._last = name
        self._asked |= dict.fromkeys(calls, name)
        if reply is not None:
            self._waiting[name] |= calls - _calls(reply["message"]["content"])
            _add(reply, message)
            return None
        self._waiting[name] = set(calls)
        self._known[name] = {**line, "message": {**message, "content": blocks_of(message)}}
        return self._known[name]


def _constant(lines: list[Line]) -> set[str]:
    """Return the ids that more than one reply has."""
    shared, prompts, callers = set[str](), 0, dict[str, str]()
    replies: dict[str, tuple[int, Any, list[Any], set[str], set[str]]] = {}
    for line in lines:
        if not _is_message(line):
            continue
        if (name := _reply(line)) is None:
            prompts += _is_prompt(line)
            for number in _answered(line) & callers.keys():
                replies[callers[number]][-1].discard(number)
            continue
        if name in shared:
            continue
        begun, request, written, calls, waiting = replies.setdefault(
            name, (prompts, line.get("requestId"), [], set(), set())
        )
        blocks = [b for b in blocks_of(line["message"]) if not _calls([b]) & calls]
        fresh = [b for b in blocks if _calls([b]) or not any(_is_same(b, earlier) for earlier in written)]
        speaks = any(not isinstance(b, dict) or b.get("type") != "tool_use" for b in fresh)
        other = prompts > begun or (None not in (request, again := line.get("requestId")) and again != request)
        if fresh and (written or calls) and (other or (speaks and calls and not waiting)):
            shared.add(name)
        written += [b for b in fresh if not _calls([b])]
        calls |= _calls(fresh)
        waiting |= _calls(fresh)
        callers |= dict.fromkeys(_calls(fresh), name)
    return shared


def _calls(blocks: list[Any]) -> set[str]:
    return {as_text(b["id"]) for b in blocks if isinstance(b, dict) and b.get("id") is not None}


def _answered(line: Line) -> set[str]:
    results = (b for b in blocks_of(line["message"]) if isinstance(b, dict) and b.get("tool_use_id") is not None)
    return {as_text(b["tool_use_id"]) for b in results}


def blocks_of(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _add(reply: Line, more: dict[str, Any]) -> None:
    """Add the blocks of one more line to a reply, replacing repeated ones; the later usage counts."""
    message = reply["message"]
    content, taken = message["content"], set[int]()
    before = len(content)
    for block in blocks_of(more):
        same = next((k for k in range(before) if k not in taken and _is_same(content[k], block)), None)
        if same is None:
            content.append(block)
            continue
        taken.add(same)
        if _length(block) >= _length(content[same]):
            content[same] = block
    message |= {k: more[k] for k in OF_THE_REPLY if more.get(k) is not None}


def _is_same(block: Any, other: Any) -> bool:
    """Return whether two blocks are one: of one id, or one is the other's beginning."""
    if not isinstance(block, dict) or not isinstance(other, dict) or block.get("type") != other.get("type"):
        return block == other
    if block.get("id") is not None or other.get("id") is not None:
        return block.get("id") == other.get("id")
    field = "thinking" if block.get("type") == "thinking" else "text"
    a, b = block.get(field), other.get(field)
    return (a.startswith(b) or b.startswith(a)) if isinstance(a, str) and isinstance(b, str) else block == other


def _length(block: Any) -> int:
    return len(as_text(block))
