"""`responses`: OpenAI's Responses API. A stored response, or a conversation as a list of items (as the Agents SDK keeps it)."""

from __future__ import annotations

from typing import Any

from rrm.readers.base import Item, first_user_text, make, own_id, text_field, without
from rrm.readers.outcomes import find_outcome
from rrm.readers.response_items import ItemReader, as_items, is_items, response_tools
from rrm.trajectory import Trajectory

NAME = "responses"
MARKS = ("object=response|[].type|items|input", "output[].type|[].call_id|items[].call_id|input[].call_id")
LISTS = ("items", "data", "messages", "input")
"""Where a record that is no stored response keeps its items."""


def sniff(value: Any) -> bool:
    """A stored response, a list of items, or an object that holds one under a usual name (and no answer beside it)."""
    if not isinstance(value, dict):
        return is_items(value)
    if value.get("object") == "response" and isinstance(value.get("output"), list):
        return True
    return "output" not in value and "response" not in value and any(is_items(value.get(k)) for k in LISTS)


def parse(item: Item) -> Trajectory:
    """One response, or one conversation. `instructions` is the system message; `status` and `error` stay in meta."""
    record = item.value if isinstance(item.value, dict) else {"items": item.value}
    if record.get("object") == "response" or record.get("output") is not None:
        used = ["instructions", "input", "output"]
        items = as_items(record.get("input"), "input") + as_items(record.get("output"), "output", "assistant")
    else:
        key = next((k for k in LISTS if is_items(record.get(k))), None)
        if key is None:
            raise ValueError(f"no `output` of a response, and no items under {', '.join(LISTS)}")
        used, items = ["instructions", key], as_items(record[key], key)
    read = ItemReader().read(as_items(record.get("instructions"), "instructions", "system") + items)
    tools = response_tools(record.get("tools"))
    question_id = own_id(record, "question_id")
    used += ["id"] + ["tools"] * (tools is not None) + ["question_id"] * (question_id is not None)
    meta = {k: v for k, v in without(record, *used).items() if v is not None}
    meta |= {"other_items": read.others} if read.others else {}
    return make(
        item,
        NAME,
        read.messages,
        meta=meta,
        id=own_id(record),
        task=text_field(record, "question") or first_user_text(read.messages),
        question_id=question_id,
        outcome=find_outcome(record),
        tools=[*(tools or []), *read.tools] or tools,
    )
