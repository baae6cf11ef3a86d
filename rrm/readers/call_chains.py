"""Which of a file's model calls are one conversation.

A call goes on from another where its request begins with that one's request and answer, message by message (role, text, calls and
their ids; reasoning is left out, for clients do not send it back). The longest such beginning counts, and each end is continued once:
a second continuation is a run of its own, with the history that its own request holds.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rrm.readers.call_bodies import IDS, LoggedCall, Message
from rrm.readers.chat import as_text
from rrm.readers.responses import no_order
from rrm.readers.spans import seconds

PREFIX, PREVIOUS = "prefix", "previous_response_id"
SHARED = {
    "conversationid": "conversation_id",
    "threadid": "thread_id",
    "sessionid": "session_id",
    "traceid": "trace_id",
}
"""The words of `IDS` as people write them."""
TOLD = ("system", "developer")


@dataclass
class CallChain:
    """Calls that go on from one another, in order."""

    messages: list[Message]
    calls: list[LoggedCall]
    joined_by: str | None = None
    """What joined them: `prefix`, the name of a shared id, `previous_response_id`; None for a single call."""
    id: str | None = None
    """The id that joined them."""
    lengths: dict[str, int] = field(default_factory=dict)
    """Response id -> how many messages there were after it."""


class _Ends:
    """Where runs end, by digest; runs that begin with the same calls (temperature 0) have the same end, and each is continued."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Any, bytes], deque[CallChain]] = {}

    def put(self, end: tuple[Any, bytes], run: CallChain) -> None:
        """Remember where a run ends."""
        self._runs.setdefault(end, deque()).append(run)

    def take(self, end: tuple[Any, bytes]) -> CallChain | None:
        """The first run that ends there, which is about to go on."""
        waiting = self._runs.get(end)
        return waiting.popleft() if waiting else None


def chain(calls: list[LoggedCall]) -> list[CallChain]:
    """The calls as runs, in order of their first appearance; each call is in exactly one."""
    _in_conversations(calls)
    keys = _keys(calls)
    runs, ends, replied = list[CallChain](), _Ends(), dict[str, CallChain]()
    for at in _order(calls):
        call = calls[at]
        if call.custom_id is not None:  # calls of a batch know nothing of each other
            run = CallChain([*(call.request or []), *call.reply], [call])
            runs.append(run)
        elif call.previous_id in replied:
            run = _after(replied[call.previous_id], call, runs)
        else:
            run = _on(call, keys[at], ends, runs)
        if call.response_id is not None:
            run.lengths[call.response_id] = len(run.messages)
            replied[call.response_id] = run
    place = {id(call): at for at, call in enumerate(calls)}
    return sorted(runs, key=lambda run: min(place[id(call)] for call in run.calls))


def _on(call: LoggedCall, key: tuple[str, str] | None, ends: _Ends, runs: list[CallChain]) -> CallChain:
    """Put a call that holds its history on the end that it goes on from, or begin a run."""
    free = key is not None  # calls that share an id may change their system prompt
    request = call.request or []
    digests = _digests([*request, *call.reply], free)
    asked = [(at, d) for at, d in digests if at <= len(request)]
    run = None
    for at, digest in reversed(asked):
        if (run := ends.take((key, digest))) is not None:
            run.messages += [*request[at:], *call.reply]
            run.calls.append(call)
            run.joined_by, run.id = (PREFIX, None) if key is None else (SHARED[key[0]], key[1])
            break
    if run is None:
        run = CallChain([*request, *call.reply], [call])
        runs.append(run)
    if digests:
        ends.put((key, digests[-1][1]), run)
    return run


def _after(run: CallChain, call: LoggedCall, runs: list[CallChain]) -> CallChain:
    """Put a call whose history the server holds after the response that it names."""
    assert call.previous_id is not None
    length = run.lengths[call.previous_id]
    told = {as_text(m.get("content")) for m in run.messages[:length] if m["role"] in TOLD}
    new = [m for m in call.request or [] if m["role"] not in TOLD or as_text(m.get("content")) not in told]
    if length < len(run.messages):  # another call went on from there: this one branches off
        run = CallChain(run.messages[:length], [])
        runs.append(run)
    run.messages += [*new, *call.reply]
    run.calls.append(call)
    run.joined_by = PREVIOUS
    return run


def _order(calls: list[LoggedCall]) -> list[int]:
    """Every call after those that it may go on from: shorter requests first, failed ones before their retry."""
    at_id = {c.response_id: i for i, c in enumerate(calls) if c.response_id is not None}
    after: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        if call.previous_id in at_id and at_id[call.previous_id] != i:
            after.setdefault(at_id[call.previous_id], []).append(i)
    later = {i for following in after.values() for i in following}
    first = [i for i in range(len(calls)) if i not in later]
    order, seen = list[int](), set[int]()
    for start in [*sorted(first, key=lambda i: _size(calls[i])), *sorted(later)]:  # later: circles, which begin nowhere
        queue = deque([start])
        while queue:
            i = queue.popleft()
            if i not in seen:
                seen.add(i)
                order.append(i)
                queue.extend(after.get(i, []))
    return order


def _size(call: LoggedCall) -> tuple[int, bool]:
    return len([m for m in call.request or [] if m["role"] not in TOLD]), bool(call.reply)


def _in_conversations(calls: list[LoggedCall]) -> None:
    """Responses of one conversation that the server keeps follow one another in the order of their creation; where one of several has
    no time, none has a place."""
    kept: dict[str, list[LoggedCall]] = {}
    for call in calls:
        if call.conversation is not None and call.response_id is not None:
            kept.setdefault(call.conversation, []).append(call)
    for talk, group in kept.items():
        made = {id(call): time for call in group if (time := seconds(call.body.get("created_at"))) is not None}
        alone = [call for call in group if call.previous_id is None]
        if len(made) == len(group):
            group.sort(key=lambda call: made[id(call)])
            for before, call in pairwise(group):
                call.previous_id = call.previous_id or before.response_id
        elif len(alone) > 1:
            timeless = next(call for call in group if id(call) not in made)
            why = no_order(talk, len(group), timeless.body.get("created_at"), timeless.line, "calls")
            for call in alone:
                call.unordered = why


def _keys(calls: list[LoggedCall]) -> list[tuple[str, str] | None]:
    """For each call the first of its ids that another call has, too."""
    counts = Counter(pair for call in calls for pair in call.ids.items())
    return [
        next(((k, call.ids[k]) for k in IDS if k in call.ids and counts[k, call.ids[k]] > 1), None) for call in calls
    ]


def digest_of(messages: list[Message]) -> bytes:
    """What of messages is the same when a client sends them back; empty for none."""
    return next((digest for _, digest in reversed(_digests(messages, False))), b"")


def _digests(messages: list[Message], free: bool) -> list[tuple[int, bytes]]:
    """(how many messages, digest of them) for each beginning that ends in a message that counts."""
    found, digest = list[tuple[int, bytes]](), b""
    for at, message in enumerate(messages, 1):
        if not (free and message["role"] in TOLD):
            digest = hashlib.blake2b(digest + _mark(message), digest_size=16).digest()
            found.append((at, digest))
    return found


def _mark(message: Message) -> bytes:
    """What of a message is the same when a client sends it back."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content or ""]
    texts = [p if isinstance(p, str) else _part(p) for p in parts]
    calls = [[c.get("name"), _arguments(c.get("arguments")), c.get("id")] for c in message.get("tool_calls") or []]
    role = "system" if message["role"] in TOLD else message["role"]
    said = [role, "\n".join(texts).strip(), calls, message.get("tool_call_id")]
    return json.dumps(said, sort_keys=True).encode("ascii") + b"\0"


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return part["text"]
    return json.dumps({k: v for k, v in part.items() if k != "cache_control"}, sort_keys=True)


def _arguments(arguments: Any) -> Any:
    """Arguments without the spaces of their JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
