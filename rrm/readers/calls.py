"""`calls`: request and response logs, one line a model call, of Chat Completions, Responses or Anthropic's Messages.

The calls of one conversation are one run: a call goes on where its request begins with an earlier call's request and answer, message by message
(role, text, calls and their ids); the longest such beginning counts, and each end is continued once. Calls that share an id (a trace's, a
session's) are compared among themselves, and their system prompt may change; where the server keeps the history, `previous_response_id` joins
them, or their conversation's id in the order of their creation. A call that was logged twice is one. `meta["joined_by"]` says what joined them.
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
"""Fields that say how a call went, in a log of calls, and not how the run ended."""
PREFIX = "prefix"
SHARED = {
    "conversationid": "conversation_id",
    "threadid": "thread_id",
    "sessionid": "session_id",
    "traceid": "trace_id",
}
"""The words of `IDS` as people write them."""
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
    whole = list[LoggedCall]()
    for call in _whole(calls):
        if call.request is not None:
            whole.append(call)
            continue
        yield ReadError(
            path,
            call.line,
            f"an answer whose request (custom_id {call.custom_id!r:.60}) is not in this file: give both in one, as "
            f"`cat input.jsonl output.jsonl` does (format {NAME})",
        )
    whole, others = _once(whole, path)
    yield from others
    known = {call.response_id for call in whole}
    for run in chain(whole):
        first = run.calls[0]
        if why := next((call.unordered for call in run.calls if call.unordered is not None), None):
            yield ReadError(path, first.line, why)
            continue
        if first.previous_id is not None and first.previous_id not in known:
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
    outcome = next((found for record in ended if (found := find_outcome(record))), None)
    id = run.id or own_id(last.record, "custom_id", "id", "request_id", "call_id") or last.response_id
    task, question = text_field(last.record, "question"), own_id(last.record, "question_id")
    return make(
        item, NAME, run.messages, meta=meta, id=id, task=task, question_id=question, outcome=outcome, tools=tools
    )


def _whole(calls: list[LoggedCall]) -> list[LoggedCall]:
    """The calls, those of a batch put together from their two lines where the file has both."""
    answers: dict[str | None, list[LoggedCall]] = {}
    for call in calls:
        if call.request is None:
            answers.setdefault(call.custom_id, []).append(call)
    found = list[LoggedCall]()
    for call in calls:
        if call.request is None:
            continue
        if not call.reply and call.custom_id is not None and (fitting := answers.get(call.custom_id)):
            call.answer(fitting.pop(0))
        found.append(call)
    return found + [answer for left in answers.values() for answer in left]


def _once(calls: list[LoggedCall], path: str) -> tuple[list[LoggedCall], list[ReadError]]:
    """One call an answer, and the answers that this would lose, as errors.

    A response's id is what others go on from, so two of one id are an error where they differ (`responses.once`). Ids of other APIs name
    nothing, and some servers give one to all answers: there only calls that say the same are one.
    """
    kept, dropped = once(calls, lambda call: call.response_id, lambda call: call.body)
    errors = list[ReadError]()
    for call, stays in dropped:
        if is_same(call.body, stays.body) and digest_of(call.request or []) == digest_of(stays.request or []):
            stays.lines += call.lines
        else:
            errors.append(ReadError(path, call.line, another(call.response_id, "request or output", stays.line, NAME)))
    named = Counter(map(_answer, kept))
    found, first = list[LoggedCall](), dict[tuple[str, bytes], LoggedCall]()
    for call in kept:
        same = call
        if (name := _answer(call)) is not None and named[name] > 1:
            same = first.setdefault((name, digest_of([*(call.request or []), *call.reply])), call)
        if same is call:
            found.append(call)
        else:
            same.lines += call.lines
    return found, errors


def _answer(call: LoggedCall) -> str | None:
    """The id of an answer that nothing else names, with its time."""
    id = own_id(call.body) if call.response_id is None and call.reply else None
    return None if id is None else f"{call.body.get('created')} {id}"


# ---- which calls are one conversation --------------------------------------------------------------------------------


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
    asked = [len([m for m in call.request or [] if m["role"] not in TOLD]) for call in calls]
    first.sort(key=lambda i: (asked[i], bool(calls[i].reply)))
    for start in [*first, *sorted(later)]:  # later: circles, which begin nowhere
        queue = deque([start])
        while queue:
            i = queue.popleft()
            if i not in seen:
                seen.add(i)
                order.append(i)
                queue.extend(after.get(i, []))
    return order


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
            why = no_order(talk, len(group), timeless.body.get("created_at"), timeless.line, NAME)
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
    calls = [[c.get("name"), arguments_of(c), c.get("id")] for c in message.get("tool_calls") or []]
    role = "system" if message["role"] in TOLD else message["role"]
    said = [role, "\n".join(texts).strip(), calls, message.get("tool_call_id")]
    return json.dumps(said, sort_keys=True).encode("ascii") + b"\0"


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return part["text"]
    return json.dumps({k: v for k, v in part.items() if k != "cache_control"}, sort_keys=True)
