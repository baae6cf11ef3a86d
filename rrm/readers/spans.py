"""One conversation from the model calls and tool runs of a trace (OpenTelemetry, LangSmith).

A call says what it read and what it wrote. A call that read a conversation so far continues it; the longest conversation
is the run, and tool results that no later call read are taken from the tools' own records.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rrm.readers.chat import as_text, text_of

Message = dict[str, Any]


@dataclass
class Call:
    """One call of a model."""

    read: list[Message]
    wrote: list[Message]
    start: float = 0.0
    """Seconds; calls are taken in this order."""
    inside_tool: bool = False
    """Made by a tool while it ran: an agent that is called as a tool."""


@dataclass
class ToolRun:
    """One run of a tool."""

    name: str
    id: str | None = None
    """The id of the model's call, where the record has it."""
    arguments: Any = None
    result: Any = None
    failed: bool = False
    start: float = 0.0
    duration_s: float | None = None
    timestamp: str | float | None = None


@dataclass
class Conversation:
    """What `assemble` found."""

    messages: list[Message]
    others: list[list[Message]] = field(default_factory=list)
    """Conversations beside it (sub-agents, retries) that say something it does not."""
    unmatched: list[ToolRun] = field(default_factory=list)
    """Tool runs that no message asked for."""

    def meta(self) -> dict[str, Any]:
        """What is left beside the messages, for a trajectory's meta."""
        runs = [{"name": r.name, "arguments": r.arguments, "result": r.result} for r in self.unmatched]
        return {k: v for k, v in (("other_conversations", self.others), ("other_tool_runs", runs)) if v}


def assemble(calls: Sequence[Call], runs: Sequence[ToolRun]) -> Conversation:
    """The longest conversation of a trace; of two as long the later one. No calls: no messages.

    What was said inside a tool's run is taken only where there is nothing else: the trace's outcome is its caller's.

    Args:
        calls: in any order; messages in the OpenAI shape.
        runs: in any order.
    """
    ends: dict[str, tuple[list[Message], bool]] = {}  # a conversation so far, by the digest of its messages
    for call in sorted(calls, key=lambda c: c.start):
        if not call.read and not call.wrote:
            continue
        digests = _prefixes([*call.read, *call.wrote])
        known = next((k for k in range(len(call.read), 0, -1) if digests[k - 1] in ends), 0)
        # what was said before is kept as it was recorded then: histories drop reasoning and times
        before, inside = ends.pop(digests[known - 1]) if known else ([], True)
        # two instrumentations may record one call: the first record went on from what was kept
        made = ([*before, *call.read[known:], *call.wrote], inside and call.inside_tool)
        if digests[-1] in ends:
            ends[digests[-1]] = (ends[digests[-1]][0], ends[digests[-1]][1] and made[1])
        else:
            ends[digests[-1]] = made
    if not ends:
        return Conversation([], unmatched=list(runs))
    found = [messages for messages, _ in ends.values()]
    outside = [k for k, (_, inside) in enumerate(ends.values()) if not inside]
    longest = max(outside or range(len(found)), key=lambda k: (len(found[k]), k))
    messages, unmatched = _filled(found[longest], sorted(runs, key=lambda r: r.start))
    held = Counter(map(_key, messages))
    others = [f for k, f in enumerate(found) if k != longest and Counter(map(_key, f)) - held]
    return Conversation(messages, others, unmatched)


def inside(parents: Mapping[str, str | None], tools: Collection[str]) -> set[str]:
    """The names of a trace's runs (or spans) that have a tool's run above them.

    Args:
        parents: name -> the name of what it stands under, which may be no run of the trace.
        tools: the names of the runs of tools.
    """
    known: dict[str, bool] = {}
    for name in parents:
        path = list[str]()
        at: str | None = name
        while at is not None and at not in known and at in parents:
            known[at] = False  # parents in a circle end here
            path.append(at)
            at = parents[at]
        below = at is not None and (known.get(at, False) or at in tools)
        for one in reversed(path):
            known[one] = below
            below = below or one in tools
    return {name for name in parents if known[name]}


def _key(message: Message) -> str:
    """What makes two records the same message: who said what and called what; not ids, times or reasoning."""
    calls = [[c.get("name"), _arguments(c.get("arguments"))] for c in message.get("tool_calls") or []]
    content = message.get("content")
    said = (
        content if isinstance(content, list) and not all(p.get("type") == "text" for p in content) else text_of(content)
    )
    return json.dumps([message["role"], said.strip() if isinstance(said, str) else said, calls], sort_keys=True)


def _arguments(raw: Any) -> Any:
    """Arguments as an object where their text is one."""
    if isinstance(raw, str):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            return raw.strip()
    return raw


def _prefixes(messages: list[Message]) -> list[str]:
    """The digest of the first k messages, for each k from 1."""
    digests, so_far = list[str](), b""
    for message in messages:
        so_far = hashlib.blake2b(so_far + _key(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        digests.append(so_far.hex())
    return digests


def _filled(messages: list[Message], runs: list[ToolRun]) -> tuple[list[Message], list[ToolRun]]:
    """The messages with the tools' results, times and names; and the runs that belong to none of them."""
    left = list(runs)
    filled = list[Message]()
    k = 0
    while k < len(messages):
        message = messages[k]
        filled.append(message)
        k += 1
        calls = message.get("tool_calls") or []
        if message["role"] != "assistant" or not calls:
            continue
        results = list[Message]()
        while k < len(messages) and messages[k]["role"] == "tool":
            results.append(dict(messages[k]))
            k += 1
        filled += _answers(calls, results, left)
    return filled, left


def _answers(calls: list[Message], results: list[Message], left: list[ToolRun]) -> list[Message]:
    """The results that were read, then those only the tools' records hold; runs that are used leave `left`."""
    answered = set[int]()
    for place, result in enumerate(results):
        number = result.get("tool_call_id")
        same = (k for k, c in enumerate(calls) if k not in answered and number is not None and c.get("id") == number)
        # a result without an id (or with one of its own) answers the call at its place
        free = place if number is None and place < len(calls) and place not in answered else None
        at = next(same, free)
        if at is None:
            continue
        answered.add(at)
        if calls[at].get("name"):
            result.setdefault("name", calls[at]["name"])
        if (run := _run_of(calls[at], left)) is not None:
            for key, value in (("duration_s", run.duration_s), ("timestamp", run.timestamp)):
                if value is not None:
                    result.setdefault(key, value)
            if run.failed:
                result.setdefault("is_error", True)
    for k, call in enumerate(calls):
        if k not in answered and (run := _run_of(call, left)) is not None:
            results.append(_result(call, run))
    return results


def _run_of(call: Message, left: list[ToolRun]) -> ToolRun | None:
    """The run of a call: of its id, else the first without an id that has its name and does not contradict its arguments."""
    name, asked = call.get("name"), _arguments(call.get("arguments"))
    by_id = (r for r in left if r.id is not None and r.id == call.get("id"))
    by_name = (
        r for r in left if r.id is None and r.name == name and (r.arguments is None or _arguments(r.arguments) == asked)
    )
    run = next(by_id, None) or next(by_name, None)
    if run is not None:
        left.remove(run)
    return run


def _result(call: Message, run: ToolRun) -> Message:
    message: Message = {"role": "tool", "content": "" if run.result is None else as_text(run.result)}
    number = call.get("id") or run.id
    more = (("tool_call_id", number), ("name", call.get("name") or run.name))
    message |= {k: v for k, v in (*more, ("duration_s", run.duration_s), ("timestamp", run.timestamp)) if v is not None}
    return message | ({"is_error": True} if run.failed else {})


def seconds(time: Any) -> float | None:
    """A time as seconds since 1970: ISO 8601 text (UTC where it names no zone), or a number of seconds; None where it is neither."""
    if isinstance(time, bool):
        return None
    try:
        if isinstance(time, int | float):
            return float(time)
        found = datetime.fromisoformat(time) if isinstance(time, str) else None
        return found and (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
