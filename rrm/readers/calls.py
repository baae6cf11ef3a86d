"""`calls`: logs of one model call per line (Chat Completions, Responses, Anthropic, Bedrock).

The calls of one conversation are one run: a call continues an earlier one where its request begins with that one's request and answer,
message by message (role, text, calls and their ids). The longest match counts, and each end is continued once. Calls that share an id (a
trace's, a session's) are compared among themselves, and their system prompt may change; where the server keeps the history,
`previous_response_id` joins them, or their conversation's id in the order of creation. A call logged twice is one. `meta["joined_by"]`
names the join.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, describe, make, own_id, text_field, without
from rrm.readers.call_bodies import IDS, LoggedCall, Message, locate, read_call
from rrm.readers.chat import as_text
from rrm.readers.outcomes import find_outcome
from rrm.readers.responses import PREVIOUS, another, headless, is_same, no_order, once
from rrm.readers.spans import arguments_of, seconds

NAME = "calls"
MARKS = (
    "request|request_body|input|custom_id|body",
    "request.messages|request_body.messages|input[].role|body.messages",
    "response|response_body|output",
)
OVER_FOLDER = False
OF_THE_CALL = ("success", "is_success", "succeeded", "passed")
"""Fields about a call's success, not the run's."""
PREFIX = "prefix"
SHARED = {
    "conversationid": "conversation_id",
    "threadid": "thread_id",
    "sessionid": "session_id",
    "traceid": "trace_id",
}
"""Usual spellings of `IDS`."""
TOLD = ("system", "developer")


def sniff(value: Any) -> bool:
    """A record with a request and its answer, or one line of a batch's file."""
    return locate(value) is not None


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """The calls of one file as runs; an item's value is the last call's record, its context the run."""
    calls, path = list[LoggedCall](), "-"
    for item in items:
        path = item.path
        try:
            calls.append(read_call(item.value, item.line))
        except (ValueError, RecursionError) as error:
            yield ReadError(item.path, item.line, f"{describe(error)} (format {NAME})")
    complete = list[LoggedCall]()
    for call in _joined_batches(calls):
        if call.request is not None:
            complete.append(call)
            continue
        yield ReadError(
            path,
            call.line,
            f"an answer whose request (custom_id {call.custom_id!r:.60}) is not in this file: give both in one, as "
            f"`cat input.jsonl output.jsonl` does (format {NAME})",
        )
    complete, others = _unique(complete, path)
    yield from others
    response_ids = {call.response_id for call in complete}
    for run in chain(complete):
        first = run.calls[0]
        if why := next((call.unordered for call in run.calls if call.unordered is not None), None):
            yield ReadError(path, first.line, why)
            continue
        if first.previous_id is not None and first.previous_id not in response_ids:
            yield headless(SourceItem(first.record, path, first.line), first.previous_id, len(run.calls) - 1, NAME)
            continue
        yield SourceItem(run.calls[-1].record, path, run.calls[0].line, context={"run": run})


def parse(item: SourceItem) -> Trajectory:
    """One run, as `gather` gives it (or one record alone)."""
    run = item.context.get("run")
    if run is None:
        call = read_call(item.value, item.line)
        run = CallChain([*(call.request or []), *call.reply], [call])
    last: LoggedCall = run.calls[-1]
    failed = sum(not call.reply for call in run.calls)
    meta = without({k: v for k, v in last.meta.items() if k != "question_id" or own_id(last.record, k) is None})
    meta |= {"calls": len(run.calls), "lines": sum(call.lines for call in run.calls)}
    meta |= {"joined_by": run.joined_by} if run.joined_by else {}
    meta |= {"failed_calls": failed} if failed else {}
    tools = next((call.tools for call in reversed(run.calls) if call.tools is not None), None)
    ended = ({k: v for k, v in call.record.items() if k not in OF_THE_CALL} for call in reversed(run.calls))
    outcome = next((label for record in ended if (label := find_outcome(record))), None)
    id = run.id or own_id(last.record, "custom_id", "id", "request_id", "call_id") or last.response_id
    task, question = text_field(last.record, "question"), own_id(last.record, "question_id")
    return make(
        item, NAME, run.messages, meta=meta, id=id, task=task, question_id=question, outcome=outcome, tools=tools
    )


def _joined_batches(calls: list[LoggedCall]) -> list[LoggedCall]:
    """Return the calls, with those of a batch joined from their two lines."""
    answers: dict[str | None, list[LoggedCall]] = {}
    for call in calls:
        if call.request is None:
            answers.setdefault(call.custom_id, []).append(call)
    complete = list[LoggedCall]()
    for call in calls:
        if call.request is None:
            continue
        if not call.reply and call.custom_id is not None and (fitting := answers.get(call.custom_id)):
            call.answer(fitting.pop(0))
        complete.append(call)
    return complete + [answer for left in answers.values() for answer in left]


def _unique(calls: list[LoggedCall], path: str) -> tuple[list[LoggedCall], list[ReadError]]:
    """Keep one call per answer; return also the answers lost by that, as errors.

    A response's id is what others continue, so two of one id are an error where they differ (`responses.once`). Ids of other APIs name
    nothing, and some servers give one to all answers: there only calls that say the same are one.
    """
    unique, dropped = once(calls, lambda call: call.response_id, lambda call: call.body)
    errors = list[ReadError]()
    for call, stays in dropped:
        if is_same(call.body, stays.body) and digest_of(call.request or []) == digest_of(stays.request or []):
            stays.lines += call.lines
        else:
            errors.append(ReadError(path, call.line, another(call.response_id, "request or output", stays.line, NAME)))
    named = Counter(map(_answer, unique))
    result, first = list[LoggedCall](), dict[tuple[str, bytes], LoggedCall]()
    for call in unique:
        same = call
        if (name := _answer(call)) is not None and named[name] > 1:
            same = first.setdefault((name, digest_of([*(call.request or []), *call.reply])), call)
        if same is call:
            result.append(call)
        else:
            same.lines += call.lines
    return result, errors


def _answer(call: LoggedCall) -> str | None:
    """Return an answer's id with its time, where the id is not a response's."""
    id = own_id(call.body) if call.response_id is None and call.reply else None
    return None if id is None else f"{call.body.get('created')} {id}"


# ---- which calls are one conversation --------------------------------------------------------------------------------


@dataclass
class CallChain:
    """Calls that continue one another, in order."""

    messages: list[Message]
    calls: list[LoggedCall]
    joined_by: str | None = None
    """The join: `prefix`, the name of a shared id, `previous_response_id`; None for a single call."""
    id: str | None = None
    lengths: dict[str, int] = field(default_factory=dict)
    """Response id -> how many messages there were after it."""


class _Ends:
    """Ends of runs by digest. Runs with the same calls (temperature 0) share an end; each is continued."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Any, bytes], deque[CallChain]] = {}

    def put(self, end: tuple[Any, bytes], run: CallChain) -> None:
        self._runs.setdefault(end, deque()).append(run)

    def take(self, end: tuple[Any, bytes]) -> CallChain | None:
        """Take the first run with that end, to continue it."""
        waiting = self._runs.get(end)
        return waiting.popleft() if waiting else None


def chain(calls: list[LoggedCall]) -> list[CallChain]:
    """Join the calls into runs, in order of first appearance; each call is in exactly one."""
    _in_conversations(calls)
    keys = _keys(calls)
    runs, ends, replied = list[CallChain](), _Ends(), dict[str, CallChain]()
    for index in _order(calls):
        call = calls[index]
        if call.custom_id is not None:  # calls of a batch know nothing of each other
            run = CallChain([*(call.request or []), *call.reply], [call])
            runs.append(run)
        elif call.previous_id in replied:
            run = _continue_after(replied[call.previous_id], call, runs)
        else:
            run = _continue(call, keys[index], ends, runs)
        if call.response_id is not None:
            run.lengths[call.response_id] = len(run.messages)
            replied[call.response_id] = run
    positions = {id(call): index for index, call in enumerate(calls)}
    return sorted(runs, key=lambda run: min(positions[id(call)] for call in run.calls))


def _continue(call: LoggedCall, key: tuple[str, str] | None, ends: _Ends, runs: list[CallChain]) -> CallChain:
    """Append a call with its history to the end that it continues, or begin a run."""
    free = key is not None  # calls that share an id may change their system prompt
    request = call.request or []
    digests = _digests([*request, *call.reply], free)
    prefixes = [(length, d) for length, d in digests if length <= len(request)]
    run = None
    for length, digest in reversed(prefixes):
        if (run := ends.take((key, digest))) is not None:
            run.messages += [*request[length:], *call.reply]
            run.calls.append(call)
            run.joined_by, run.id = (PREFIX, None) if key is None else (SHARED[key[0]], key[1])
            break
    if run is None:
        run = CallChain([*request, *call.reply], [call])
        runs.append(run)
    if digests:
        ends.put((key, digests[-1][1]), run)
    return run


def _continue_after(run: CallChain, call: LoggedCall, runs: list[CallChain]) -> CallChain:
    """Append a call whose history the server holds, behind the response that it names."""
    assert call.previous_id is not None
    length = run.lengths[call.previous_id]
    instructions = {as_text(m.get("content")) for m in run.messages[:length] if m["role"] in TOLD}
    new = [m for m in call.request or [] if m["role"] not in TOLD or as_text(m.get("content")) not in instructions]
    if length < len(run.messages):  # another call went on from there: this one branches off
        run = CallChain(run.messages[:length], [])
        runs.append(run)
    run.messages += [*new, *call.reply]
    run.calls.append(call)
    run.joined_by = PREVIOUS
    return run


def _order(calls: list[LoggedCall]) -> list[int]:
    """Sort calls behind those they may continue: shorter requests first, failed ones before their retry."""
    at_id = {c.response_id: i for i, c in enumerate(calls) if c.response_id is not None}
    after: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        if call.previous_id in at_id and at_id[call.previous_id] != i:
            after.setdefault(at_id[call.previous_id], []).append(i)
    later = {i for following in after.values() for i in following}
    first = [i for i in range(len(calls)) if i not in later]
    order, visited = list[int](), set[int]()
    lengths = [len([m for m in call.request or [] if m["role"] not in TOLD]) for call in calls]
    first.sort(key=lambda i: (lengths[i], bool(calls[i].reply)))
    for start in [*first, *sorted(later)]:  # later: circles, which begin nowhere
        queue = deque([start])
        while queue:
            i = queue.popleft()
            if i not in visited:
                visited.add(i)
                order.append(i)
                queue.extend(after.get(i, []))
    return order


def _in_conversations(calls: list[LoggedCall]) -> None:
    """Link responses of a server-kept conversation by creation time; without all times, none has a place."""
    conversations: dict[str, list[LoggedCall]] = {}
    for call in calls:
        if call.conversation is not None and call.response_id is not None:
            conversations.setdefault(call.conversation, []).append(call)
    for talk, group in conversations.items():
        times = {id(call): time for call in group if (time := seconds(call.body.get("created_at"))) is not None}
        alone = [call for call in group if call.previous_id is None]
        if len(times) == len(group):
            group.sort(key=lambda call: times[id(call)])
            for before, call in pairwise(group):
                call.previous_id = call.previous_id or before.response_id
        elif len(alone) > 1:
            timeless = next(call for call in group if id(call) not in times)
            why = no_order(talk, len(group), timeless.body.get("created_at"), timeless.line, NAME)
            for call in alone:
                call.unordered = why


def _keys(calls: list[LoggedCall]) -> list[tuple[str, str] | None]:
    """Return for each call its first id that another call has, too."""
    counts = Counter(pair for call in calls for pair in call.ids.items())
    return [
        next(((k, call.ids[k]) for k in IDS if k in call.ids and counts[k, call.ids[k]] > 1), None) for call in calls
    ]


def digest_of(messages: list[Message]) -> bytes:
    """Digest of what stays the same when a client sends messages back; empty for none."""
    return next((digest for _, digest in reversed(_digests(messages, False))), b"")


def _digests(messages: list[Message], free: bool) -> list[tuple[int, bytes]]:
    """Return (number of messages, digest) of each beginning that ends in a counted message."""
    digests, digest = list[tuple[int, bytes]](), b""
    for count, message in enumerate(messages, 1):
        if not (free and message["role"] in TOLD):
            digest = hashlib.blake2b(digest + _mark(message), digest_size=16).digest()
            digests.append((count, digest))
    return digests


def _mark(message: Message) -> bytes:
    """Bytes of what stays the same when a client sends a message back."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content or ""]
    texts = [p if isinstance(p, str) else _part(p) for p in parts]
    calls = [[c.get("name"), arguments_of(c), c.get("id")] for c in message.get("tool_calls") or []]
    role = "system" if message["role"] in TOLD else message["role"]
    fields = [role, "\n".join(texts).strip(), calls, message.get("tool_call_id")]
    return json.dumps(fields, sort_keys=True).encode("ascii") + b"\0"


def _part(content_part: dict[str, Any]) -> str:
    if isinstance(content_part.get("text"), str):
        return content_part["text"]
    return json.dumps({k: v for k, v in content_part.items() if k != "cache_control"}, sort_keys=True)
