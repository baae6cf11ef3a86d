"""`calls`: request and response logs, one line a model call, of Chat Completions, Responses or Anthropic's Messages.

An agent's loop sends its whole history each time, so the calls of one conversation are one run, the longest: a call goes on where
its request begins with an earlier call's request and answer. Calls that share an id (a trace's, a session's) are compared among
themselves, and their system prompt may change; where the server keeps the history, `previous_response_id` joins them, or their
conversation's id in the order of their creation. A call that was logged twice is one: its answer's id says so. Calls that go on from nothing are runs of their own, so parallel conversations in one file stay apart. `meta["joined_by"]` says what joined them.
All calls of a file are held until its end, for they may stand in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, describe, first_user_text, make, own_id, text_field, without
from rrm.readers.call_bodies import LoggedCall, locate, read_call
from rrm.readers.call_chains import CallChain, chain, digest_of
from rrm.readers.outcomes import find_outcome
from rrm.readers.repeats import another, is_same, once
from rrm.readers.responses import headless

NAME = "calls"
MARKS = (
    "request|request_body|input|custom_id|body",
    "request.messages|request_body.messages|input[].role|body.messages",
    "response|response_body|output",
)
OVER_FOLDER = False
OF_THE_CALL = ("success", "is_success", "succeeded", "passed")
"""Fields that say how a call went, in a log of calls, and not how the run ended."""


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
    return make(
        item,
        NAME,
        run.messages,
        meta=meta,
        id=run.id or own_id(last.record, "custom_id", "id", "request_id", "call_id") or last.response_id,
        task=text_field(last.record, "question") or first_user_text(run.messages),
        question_id=own_id(last.record, "question_id"),
        outcome=next((found for record in ended if (found := find_outcome(record))), None),
        tools=tools,
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

    A response's id is what others go on from, so two of one id are an error where they differ (`repeats.once`). Ids of other APIs name
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
