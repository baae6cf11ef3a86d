"""Join the events of a streamed answer to the body that the server would have sent in one piece.

Known are the streams of Chat Completions (legacy completions, too), Responses and Anthropic's Messages; as the text of the HTTP body, or
as a list of its lines, of its pieces or of its events. A stream that breaks off is refused: half an answer is not what the agent said.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from rrm.readers.base import printable
from rrm.readers.jsontext import parse_json

Event = dict[str, Any]
DONE = "[DONE]"
WHOLE = "log the whole answer instead (what the client put together, or a call without streaming)"
FAILED = "response.failed"
RESPONSES = ("response.completed", "response.incomplete", FAILED)
"""Last events of the Responses API, with the whole response; some servers leave its output out."""
ITEM = "response.output_item.done"
"""Event of the same API with one complete item of the output."""
SAID = (".added", ".delta", ".done")
"""Ends of its event types that show some output."""
FIXED = ("id", "type", "role", "index", "finish_reason", "stop_reason")
"""Texts of a delta that come whole, once or each time; other texts come in pieces."""
_FIELD = re.compile(r"(?:data|event|id|retry)?:")


class _Pieces(list[str]):
    """The pieces of a text."""


def is_stream(value: Any) -> bool:
    """Return whether an answer is a stream: text lines (whole or listed) that are all event fields, or a
    list of events. Never raises."""
    if (text := _stream_text(value)) is not None:
        if not _FIELD.match(text.lstrip()):
            return False
        # a line ends as the standard has it, not at U+2028, which JSON may hold
        lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
        data = [line[5:].strip() for line in lines if line.startswith("data:")]
        return all(map(_FIELD.match, lines)) and any(d == DONE or d.startswith("{") for d in data)
    return isinstance(value, list) and bool(value) and all(map(_is_event, value))


def _stream_text(value: Any) -> str | None:
    """Return a stream's text, kept as text, lines or pieces; None for anything else."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else None
    if not value or not all(isinstance(piece, str) for piece in value):
        return None
    pieces = any(piece.endswith(("\n", "\r")) for piece in value[:-1])
    return ("" if pieces or not all(_FIELD.match(p) for p in value if p.strip()) else "\n").join(value)


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    event_type, choices = str(value.get("type")), value.get("choices")
    if isinstance(choices, list) and value.get("object") in ("chat.completion.chunk", "text_completion"):
        return True
    return event_type.startswith(("message_", "content_block_", "response.")) or event_type in ("ping", "error")


def join(value: Any) -> Event:
    """Join a stream to its body; `{"error": …}` where the server ended it with an error.

    Raises:
        ValueError: a line that is no JSON, a stream that breaks off, or one of an unknown API.
    """
    events, done = _events(value)
    if error := next((e for e in events if e.get("type") == "error" or e.get("error") is not None), None):
        return {"error": error.get("error", {k: v for k, v in error.items() if k != "type"})}
    types = {str(e["type"]) for e in events if e.get("type")}
    if any(isinstance(e.get("choices"), list) for e in events):
        body, complete = _completion(events), done
        complete = bool(body["choices"]) and (complete or all(c.get("finish_reason") for c in body["choices"]))
    elif "message_start" in types:
        body, complete = _message(events), "message_stop" in types
    elif any(event_type.startswith("response.") for event_type in types):
        last = next((e for e in events if e.get("type") in RESPONSES), {})
        body = _response(last, events)
        complete = bool(body)
    else:
        keys = printable(", ".join(sorted({key for e in events for key in e})), 80)
        raise ValueError(f"a stream of events of no API that is known (they hold {keys or 'nothing'}): {WHOLE}")
    if not complete:
        raise ValueError(f"the streamed answer breaks off after {len(events)} events: {WHOLE}")
    return body


def _events(value: Any) -> tuple[list[Event], bool]:
    """Return the events, and whether `[DONE]` was among them.
    An event is a `data:` line, as all three APIs write them, or the lines up to a blank one (the standard)."""
    if (text := _stream_text(value)) is None:
        return value, False
    events, block, done = list[Event](), list[str](), False
    for line in [*re.split(r"\r\n|\r|\n", text), ""]:
        data = line[5:].strip() if line.startswith("data:") else ""
        done = done or data == DONE
        if data and data != DONE:
            block.append(data)
        elif not line.strip() and block:
            events += _of_block(block, len(events))
            block = []
    return events, done


def _of_block(data: list[str], before: int) -> list[Event]:
    """Parse `data:` lines without a blank one between: an event each, or else one of them all."""
    try:
        return [_parsed(text, before + number) for number, text in enumerate(data, 1)]
    except ValueError:
        with contextlib.suppress(ValueError):
            return [_parsed("\n".join(data), before + 1)]
        raise


def _parsed(text: str, number: int) -> Event:
    try:
        event = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"event {number} of the streamed answer is {error}; {WHOLE}") from error
    if not isinstance(event, dict):
        raise ValueError(f"event {number} of the streamed answer is no object: {WHOLE}")
    return event


def _completion(events: list[Event]) -> Event:
    """Join chunks of Chat Completions, or of legacy completions, to one body."""
    body, choices = Event(), dict[int, Event]()
    for number, event in enumerate(events, 1):
        body |= {k: v for k, v in event.items() if k not in ("choices", "object") and v is not None}
        chunks = event.get("choices")
        for i, chunk in enumerate(c for c in (chunks if isinstance(chunks, list) else []) if isinstance(c, dict)):
            index = chunk.get("index")
            choice = choices.setdefault(index if isinstance(index, int) else i, {})
            fields = {k: v for k, v in chunk.items() if k not in ("index", "delta")}
            _add(choice, fields | ({"message": _delta(chunk, number)} if "delta" in chunk else {}))
    joined = [_joined(choices[index]) for index in sorted(choices)]
    for choice in joined:
        if "text" not in choice:
            choice["message"] = {"role": "assistant", "content": None, **_dict(choice.get("message"))}
    return {**body, "choices": joined}


def _message(events: list[Event]) -> Event:
    """Join events of Anthropic's Messages to one message."""
    message, blocks = Event(), dict[int, Event]()
    for number, event in enumerate(events, 1):
        event_type = event.get("type")
        current = blocks.setdefault(event["index"], {}) if isinstance(event.get("index"), int) else {}
        delta = _delta(event, number) if event_type in ("content_block_delta", "message_delta") else {}
        if event_type == "message_start":
            message |= _dict(event.get("message"))
        elif event_type == "content_block_start":
            if current:
                raise ValueError(
                    f"event {number} of the streamed answer begins a second content block at its index: {WHOLE}"
                )
            _add(current, _dict(event.get("content_block")))
        elif event_type == "content_block_delta":
            _add(current, {k: v for k, v in delta.items() if k != "type"})
        elif event_type == "message_delta":
            message |= delta
            message["usage"] = _dict(message.get("usage")) | _dict(event.get("usage"))
    content = [_joined(blocks[index]) for index in sorted(blocks)]
    for block in content:
        if text := block.pop("partial_json", None):
            block["input"] = _arguments(text)
    return {**message, "content": content}


def _response(last: Event, events: list[Event]) -> Event:
    """Return the last event's response, with streamed items where its output is missing; empty for none."""
    body = _dict(last.get("response"))
    if not body or body.get("output") or last.get("type") == FAILED:
        return body
    done = [event for event in events if event.get("type") == ITEM and isinstance(event.get("item"), dict)]
    places = set(map(_place, done))
    begun = {_place(event) for event in events if str(event.get("type")).endswith(SAID)}
    if begun - places - ({None} if done else set()):
        raise ValueError(f"the streamed answer's last event has no output, and no {ITEM} holds all that began: {WHOLE}")
    if None not in places and len(places) == len(done):  # else they stand as they ended
        done.sort(key=lambda event: event["output_index"])
    return {**body, "output": [event["item"] for event in done]}


def _place(event: Event) -> int | None:
    index = event.get("output_index")
    return index if isinstance(index, int) else None


def _dict(value: Any) -> Event:
    return value if isinstance(value, dict) else {}


def _delta(holder: Event, number: int) -> Event:
    """Return the delta of an event, or of a choice in it; empty where it is null."""
    delta = holder.get("delta")
    if delta is not None and not isinstance(delta, dict):
        raise ValueError(f"event {number} of the streamed answer has a delta that is no object: {WHOLE}")
    return delta or {}


def _arguments(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text  # a malformed call is evidence


def _add(target: Event, delta: Event) -> None:
    """Merge a delta: texts are appended, list elements matched by index, other values replaced."""
    for key, value in delta.items():
        before = target.get(key)
        if value is None or (key in FIXED and value == "" and before):
            target.setdefault(key, value)
        elif isinstance(value, str) and key == "name":  # in pieces, or whole in each chunk
            target[key] = before + value if isinstance(before, str) and before != value else value
        elif isinstance(value, str) and key not in FIXED:
            pieces = before if isinstance(before, _Pieces) else _Pieces()
            pieces.append(value)
            target[key] = pieces
        elif isinstance(value, dict):
            target[key] = before if isinstance(before, dict) else {}
            _add(target[key], value)
        elif isinstance(value, list):
            target[key] = before if isinstance(before, list) and not isinstance(before, _Pieces) else []
            for position, element in enumerate(value):
                if key == "tool_calls":
                    _put_call(target[key], element, position > 0)
                else:
                    _put(target[key], element)
        else:
            target[key] = value


def _put(elements: list[Any], element: Any) -> None:
    """Merge a list's element into the one of its index, or append it."""
    index = element.get("index") if isinstance(element, dict) else None
    if index is None:
        elements.append(element)
        return
    same = next((e for e in elements if isinstance(e, dict) and e.get("index") == index), None)
    if same is None:
        elements.append(same := {})
    _add(same, element)


def _put_call(calls: list[Any], element: Any, beside: bool) -> None:
    """Merge a call, or a piece of one; `beside`: not its delta's first, where a named one begins a call.

    Without an index a piece belongs to the call of its id, and without an id to the last call. A name that comes without either, when
    there is a call already, may be a piece of that or a second call.
    """
    if not isinstance(element, dict):
        raise ValueError(f"a streamed tool call is no object: {WHOLE}")
    named = bool(_dict(element.get("function")).get("name"))
    if (index := element.get("index")) is not None:
        _put_at(calls, [call for call in calls if call.get("index") == index], element, beside and named)
        return
    if id := element.get("id"):
        same = next((e for e in calls if e.get("id") == id), None)
    elif named and (beside or not calls):
        same = None
    elif calls and not named:
        same = calls[-1]
    else:
        raise ValueError(f"a piece of a streamed tool call has neither `index` nor `id` to say whose it is: {WHOLE}")
    if same is None:
        calls.append(same := {})
    _add(same, element)


def _put_at(calls: list[Any], there: list[Event], element: Event, beside: bool) -> None:
    """Merge a call, or a piece of one, that has an index; `there`: the calls of that index.

    Some gateways give all calls of an answer one index, others give each piece of a call an id of its own: a call begins where a
    function is named and the call before is complete.

    Raises:
        ValueError: a call of that index begins before the other is complete, or neither its id nor its arguments show it is new.
    """
    id, same = element.get("id"), there[-1] if there else None
    if by_id := [call for call in there if id and call.get("id") == id]:
        same = by_id[0]
    elif same is not None:
        first, function = _dict(same.get("function")), _dict(element.get("function"))
        named, other = bool(first.get("name") and function.get("name")), bool(id and same.get("id"))
        arguments = function.get("arguments")
        if named and (other or beside or not (arguments is None or str(arguments).isspace() or arguments == "")):
            complete = _is_complete(first.get("arguments"))
            if complete and (other or _is_complete(arguments)):
                same = None
            elif complete or other or beside:
                raise ValueError(f"several streamed tool calls share the index {element['index']!r:.20}: {WHOLE}")
        elif other:
            element = {k: v for k, v in element.items() if k != "id"}
    if same is None:
        calls.append(same := {})
    _add(same, element)


def _is_complete(arguments: Any) -> bool:
    """Return whether arguments, or their pieces so far, are a complete object."""
    if isinstance(arguments, str):
        arguments = _Pieces([arguments])
    if not isinstance(arguments, _Pieces):
        return isinstance(arguments, dict)
    end = next((piece.rstrip() for piece in reversed(arguments) if piece.strip()), "")
    return end.endswith("}") and isinstance(_arguments("".join(arguments)), dict)


def _joined(value: Any, inside_list: bool = False) -> Any:
    """Return a merged value with texts in one piece and without the indices of elements."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, list):
        return [_joined(v, True) for v in value]
    if isinstance(value, dict):
        return {k: _joined(v) for k, v in value.items() if not (inside_list and k == "index")}
    return value
