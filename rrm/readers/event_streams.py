"""An answer that was logged as it was streamed: its events, joined to the body that the server would have sent in one piece.

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
"""Events of the Responses API that hold the whole response, at its end; some servers leave its output out."""
ITEM = "response.output_item.done"
"""An event of the same that holds one item of the output whole."""
SAID = (".added", ".delta", ".done")
"""Ends of the types of its events that say that there is some output."""
FIXED = ("id", "type", "role", "index", "finish_reason", "stop_reason")
"""Texts of a delta that come whole, once or each time; other texts come in pieces."""
_FIELD = re.compile(r"(?:data|event|id|retry)?:")


class _Pieces(list[str]):
    """The pieces of a text."""


def is_stream(value: Any) -> bool:
    """Whether an answer is a stream of events: text, or a list of texts, of which each line is a field of one, or a list of events.
    Never raises."""
    if (text := _whole_text(value)) is not None:
        if not _FIELD.match(text.lstrip()):
            return False
        # a line ends as the standard has it, not at U+2028, which JSON may hold
        lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
        data = [line[5:].strip() for line in lines if line.startswith("data:")]
        return all(map(_FIELD.match, lines)) and any(d == DONE or d.startswith("{") for d in data)
    return isinstance(value, list) and bool(value) and all(map(_is_event, value))


def _whole_text(value: Any) -> str | None:
    """The text of a stream that was kept whole, as lines or as the pieces in which it came; None for anything else."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else None
    if not value or not all(isinstance(piece, str) for piece in value):
        return None
    pieces = any(piece.endswith(("\n", "\r")) for piece in value[:-1])
    return ("" if pieces or not all(_FIELD.match(p) for p in value if p.strip()) else "\n").join(value)


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind, choices = str(value.get("type")), value.get("choices")
    if isinstance(choices, list) and value.get("object") in ("chat.completion.chunk", "text_completion"):
        return True
    return kind.startswith(("message_", "content_block_", "response.")) or kind in ("ping", "error")


def join(value: Any) -> Event:
    """The body that a stream makes; `{"error": …}` where the server ended it with an error.

    Raises:
        ValueError: a line that is no JSON, a stream that breaks off, or one of no API that is known.
    """
    events, done = _events(value)
    if error := next((e for e in events if e.get("type") == "error" or e.get("error") is not None), None):
        return {"error": error.get("error", {k: v for k, v in error.items() if k != "type"})}
    kinds = {str(e["type"]) for e in events if e.get("type")}
    if any(isinstance(e.get("choices"), list) for e in events):
        body, whole = _completion(events), done
        whole = bool(body["choices"]) and (whole or all(c.get("finish_reason") for c in body["choices"]))
    elif "message_start" in kinds:
        body, whole = _message(events), "message_stop" in kinds
    elif any(kind.startswith("response.") for kind in kinds):
        last = next((e for e in events if e.get("type") in RESPONSES), {})
        body = _response(last, events)
        whole = bool(body)
    else:
        keys = printable(", ".join(sorted({key for e in events for key in e})), 80)
        raise ValueError(f"a stream of events of no API that is known (they hold {keys or 'nothing'}): {WHOLE}")
    if not whole:
        raise ValueError(f"the streamed answer breaks off after {len(events)} events: {WHOLE}")
    return body


def _events(value: Any) -> tuple[list[Event], bool]:
    """The events, and whether `[DONE]` was among them. An event is a `data:` line, as all three APIs write them, or the lines up to a
    blank one, as the standard has it."""
    if (text := _whole_text(value)) is None:
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
    """The events of `data:` lines between which no line is blank: one each, or else one of them all."""
    try:
        return [_parsed(text, before + at) for at, text in enumerate(data, 1)]
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
    """Chunks of Chat Completions, or of legacy completions, as one body."""
    body, choices = Event(), dict[int, Event]()
    for number, event in enumerate(events, 1):
        body |= {k: v for k, v in event.items() if k not in ("choices", "object") and v is not None}
        chunks = event.get("choices")
        for at, chunk in enumerate(c for c in (chunks if isinstance(chunks, list) else []) if isinstance(c, dict)):
            index = chunk.get("index")
            choice = choices.setdefault(index if isinstance(index, int) else at, {})
            said = {k: v for k, v in chunk.items() if k not in ("index", "delta")}
            _add(choice, said | ({"message": _delta(chunk, number)} if "delta" in chunk else {}))
    found = [_joined(choices[index]) for index in sorted(choices)]
    for choice in found:
        if "text" not in choice:
            choice["message"] = {"role": "assistant", "content": None, **_dict(choice.get("message"))}
    return {**body, "choices": found}


def _message(events: list[Event]) -> Event:
    """Events of Anthropic's Messages as one message."""
    message, blocks = Event(), dict[int, Event]()
    for number, event in enumerate(events, 1):
        kind = event.get("type")
        held = blocks.setdefault(event["index"], {}) if isinstance(event.get("index"), int) else {}
        delta = _delta(event, number) if kind in ("content_block_delta", "message_delta") else {}
        if kind == "message_start":
            message |= _dict(event.get("message"))
        elif kind == "content_block_start":
            if held:
                raise ValueError(
                    f"event {number} of the streamed answer begins a second content block at its index: {WHOLE}"
                )
            _add(held, _dict(event.get("content_block")))
        elif kind == "content_block_delta":
            _add(held, {k: v for k, v in delta.items() if k != "type"})
        elif kind == "message_delta":
            message |= delta
            message["usage"] = _dict(message.get("usage")) | _dict(event.get("usage"))
    content = [_joined(blocks[index]) for index in sorted(blocks)]
    for block in content:
        if text := block.pop("partial_json", None):
            block["input"] = _arguments(text)
    return {**message, "content": content}


def _response(last: Event, events: list[Event]) -> Event:
    """The response that the last event holds, with the items that were streamed where it leaves its output out; empty where the event
    holds none."""
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
    place = event.get("output_index")
    return place if isinstance(place, int) else None


def _dict(value: Any) -> Event:
    return value if isinstance(value, dict) else {}


def _delta(holder: Event, number: int) -> Event:
    """The delta of an event, or of a choice in it; empty where it is null."""
    delta = holder.get("delta")
    if delta is not None and not isinstance(delta, dict):
        raise ValueError(f"event {number} of the streamed answer has a delta that is no object: {WHOLE}")
    return delta or {}


def _arguments(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text  # a malformed call is evidence


def _add(held: Event, delta: Event) -> None:
    """Put a delta to what is held: texts come in pieces, elements of lists by their index, other values as they are."""
    for key, value in delta.items():
        before = held.get(key)
        if value is None or (key in FIXED and value == "" and before):
            held.setdefault(key, value)
        elif isinstance(value, str) and key == "name":  # in pieces, or whole in each chunk
            held[key] = before + value if isinstance(before, str) and before != value else value
        elif isinstance(value, str) and key not in FIXED:
            pieces = before if isinstance(before, _Pieces) else _Pieces()
            pieces.append(value)
            held[key] = pieces
        elif isinstance(value, dict):
            held[key] = before if isinstance(before, dict) else {}
            _add(held[key], value)
        elif isinstance(value, list):
            held[key] = before if isinstance(before, list) and not isinstance(before, _Pieces) else []
            for at, element in enumerate(value):
                if key == "tool_calls":
                    _put_call(held[key], element, at > 0)
                else:
                    _put(held[key], element)
        else:
            held[key] = value


def _put(held: list[Any], element: Any) -> None:
    """Put an element of a list to the one of its index, or behind the others."""
    index = element.get("index") if isinstance(element, dict) else None
    if index is None:
        held.append(element)
        return
    same = next((e for e in held if isinstance(e, dict) and e.get("index") == index), None)
    if same is None:
        held.append(same := {})
    _add(same, element)


def _put_call(held: list[Any], element: Any, beside: bool) -> None:
    """Put a call, or a piece of one; `beside`: it is not the first of its delta, and a named one begins a call.

    Without an index a piece belongs to the call of its id, and without an id to the last call. A name that comes without either, when
    there is a call already, may be a piece of that or a second call.
    """
    if not isinstance(element, dict):
        raise ValueError(f"a streamed tool call is no object: {WHOLE}")
    named = bool(_dict(element.get("function")).get("name"))
    if (index := element.get("index")) is not None:
        _put_at(held, [call for call in held if call.get("index") == index], element, beside and named)
        return
    if id := element.get("id"):
        same = next((e for e in held if e.get("id") == id), None)
    elif named and (beside or not held):
        same = None
    elif held and not named:
        same = held[-1]
    else:
        raise ValueError(f"a piece of a streamed tool call has neither `index` nor `id` to say whose it is: {WHOLE}")
    if same is None:
        held.append(same := {})
    _add(same, element)


def _put_at(held: list[Any], there: list[Event], element: Event, beside: bool) -> None:
    """Put a call, or a piece of one, that has an index; `there`: the calls of that index, `beside`: as in `_put_call`.

    Some gateways give all calls of an answer one index, others give each piece of a call an id of its own: a call begins where a
    function is named and the call before is whole.

    Raises:
        ValueError: a call of that index begins before the other is whole, or says neither by its id nor by its arguments that it is one.
    """
    id, same = element.get("id"), there[-1] if there else None
    if by_id := [call for call in there if id and call.get("id") == id]:
        same = by_id[0]
    elif same is not None:
        first, function = _dict(same.get("function")), _dict(element.get("function"))
        named, other = bool(first.get("name") and function.get("name")), bool(id and same.get("id"))
        said = function.get("arguments")
        if named and (other or beside or not (said is None or str(said).isspace() or said == "")):
            whole = _is_whole(first.get("arguments"))
            if whole and (other or _is_whole(said)):
                same = None
            elif whole or other or beside:
                raise ValueError(f"several streamed tool calls share the index {element['index']!r:.20}: {WHOLE}")
        elif other:
            element = {k: v for k, v in element.items() if k != "id"}
    if same is None:
        held.append(same := {})
    _add(same, element)


def _is_whole(arguments: Any) -> bool:
    """Whether arguments, or the pieces of them that there are, are an object."""
    if isinstance(arguments, str):
        arguments = _Pieces([arguments])
    if not isinstance(arguments, _Pieces):
        return isinstance(arguments, dict)
    end = next((piece.rstrip() for piece in reversed(arguments) if piece.strip()), "")
    return end.endswith("}") and isinstance(_arguments("".join(arguments)), dict)


def _joined(value: Any, inside_list: bool = False) -> Any:
    """What is held, with texts in one piece and without the indices of elements."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, list):
        return [_joined(v, True) for v in value]
    if isinstance(value, dict):
        return {k: _joined(v) for k, v in value.items() if not (inside_list and k == "index")}
    return value
