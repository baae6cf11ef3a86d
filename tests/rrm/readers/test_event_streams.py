"""Answers of models that were logged as they were streamed: joined whole, or refused."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from call_logs import chat, response, run_of, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from log_rows import sent

from rrm.errors import ReadError
from rrm.readers import calls
from rrm.readers.base import SourceItem


def sse(*events: Any, names: bool = False, gap: str = "\n\n") -> str:
    """Events as the body of a streamed answer; `names`: as Anthropic and Responses write them, with an `event:` line."""
    return "".join(
        (f"event: {e['type']}\n" if names else "") + f"data: {e if isinstance(e, str) else json.dumps(e)}{gap}"
        for e in events
    )


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "model": "m-1", "system_fingerprint": "fp"}
    return {**head, "choices": [choice]}


def tool(index: int, arguments: str, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def streamed(body: Any, **more: Any) -> dict[str, Any]:
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "q"}], **more}
    return {"request": asked, "response": body}


CHUNKS = [
    chunk(role="assistant", content=""), chunk(reasoning_content="Look it "), chunk(reasoning_content="up."),
    chunk(content="One \u2028mo"), chunk(content="ment."), chunk(tool_calls=[tool(0, "", "call_a", "search")]),
    chunk(tool_calls=[tool(0, '{"q": "Pa')]), chunk(tool_calls=[tool(1, "", "call_b", "search")]),
    chunk(tool_calls=[tool(0, 'ris"}')]), chunk(tool_calls=[tool(1, '{"q": "Rome"}', "")]), chunk("tool_calls"),
    {"id": "chatcmpl-7", "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 9}},
]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        sse(*CHUNKS, "[DONE]"), ": comment\n\n" + sse(*CHUNKS, gap="\n"), sse(*CHUNKS, "[DONE]", gap="\r\n\r\n"),
        {"status_code": 200, "headers": {}, "body": sse(*CHUNKS, "[DONE]")}, CHUNKS, json.dumps(CHUNKS),
        sse(*CHUNKS, "[DONE]").splitlines(), [sse(c, gap="") for c in (*CHUNKS, "[DONE]")],
        [sse(c) for c in (*CHUNKS, "[DONE]")], [sse(*CHUNKS)[at : at + 50] for at in range(0, len(sse(*CHUNKS)), 50)],
        json.dumps([sse(c, gap="") for c in CHUNKS]),
    ],
    ids=[
        "sse", "no blank lines", "crlf", "in an envelope", "list", "list as text", "lines", "lines without blanks",
        "events", "pieces", "lines as text",
    ],
)  # fmt: skip
def test_a_streamed_completion_is_joined(tmp_path: Path, body: Any) -> None:
    (run,), errors = run_of(tmp_path, streamed(body))
    assert not errors
    cities = (("Paris", "call_a"), ("Rome", "call_b"))
    calls = [{"name": "search", "arguments": {"q": city}, "id": id} for city, id in cities]
    message = {"role": "assistant", "content": "One \u2028moment.", "reasoning_content": "Look it up."}
    assert sent(run)[1:] == [message | {"tool_calls": calls}]
    answer = run.meta["response"]
    assert answer["usage"] == {"total_tokens": 9} and answer["finish_reason"] == "tool_calls"
    assert answer["system_fingerprint"] == "fp" and answer["model"] == "m-1"


def test_a_streamed_call_goes_on_as_any_other(tmp_path: Path) -> None:
    first = streamed(sse(chunk(role="assistant", content="a"), chunk("stop", content="1"), "[DONE]"))
    second = chat("u: q", "a: a1", "u: r", reply="a2")
    legacy = {"object": "text_completion", "choices": [{"index": 0, "text": "on", "finish_reason": None}]}
    end = {"object": "text_completion", "choices": [{"index": 0, "text": "ce", "finish_reason": "stop"}]}
    prompt = {"request": {"model": "m", "prompt": "told", "stream": True}, "response": sse(legacy, end, "[DONE]")}
    found, errors = run_of(tmp_path, second, first, prompt)
    assert [texts(t) for t in found] == [["q", "a1", "r", "a2"], ["told", "once"]] and not errors


def test_a_streamed_message_of_anthropics(tmp_path: Path) -> None:
    def block(index: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}

    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    start = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 3}}
    events = [
        {"type": "message_start", "message": start}, block(0, "thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Hm"), delta(0, type="thinking_delta", thinking="m."),
        delta(0, type="signature_delta", signature="xx"), {"type": "content_block_stop", "index": 0},
        block(1, "text", text=""), {"type": "ping"}, delta(1, type="text_delta", text="Let me "),
        delta(1, type="text_delta", text="see."), block(2, "tool_use", id="toolu_1", name="search", input={}),
        delta(2, type="input_json_delta", partial_json=""), delta(2, type="input_json_delta", partial_json='{"q": "Pa'),
        delta(2, type="input_json_delta", partial_json='ris"}'),
        block(3, "tool_use", id="toolu_2", name="now", input={}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]  # fmt: skip
    (run,), errors = run_of(tmp_path, streamed(sse(*events, names=True), system="be kind"))
    search = {"name": "search", "arguments": {"q": "Paris"}, "id": "toolu_1"}
    now = {"name": "now", "arguments": {}, "id": "toolu_2"}
    message = {"role": "assistant", "content": "Let me see.", "reasoning_content": "Hmm."}
    assert sent(run)[2:] == [message | {"tool_calls": [search, now]}]
    assert not errors and run.meta["response"]["usage"] == {"input_tokens": 3, "output_tokens": 4}
    broken = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    (run,), errors = run_of(tmp_path, streamed(sse(*events[:9], broken, names=True), system="be kind"))
    assert not errors and texts(run) == ["be kind", "q"] and run.meta["failed_calls"] == 1
    assert run.meta["response"]["error"]["message"] == "busy"


def test_a_streamed_response(tmp_path: Path) -> None:
    events = [
        {"type": "response.created", "response": {"object": "response", "id": "r1", "output": []}},
        {"type": "response.output_text.delta", "delta": "It is"},
        {"type": "response.completed", "response": response("r1", "It is so.")},
    ]
    record = {"request": {"model": "m", "input": "Is it?", "stream": True}, "response": sse(*events, names=True)}
    after = {"model": "m", "input": "Sure?", "previous_response_id": "r1"}
    (run,), errors = run_of(tmp_path, record, {"request": after, "response": response("r2", "Yes.")})
    assert texts(run) == ["Is it?", "It is so.", "Sure?", "Yes."] and not errors
    found, (error,) = run_of(tmp_path, {**record, "response": sse(*events[:2], names=True)})
    assert not found and "the streamed answer breaks off after 2 events: log the whole answer instead" in error.reason


def item(place: Any, text: str) -> dict[str, Any]:
    """The event of an item that is whole, at a place of the output."""
    return {"type": "response.output_item.done", "output_index": place, "item": response("", text)["output"][0]}


def begun(place: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": place, "delta": "It"}


def ended(kind: str = "completed", **more: Any) -> dict[str, Any]:
    """The last event of a response whose output is left out."""
    return {"type": f"response.{kind}", "response": {"object": "response", "id": "r1", "status": kind, **more}}


def asked(*events: dict[str, Any]) -> dict[str, Any]:
    return {"request": {"model": "m", "input": "Is it?", "stream": True}, "response": sse(*events, names=True)}


@pytest.mark.parametrize("left_out", [{}, {"output": []}, {"output": None}])
def test_a_response_whose_last_event_leaves_its_output_out_is_put_together(
    tmp_path: Path, left_out: dict[str, Any]
) -> None:
    places = [begun(0), item(1, "so."), begun(1), item(0, "It is"), ended(**left_out)]
    (run,), errors = run_of(tmp_path, asked(*places))
    assert texts(run) == ["Is it?", "It is", "so."] and not errors
    shared = [item(0, "It is"), item(0, "so."), begun(None), ended("incomplete", **left_out)]
    (run,), errors = run_of(tmp_path, asked(*shared))
    assert texts(run) == ["Is it?", "It is", "so."] and not errors


def test_what_a_response_has_at_its_end_stands_and_a_failed_one_said_nothing(tmp_path: Path) -> None:
    (run,), errors = run_of(tmp_path, asked(item(0, "No."), ended(output=response("", "Yes.")["output"])))
    assert texts(run) == ["Is it?", "Yes."] and not errors
    busy = {"error": {"message": "busy"}, "output": []}
    (run,), errors = run_of(tmp_path, asked(begun(0), ended("failed", **busy)))
    assert texts(run) == ["Is it?"] and run.meta["failed_calls"] == 1 and not errors


@pytest.mark.parametrize("events", [[begun(0)], [begun(None)], [item(0, "It is"), begun(1)]])
def test_a_response_that_lost_what_was_streamed_is_an_error(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    found, (error,) = run_of(tmp_path, asked(*events, ended(output=[])))
    assert not found and "no output, and no response.output_item.done holds all that began" in error.reason


def test_an_event_may_have_several_lines_as_the_standard_has_it(tmp_path: Path) -> None:
    def lines(event: dict[str, Any]) -> str:
        return "".join(f"data: {line}\n" for line in json.dumps(event, indent=1).splitlines())

    events = [chunk(content="It is "), chunk("stop", content="so.")]
    (run,), errors = run_of(tmp_path, streamed("\n".join(map(lines, events)) + "\ndata: [DONE]\n\n"))
    assert texts(run) == ["q", "It is so."] and not errors
    found, (error,) = run_of(tmp_path, streamed(lines(events[0]) + "\n" + lines(events[1])[:-10]))
    assert not found and "event 2 of the streamed answer is not JSON" in error.reason


@pytest.mark.parametrize(("body", "why"), [
    (sse(*CHUNKS[:5]), "breaks off after 5 events"),
    (sse(*CHUNKS)[:-40], "event 12 of the streamed answer is not JSON"),
    (sse("[DONE]"), "a stream of events of no API that is known"),
    (sse({"candidates": []}), r"no API that is known \(they hold candidates\)"),
    (sse(CHUNKS[-1], "[DONE]"), "breaks off"),
])  # fmt: skip
def test_a_stream_that_cannot_be_joined_is_an_error_and_never_words(tmp_path: Path, body: str, why: str) -> None:
    found, (error,) = run_of(tmp_path, streamed(body))
    assert not found and re.search(why, error.reason) and "log the whole answer instead" in error.reason


def piece(arguments: str = "", **more: Any) -> dict[str, Any]:
    """A piece of a call; a `name` is its function's."""
    name = {"name": more.pop("name")} if "name" in more else {}
    return {**more, "function": {**name, "arguments": arguments}}


def joined(folder: Path, *deltas: dict[str, Any]) -> tuple[list[Any], list[ReadError]]:
    """The name, the arguments and the id of each call that deltas make, and the errors."""
    found, errors = run_of(folder, streamed(sse(*(chunk(**d) for d in deltas), chunk("tool_calls"), "[DONE]")))
    made = [call for run in found for call in sent(run)[1]["tool_calls"]]
    return [(call["name"], call["arguments"], call.get("id")) for call in made], errors


@pytest.mark.parametrize("pieces", [
    [("ge", ""), ("t", '{"a"'), (None, ": 1}")], [("g", ""), ("e", ""), ("t", '{"a": 1}'), ("", "")],
    [("get", '{"a"'), ("get", ": "), ("get", "1}")], [("ge", ""), ("t", '{"a"'), ("get", ": 1}")],
])  # fmt: skip
def test_a_streamed_name_may_come_in_pieces_or_each_time(tmp_path: Path, pieces: list[tuple[str | None, str]]) -> None:
    deltas = [{"tool_calls": [piece(text, index=0, name=name)]} for name, text in pieces]
    deltas[0]["tool_calls"][0]["id"] = "c"
    assert joined(tmp_path, *deltas) == ([("get", {"a": 1}, "c")], [])


def test_a_piece_of_a_streamed_call_without_an_index_goes_on_with_the_last(tmp_path: Path) -> None:
    ends = [{"tool_calls": [piece('{"a"')]}, {"tool_calls": [piece(": 1}")]}]
    get, put = ("get", {"a": 1}, "c"), ("put", {"a": 1}, "d")
    assert joined(tmp_path, {"tool_calls": [piece(id="c", name="get")]}, *ends) == ([get], [])
    assert joined(tmp_path, {"tool_calls": [piece(name="get")]}, *ends) == ([(*get[:2], None)], [])
    starts = [{"tool_calls": [piece(id=id, name=name)]} for id, name in (("c", "get"), ("d", "put"))]
    assert joined(tmp_path, starts[0], *ends, starts[1], *ends) == ([get, put], [])
    by_id = [{"tool_calls": [piece(text, id=id)]} for text in ('{"a"', ": 1}") for id in "cd"]
    assert joined(tmp_path, *starts, *by_id) == ([get, put], [])
    beside = {"tool_calls": [piece("{}", name="get"), piece("{}", name="put")]}
    assert joined(tmp_path, beside) == ([("get", {}, None), ("put", {}, None)], [])


@pytest.mark.parametrize(("deltas", "why"), [
    ([{"tool_calls": [piece("{}")]}], "neither `index` nor `id`"),
    ([{"tool_calls": [piece("{}", name="get")]}] * 2, "neither `index` nor `id`"),
    ([{"tool_calls": ["get"]}], "tool call is no object"),
])  # fmt: skip
def test_a_piece_of_nobodys_call_is_an_error(tmp_path: Path, deltas: list[dict[str, Any]], why: str) -> None:
    calls, (error,) = joined(tmp_path, *deltas)
    assert not calls and why in error.reason and "log the whole answer instead" in error.reason


SHARED = [piece('{"q": "Paris"}', index=0, id="c", name="get"), piece('{"q": "Rome"}', index=0, id="d", name="put")]


def test_calls_that_share_an_index_are_apart_where_each_is_whole(tmp_path: Path) -> None:
    made = [("get", {"q": "Paris"}, "c"), ("put", {"q": "Rome"}, "d")]
    assert joined(tmp_path, *({"tool_calls": [call]} for call in SHARED)) == (made, [])
    assert joined(tmp_path, {"tool_calls": SHARED}) == (made, [])
    in_pieces = [{"tool_calls": [piece(text, index=0)]} for text in ('{"q": ', '"Rome"}')]
    begins = {"tool_calls": [piece(index=0, id="d", name="put")]}
    assert joined(tmp_path, {"tool_calls": SHARED[:1]}, begins, *in_pieces) == (made, [])
    late = {"tool_calls": [piece(index=0, id="c")]}
    assert joined(tmp_path, {"tool_calls": SHARED}, late) == (made, [])
    nameless = [{**call, "id": ""} for call in SHARED]
    assert joined(tmp_path, *({"tool_calls": [call]} for call in nameless)) == ([(*m[:2], "") for m in made], [])
    objects = [{**SHARED[0], "function": {"name": "get", "arguments": {}}}, SHARED[1]]
    assert joined(tmp_path, {"tool_calls": objects}) == ([("get", {}, "c"), made[1]], [])


def test_an_id_for_each_piece_of_a_call_makes_no_calls_of_them(tmp_path: Path) -> None:
    texts = ["", '{"q": ', '"Paris"}', ""]
    deltas = [{"tool_calls": [piece(text, index=0, id=f"c{at}")]} for at, text in enumerate(texts)]
    deltas[0]["tool_calls"][0]["function"]["name"] = "get"
    assert joined(tmp_path, *deltas) == ([("get", {"q": "Paris"}, "c0")], [])


@pytest.mark.parametrize("calls", [
    [piece('{"q": ', index=0, id="c", name="get"), SHARED[1]], [piece("", index=0, id="c", name="get"), SHARED[1]],
    [SHARED[0], piece('{"q": ', index=0, name="put")],
])  # fmt: skip
def test_calls_that_share_an_index_and_cannot_be_told_apart_are_an_error(tmp_path: Path, calls: list[Any]) -> None:
    for deltas in ([{"tool_calls": calls}], [{"tool_calls": [call]} for call in calls]):
        made, (error,) = joined(tmp_path, *deltas)
        assert not made and "several streamed tool calls share the index 0" in error.reason


def test_a_second_content_block_at_an_index_is_an_error(tmp_path: Path) -> None:
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "It"}}
    start = {"type": "message_start", "message": {"role": "assistant", "content": []}}
    found, (error,) = run_of(tmp_path, streamed([start, block, block, {"type": "message_stop"}]))
    assert not found and "event 3 of the streamed answer begins a second content block" in error.reason


@pytest.mark.parametrize("delta", ["It is 42.", ["It is 42."], 42, False])
def test_a_delta_that_is_no_object_is_an_error(tmp_path: Path, delta: Any) -> None:
    said = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    anthropic = [{"type": "message_start", "message": {"role": "assistant", "content": []}}]
    anthropic += [{"type": "content_block_delta", "index": 0, "delta": delta}, {"type": "message_stop"}]
    for events in ([chunk(role="assistant"), said, chunk("stop"), "[DONE]"], anthropic):
        found, (error,) = run_of(tmp_path, streamed(sse(*events)))
        assert not found and "event 2 of the streamed answer has a delta that is no object" in error.reason


@pytest.mark.parametrize("text", ["data: the numbers\ndata: 4", "event: birth\nShe was born.", 'x\ndata: {"a": 1}'])
def test_an_answer_that_only_looks_like_a_stream_is_words(tmp_path: Path, text: str) -> None:
    (run,), errors = run_of(tmp_path, streamed(text))
    assert texts(run) == ["q", text] and not errors


KEYS = ["choices", "type", "delta", "index", "content_block", "message", "usage", "error", "response"]


@settings(max_examples=150, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["error", "message_start", "message_delta", "x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_any_event_is_joined_or_refused(event: Any) -> None:
    for body in (sse({"choices": [], "type": "message_start"}, event, "[DONE]"), [{"type": "message_start"}, event]):
        with contextlib.suppress(ValueError):
            calls.parse(SourceItem(streamed(body), "x", 1))


def test_parts_of_a_list_are_joined_by_their_index(tmp_path: Path) -> None:
    parts = [{"index": 0, "text": "Hm"}, {"index": 1, "text": "So"}, {"index": 0, "text": "m."}, {"text": "!"}]
    deltas = [chunk(reasoning_details=[part]) for part in parts]
    (run,), errors = run_of(tmp_path, streamed(sse(*deltas, chunk("stop", content="4"), "[DONE]")))
    details = [{"text": "Hmm."}, {"text": "So"}, {"text": "!"}]
    assert sent(run)[1] == {"role": "assistant", "content": "4", "reasoning_details": details} and not errors
