"""`responses`: OpenAI's Responses API. A stored response, or a conversation as a list of items (as the Agents SDK keeps it).

A response whose history the server keeps holds what is new alone: those of one file are put together by `previous_response_id`, or
by their conversation's id in the order of their creation. Where two go on from one, each is a run with all that was before it. A
response that was logged more than once (as it began and as it ended, or in a file that was appended twice) is one: its id says so.
What it was given must stand under its `input`, or in the list that the API has of it (`input_items` beside `response`), which begins with
the newest item unless it was asked for otherwise, and does not say which it is: its items must tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.base import SourceItem, make, own_id, printable, text_field, without
from rrm.readers.outcomes import find_outcome
from rrm.readers.response_items import ItemReader, act_of, as_items, is_items, kind_of, response_tools
from rrm.readers.spans import seconds

NAME = "responses"
MARKS = ("object=response|[].type|items|input", "output[].type|[].call_id|items[].call_id|input[].call_id")
LISTS = ("items", "data", "messages", "input")
"""Where a record that is no stored response keeps its items."""
OVER_FOLDER = False
PREVIOUS = "previous_response_id"
FIELD = "input_items"
HOW = f"GET /v1/responses/ID/{FIELD}?order=asc, all pages"
UNFINISHED = ("queued", "in_progress")
"""States of a response whose output may still become another."""
Items = list[dict[str, Any]]
T = TypeVar("T")


def sniff(value: Any) -> bool:
    """A stored response, a list of items, or an object that holds one under a usual name (and no answer beside it)."""
    if not isinstance(value, dict):
        return is_items(value)
    if is_response(value) or is_pair(value):
        return True
    return "output" not in value and "response" not in value and any(is_items(value.get(k)) for k in LISTS)


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """The runs of one file: an item's value is the last response's record, its context the records of those before it."""
    held, others = _once(items)
    place = {id: at for at, item in enumerate(held) if (id := _id(item)) is not None}
    before, unordered = _links(held, place)
    followed, seen = set(before.values()), set[int]()
    runs = list[tuple[int, SourceItem | ReadError]]()
    for last in (at for at in range(len(held)) if at not in followed):
        chain, at = dict[int, None](), last
        while at is not None and at not in chain:
            chain[at], at = None, before.get(at)
        seen.update(chain)
        first = held[next(reversed(chain))]
        if at is not None:
            runs.append((min(chain), _circle(held[last])))
        elif (why := unordered.get(next(reversed(chain)))) is not None:
            runs.append((min(chain), ReadError(held[last].path, held[last].line, why)))
        elif (missing := _previous(first)) is not None:
            runs.append((min(chain), headless(first, missing, len(chain) - 1, NAME)))
        elif len(chain) == 1:
            runs.append((last, held[last]))
        else:
            earlier = [held[at].value for at in reversed(chain)][:-1]
            runs.append((min(chain), replace(held[last], line=first.line, context={"before": earlier})))
    runs += [(at, _circle(held[at])) for at in set(range(len(held))) - seen]  # nobody goes on from the last of a circle
    yield from (run for _, run in sorted(runs, key=lambda found: found[0]))
    yield from others


def _once(items: Iterable[SourceItem]) -> tuple[list[SourceItem], list[ReadError]]:
    """One item an id (`once`), and what that would lose, as errors."""
    kept, dropped = once(items, _id, lambda item: inner(item.value))
    lost = [(item, stays) for item, stays in dropped if not is_same(inner(item.value), inner(stays.value))]
    return kept, [
        ReadError(item.path, item.line, another(_id(item), "output", stays.line, NAME)) for item, stays in lost
    ]


def _id(item: SourceItem) -> str | None:
    """A stored response's id."""
    return own_id(inner(item.value)) if _stored(item.value) else None


def _stored(record: Any) -> bool:
    response = inner(record)
    return isinstance(response, dict) and (response.get("object") == "response" or response.get("output") is not None)


def _previous(item: SourceItem) -> str | None:
    return own_id(inner(item.value), PREVIOUS) if _stored(item.value) else None


def _links(held: list[SourceItem], place: dict[str, int]) -> tuple[dict[int, int], dict[int, str]]:
    """The place of each response that goes on from another of the file → the place of that one; and of each whose conversation has
    no order → why."""
    links, unordered, talks = dict[int, int](), dict[int, str](), dict[str, list[int]]()
    for at, item in enumerate(held):
        if (previous := _previous(item)) in place:
            links[at] = place[str(previous)]
        if (name := _conversation(item)) is not None:
            talks.setdefault(name, []).append(at)
    for name, talk in talks.items():
        said = {at: inner(held[at].value).get("created_at") for at in talk}
        made = {at: time for at, one in said.items() if (time := seconds(one)) is not None}
        alone = [at for at in talk if _previous(held[at]) is None]
        if len(made) == len(talk):
            order = pairwise(sorted(talk, key=made.__getitem__))
            links |= {later: earlier for earlier, later in order if later in alone}
        elif len(alone) > 1:
            timeless = next(at for at in talk if at not in made)
            why = no_order(name, len(talk), said[timeless], held[timeless].line, NAME)
            unordered |= dict.fromkeys(alone, why)
    return links, unordered


def _conversation(item: SourceItem) -> str | None:
    """The id of the conversation that a stored response is part of."""
    talk = inner(item.value).get("conversation") if _stored(item.value) else None
    name = own_id(talk) if isinstance(talk, dict) else talk
    return name if isinstance(name, str) and name else None


def no_order(talk: str, count: int, said: Any, line: int | None, name: str) -> str:
    """The error for a conversation's responses of which one, at `line`, has `said` for its time, which is none."""
    fault = "is missing" if said is None else f"{printable(repr(said), 60)} is neither seconds nor an ISO 8601 time"
    return (
        f"the {count} responses of the conversation {printable(talk, 60)!r} have no order: `created_at` of the one at line {line} "
        f"{fault}; give each its time or its {PREVIOUS} (format {name})"
    )


def _circle(item: SourceItem) -> ReadError:
    why = f"{PREVIOUS} {_previous(item)!r:.60} leads in a circle: it has no beginning (format {NAME})"
    return ReadError(item.path, item.line, why)


def headless(first: SourceItem, missing: str, followers: int, name: str) -> ReadError:
    """The error for a run whose beginning, and with it the task, is not there; `followers`: responses that go on from `first`."""
    others = f" (nor for the {followers} that follow)" if followers else ""
    return ReadError(
        first.path,
        first.line,
        f"goes on from {PREVIOUS} {printable(missing, 60)!r}, which is not in this file, so the task is not known{others}: put all "
        f"responses of a conversation into one file, each with its `input` (format {name})",
    )


def _read(records: list[Any]) -> tuple[list[dict[str, Any]], ItemReader]:
    """Responses that follow one another, each with its input under `input`, and what their items say.

    Raises:
        ValueError: a response of which the log does not hold what it was given.
    """
    read, found = ItemReader(), list[dict[str, Any]]()
    told, seen = list[Any](), set[str]()
    for raw in records:
        one, listed = with_input(raw)
        given, said = as_items(one.get("input"), "input"), as_items(one.get("output"), "output", "assistant")
        if one.get("input") is None and said and not (text_field(one, "question") and not found):
            raise ValueError(
                f"what the response {printable(own_id(one) or '?', 60)!r} was given is not here: the API returns a response without its "
                f"input, so put that under `input`, or its list ({HOW}) as `{FIELD}` beside `response`"
            )
        if listed:  # some servers list what came before, too
            given = [i for i in given if not isinstance(i, dict) or i.get("id") is None or str(i["id"]) not in seen]
        seen |= {str(i["id"]) for i in [*given, *said] if isinstance(i, dict) and i.get("id") is not None}
        instructions = one.get("instructions")
        if instructions not in told:  # they hold for one response, and a client sends them with each
            told.append(instructions)
            read.read(as_items(instructions, "instructions", "system"))
        read.read(given + said)
        found.append(one)
    return found, read


def parse(item: SourceItem) -> Trajectory:
    """One response with those before it, or one conversation. `instructions` is the system message; `status` and `error` stay in meta."""
    record = item.value if isinstance(item.value, dict) else {"items": item.value}
    records = [record]
    if _stored(record):
        used = ["instructions", "input", "output"]
        records, read = _read([*item.context.get("before", ()), record])
        record = records[-1]
    else:
        key = next((k for k in LISTS if is_items(record.get(k))), None)
        if key is None:
            raise ValueError(f"no `output` of a response, and no items under {', '.join(LISTS)}")
        used, items = ["instructions", key], as_items(record[key], key)
        read = ItemReader().read(as_items(record.get("instructions"), "instructions", "system") + items)
    begins = next((m["role"] for m in read.messages if m["role"] not in ("system", "developer")), None)
    if begins == "tool":
        raise ValueError("begins with a tool's result: the call that it answers, and the task, are not in this file")
    tools = next((t for one in reversed(records) if (t := response_tools(one.get("tools"))) is not None), None)
    question_id = own_id(record, "question_id")
    used += ["id"] + ["tools"] * (tools is not None) + ["question_id"] * (question_id is not None)
    meta = {k: v for k, v in without(record, *used).items() if v is not None}
    meta |= {"other_items": read.others} if read.others else {}
    meta |= (
        {"responses": len(records), "joined_by": PREVIOUS if PREVIOUS in meta else "conversation"}
        if records[1:]
        else {}
    )
    outcome = next((o for one in reversed(records) if (o := find_outcome(one)) is not None), None)
    id, task, tools = own_id(record), text_field(record, "question"), [*(tools or []), *read.tools] or tools
    return make(
        item, NAME, read.messages, meta=meta, id=id, task=task, question_id=question_id, outcome=outcome, tools=tools
    )


# ---- what a response was given ---------------------------------------------------------------------------------------


def is_response(value: Any) -> bool:
    """Whether a value is a stored response. Never raises."""
    return isinstance(value, dict) and value.get("object") == "response" and isinstance(value.get("output"), list)


def is_pair(value: Any) -> bool:
    """Whether a value holds a stored response and, beside it, the list of its input. Never raises."""
    return isinstance(value, dict) and FIELD in value and is_response(value.get("response"))


def inner(value: Any) -> Any:
    """The stored response of such a pair; anything else as it is."""
    return value["response"] if is_pair(value) else value


def with_input(value: Any) -> tuple[Any, bool]:
    """A stored response with its listed items as `input`, oldest first, and whether there was a list; anything else as it is.

    What stands beside the response is taken for its own; where it has a field of that name, it is kept under `beside_response`.

    Raises:
        ValueError: a page of several, no list of items, or one of which nothing says where it begins.
    """
    response = inner(value)
    if response is value:
        if not is_response(value) or value.get("input") is not None or value.get(FIELD) is None:
            return value, False
        beside = dict[str, Any]()
    else:
        beside = {k: v for k, v in value.items() if k not in ("response", FIELD)}
    same_name = {k: v for k, v in beside.items() if k in response and v != response[k]}
    found = {k: v for k, v in (beside | response).items() if k != FIELD} | {
        "input": _oldest_first(_items(value[FIELD]))
    }
    return found | ({"beside_response": same_name} if same_name else {}), True


def _items(listed: Any) -> Items:
    """The items of a page, or of a plain list."""
    if isinstance(listed, dict):
        if listed.get("has_more"):
            raise ValueError(f"`{FIELD}` is one page of several (`has_more`): put the items of all into it ({HOW})")
        listed = listed.get("data")
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ValueError(f"`{FIELD}` is no list of items: put there what the API lists ({HOW})")
    return listed


def _oldest_first(items: Items) -> Items:
    """The items in the order in which they were given.

    A call stands before its result, and what the system says before what the user does. Results alone need no order.
    """
    place = {str(item.get("call_id")): at for at, item in enumerate(items) if act_of(item) == "call"}
    acts = {act_of(item) for item in items}
    steps = [
        at - place[id]
        for at, item in enumerate(items)
        if act_of(item) == "output" and (id := str(item.get("call_id"))) in place
    ]
    told = [at for at, item in enumerate(items) if item.get("role") in ("system", "developer")]
    asked = [at for at, item in enumerate(items) if kind_of(item) == "message" and item.get("role") == "user"]
    steps += [min(asked) - min(told), max(asked) - max(told)] if told and asked else []
    if len(items) < 2 or acts == {"output"} or (steps and min(steps) > 0):
        return items
    if steps and max(steps) < 0:
        return items[::-1]
    raise ValueError(
        f"`{FIELD}` may begin with the oldest item or with the newest, as the API lists them, and nothing in it says which: put the items "
        f"under the response's `input`, oldest first ({HOW})"
    )


# ---- responses that are logged more than once ------------------------------------------------------------------------


def once(
    entries: Iterable[T], id_of: Callable[[T], str | None], body_of: Callable[[T], dict[str, Any]]
) -> tuple[list[T], list[tuple[T, T]]]:
    """One entry an id, where the first of it stood (the last that is completed, else the last), and each that is dropped with the one
    that is kept. An entry without an id is kept."""
    kept, dropped = dict[str | int, T](), list[tuple[str, T]]()
    for at, entry in enumerate(entries):
        if (id := id_of(entry)) is None:
            kept[at] = entry
        elif (earlier := kept.get(id)) is None or _completed(body_of(entry)) or not _completed(body_of(earlier)):
            dropped += [(id, earlier)] if earlier is not None else []
            kept[id] = entry
        else:
            dropped.append((id, entry))
    return list(kept.values()), [(entry, kept[id]) for id, entry in dropped]


def _completed(body: dict[str, Any]) -> bool:
    return body.get("status") == "completed"


def is_same(body: dict[str, Any], kept: dict[str, Any]) -> bool:
    """Whether a response may be the one that is kept: one that had not come to its end, or whose output the kept one begins with."""
    said, whole = body.get("output"), kept.get("output")
    if body.get("status") in UNFINISHED or not said:
        return True
    return isinstance(said, list) and isinstance(whole, list) and whole[: len(said)] == said


def another(id: str | None, what: str, line: int | None, name: str) -> str:
    """The error for a response that is dropped and is not the same; `what` differs, `line`: of the one that is kept."""
    return f"another response with the id {printable(id or '', 60)!r} and another {what} is kept (line {line}): give each its own id (format {name})"
