"""`responses`: OpenAI's Responses API: stored responses, or a list of items (Agents SDK).

Where the server keeps the history, a response holds only new items: those of one file are joined by `previous_response_id`, or
by their conversation's id in the order of creation. Where two continue one, each is a run with all that was before it. A response
logged more than once (begun and ended, or in a file that was appended twice) is one, by its id. Its input must stand under its
`input`, or in the API's list of it (`input_items` beside `response`). That list begins with the newest item by default and does not
name its order: the items must tell it.
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
"""Fields that hold the items where a record is no stored response."""
OVER_FOLDER = False
PREVIOUS = "previous_response_id"
FIELD = "input_items"
HOW = f"GET /v1/responses/ID/{FIELD}?order=asc, all pages"
UNFINISHED = ("queued", "in_progress")
"""States of a response whose output may still become another."""
Items = list[dict[str, Any]]
T = TypeVar("T")


def sniff(value: Any) -> bool:
    """Match a stored response, a list of items, or an object that holds one (and no answer beside it)."""
    if not isinstance(value, dict):
        return is_items(value)
    if is_response(value) or is_pair(value):
        return True
    return "output" not in value and "response" not in value and any(is_items(value.get(k)) for k in LISTS)


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield a file's runs: the last response's record, with the earlier ones in the context."""
    rows, others = _once(items)
    positions = {id: k for k, item in enumerate(rows) if (id := _id(item)) is not None}
    before, unordered = _links(rows, positions)
    followed, visited = set(before.values()), set[int]()
    runs = list[tuple[int, SourceItem | ReadError]]()
    for last in (k for k in range(len(rows)) if k not in followed):
        chain, k = dict[int, None](), last
        while k is not None and k not in chain:
            chain[k], k = None, before.get(k)
        visited.update(chain)
        first = rows[next(reversed(chain))]
        if k is not None:
            runs.append((min(chain), _circle(rows[last])))
        elif (why := unordered.get(next(reversed(chain)))) is not None:
            runs.append((min(chain), ReadError(rows[last].path, rows[last].line, why)))
        elif (missing := _previous(first)) is not None:
            runs.append((min(chain), headless(first, missing, len(chain) - 1, NAME)))
        elif len(chain) == 1:
            runs.append((last, rows[last]))
        else:
            earlier = [rows[k].value for k in reversed(chain)][:-1]
            runs.append((min(chain), replace(rows[last], line=first.line, context={"before": earlier})))
    runs += [(k, _circle(rows[k])) for k in set(range(len(rows))) - visited]  # nobody goes on from the last of a circle
    yield from (run for _, run in sorted(runs, key=lambda entry: entry[0]))
    yield from others


def _once(items: Iterable[SourceItem]) -> tuple[list[SourceItem], list[ReadError]]:
    """Keep one item per id (`once`); return what that loses as errors."""
    unique, dropped = once(items, _id, lambda item: inner(item.value))
    lost = [(item, stays) for item, stays in dropped if not is_same(inner(item.value), inner(stays.value))]
    return unique, [
        ReadError(item.path, item.line, another(_id(item), "output", stays.line, NAME)) for item, stays in lost
    ]


def _id(item: SourceItem) -> str | None:
    return own_id(inner(item.value)) if _stored(item.value) else None


def _stored(record: Any) -> bool:
    response = inner(record)
    return isinstance(response, dict) and (response.get("object") == "response" or response.get("output") is not None)


def _previous(item: SourceItem) -> str | None:
    return own_id(inner(item.value), PREVIOUS) if _stored(item.value) else None


def _links(rows: list[SourceItem], positions: dict[str, int]) -> tuple[dict[int, int], dict[int, str]]:
    """Return index → index of the response it continues; and index → why its conversation has no order."""
    links, unordered, talks = dict[int, int](), dict[int, str](), dict[str, list[int]]()
    for k, item in enumerate(rows):
        if (previous := _previous(item)) in positions:
            links[k] = positions[str(previous)]
        if (name := _conversation(item)) is not None:
            talks.setdefault(name, []).append(k)
    for name, talk in talks.items():
        created = {k: inner(rows[k].value).get("created_at") for k in talk}
        times = {k: time for k, value in created.items() if (time := seconds(value)) is not None}
        alone = [k for k in talk if _previous(rows[k]) is None]
        if len(times) == len(talk):
            order = pairwise(sorted(talk, key=times.__getitem__))
            links |= {later: earlier for earlier, later in order if later in alone}
        elif len(alone) > 1:
            timeless = next(k for k in talk if k not in times)
            why = no_order(name, len(talk), created[timeless], rows[timeless].line, NAME)
            unordered |= dict.fromkeys(alone, why)
    return links, unordered


def _conversation(item: SourceItem) -> str | None:
    talk = inner(item.value).get("conversation") if _stored(item.value) else None
    name = own_id(talk) if isinstance(talk, dict) else talk
    return name if isinstance(name, str) and name else None


def no_order(talk: str, count: int, created: Any, line: int | None, name: str) -> str:
    """Word the error for a conversation without order: the response at `line` has no valid time."""
    fault = (
        "is missing" if created is None else f"{printable(repr(created), 60)} is neither seconds nor an ISO 8601 time"
    )
    return (
        f"the {count} responses of the conversation {printable(talk, 60)!r} have no order: `created_at` of the one at line {line} "
        f"{fault}; give each its time or its {PREVIOUS} (format {name})"
    )


def _circle(item: SourceItem) -> ReadError:
    why = f"{PREVIOUS} {_previous(item)!r:.60} leads in a circle: it has no beginning (format {NAME})"
    return ReadError(item.path, item.line, why)


def headless(first: SourceItem, missing: str, followers: int, name: str) -> ReadError:
    """Word the error for a run without its beginning; `followers`: responses that continue `first`."""
    others = f" (nor for the {followers} that follow)" if followers else ""
    return ReadError(
        first.path,
        first.line,
        f"goes on from {PREVIOUS} {printable(missing, 60)!r}, which is not in this file, so the task is not known{others}: put all "
        f"responses of a conversation into one file, each with its `input` (format {name})",
    )


def _read(records: list[Any]) -> tuple[list[dict[str, Any]], ItemReader]:
    """Read responses in a row, each with its `input`; return them and their items' reader.

    Raises:
        ValueError: a response whose input the log does not hold.
    """
    reader, responses = ItemReader(), list[dict[str, Any]]()
    sent, ids = list[Any](), set[str]()
    for raw in records:
        body, listed = with_input(raw)
        inputs = as_items(body.get("input"), "input")
        outputs = as_items(body.get("output"), "output", "assistant")
        if body.get("input") is None and outputs and not (text_field(body, "question") and not responses):
            raise ValueError(
                f"what the response {printable(own_id(body) or '?', 60)!r} was given is not here: the API returns a response without its "
                f"input, so put that under `input`, or its list ({HOW}) as `{FIELD}` beside `response`"
            )
        if listed:  # some servers list what came before, too
            inputs = [i for i in inputs if not isinstance(i, dict) or i.get("id") is None or str(i["id"]) not in ids]
        ids |= {str(i["id"]) for i in [*inputs, *outputs] if isinstance(i, dict) and i.get("id") is not None}
        instructions = body.get("instructions")
        if instructions not in sent:  # they hold for one response, and a client sends them with each
            sent.append(instructions)
            reader.read(as_items(instructions, "instructions", "system"))
        reader.read(inputs + outputs)
        responses.append(body)
    return responses, reader


def parse(item: SourceItem) -> Trajectory:
    """Read one response with those before it, or one conversation; `instructions` is the system message."""
    record = item.value if isinstance(item.value, dict) else {"items": item.value}
    records = [record]
    if _stored(record):
        used = ["instructions", "input", "output"]
        records, reader = _read([*item.context.get("before", ()), record])
        record = records[-1]
    else:
        key = next((k for k in LISTS if is_items(record.get(k))), None)
        if key is None:
            raise ValueError(f"no `output` of a response, and no items under {', '.join(LISTS)}")
        used, items = ["instructions", key], as_items(record[key], key)
        reader = ItemReader().read(as_items(record.get("instructions"), "instructions", "system") + items)
    begins = next((m["role"] for m in reader.messages if m["role"] not in ("system", "developer")), None)
    if begins == "tool":
        raise ValueError("begins with a tool's result: the call that it answers, and the task, are not in this file")
    tools = next((t for r in reversed(records) if (t := response_tools(r.get("tools"))) is not None), None)
    question_id = own_id(record, "question_id")
    used += ["id"] + ["tools"] * (tools is not None) + ["question_id"] * (question_id is not None)
    meta = {k: v for k, v in without(record, *used).items() if v is not None}
    meta |= {"other_items": reader.others} if reader.others else {}
    meta |= (
        {"responses": len(records), "joined_by": PREVIOUS if PREVIOUS in meta else "conversation"}
        if records[1:]
        else {}
    )
    outcome = next((o for r in reversed(records) if (o := find_outcome(r)) is not None), None)
    id, task, tools = own_id(record), text_field(record, "question"), [*(tools or []), *reader.tools] or tools
    return make(
        item, NAME, reader.messages, meta=meta, id=id, task=task, question_id=question_id, outcome=outcome, tools=tools
    )


# ---- what a response was given ---------------------------------------------------------------------------------------


def is_response(value: Any) -> bool:
    """Match a stored response. Never raises."""
    return isinstance(value, dict) and value.get("object") == "response" and isinstance(value.get("output"), list)


def is_pair(value: Any) -> bool:
    """Match a stored response with the list of its input beside it. Never raises."""
    return isinstance(value, dict) and FIELD in value and is_response(value.get("response"))


def inner(value: Any) -> Any:
    """Return the stored response of such a pair; anything else as it is."""
    return value["response"] if is_pair(value) else value


def with_input(value: Any) -> tuple[Any, bool]:
    """Return a response with its listed items as `input`, oldest first, and whether there was a list.

    Fields beside the response are taken for its own; on a name clash they are kept under `beside_response`.

    Raises:
        ValueError: one page of several, no list of items, or a list of unknown order.
    """
    response = inner(value)
    if response is value:
        if not is_response(value) or value.get("input") is not None or value.get(FIELD) is None:
            return value, False
        beside = dict[str, Any]()
    else:
        beside = {k: v for k, v in value.items() if k not in ("response", FIELD)}
    same_name = {k: v for k, v in beside.items() if k in response and v != response[k]}
    merged = {k: v for k, v in (beside | response).items() if k != FIELD} | {
        "input": _oldest_first(_items(value[FIELD]))
    }
    return merged | ({"beside_response": same_name} if same_name else {}), True


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
    """Return the items in the order in which they were given.

    A call stands before its result, and the system before the user. Results alone need no order.
    """
    positions = {str(item.get("call_id")): k for k, item in enumerate(items) if act_of(item) == "call"}
    acts = {act_of(item) for item in items}
    steps = [
        k - positions[id]
        for k, item in enumerate(items)
        if act_of(item) == "output" and (id := str(item.get("call_id"))) in positions
    ]
    system = [k for k, item in enumerate(items) if item.get("role") in ("system", "developer")]
    user = [k for k, item in enumerate(items) if kind_of(item) == "message" and item.get("role") == "user"]
    steps += [min(user) - min(system), max(user) - max(system)] if system and user else []
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
    """Keep one entry per id (the last completed, else the last) in the first one's place.

    Returns the kept entries, and (dropped, kept) pairs. An entry without an id is kept.
    """
    unique, dropped = dict[str | int, T](), list[tuple[str, T]]()
    for index, entry in enumerate(entries):
        if (id := id_of(entry)) is None:
            unique[index] = entry
        elif (earlier := unique.get(id)) is None or _completed(body_of(entry)) or not _completed(body_of(earlier)):
            dropped += [(id, earlier)] if earlier is not None else []
            unique[id] = entry
        else:
            dropped.append((id, entry))
    return list(unique.values()), [(entry, unique[id]) for id, entry in dropped]


def _completed(body: dict[str, Any]) -> bool:
    return body.get("status") == "completed"


def is_same(body: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a response repeats the kept one: unfinished, or its output the other's beginning."""
    output, other_output = body.get("output"), other.get("output")
    if body.get("status") in UNFINISHED or not output:
        return True
    return isinstance(output, list) and isinstance(other_output, list) and other_output[: len(output)] == output


def another(id: str | None, difference: str, line: int | None, name: str) -> str:
    """Word the error for a dropped response that differs; `line`: of the kept one."""
    return f"another response with the id {printable(id or '', 60)!r} and another {difference} is kept (line {line}): give each its own id (format {name})"
