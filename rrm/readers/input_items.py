"""What a stored response was given, where it stands in a list of its own: the API returns a response without its `input`.

    {"response": {"object": "response", "id": "r1", "output": [...]}, "input_items": {"object": "list", "data": [...]}}

The list begins with the newest item unless it was asked for otherwise, and does not say which it is: its items must tell.
"""

from __future__ import annotations

from typing import Any

from rrm.readers.response_items import act_of, kind_of

FIELD = "input_items"
HOW = f"GET /v1/responses/ID/{FIELD}?order=asc, all pages"
Items = list[dict[str, Any]]


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
