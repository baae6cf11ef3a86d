"""Logs of model calls: what LiteLLM hands to its loggers, batches, proxies; which calls are one run."""

from __future__ import annotations

import contextlib
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrm.errors import ReadError
from rrm.readers import calls, read
from rrm.readers.base import Item
from rrm.trajectory import Trajectory

SAMPLES = Path(__file__).parent / "samples"


def run_of(folder: Path, *records: Any) -> tuple[list[Trajectory], list[ReadError]]:
    path = folder / "log.txt"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    errors: list[ReadError] = []
    found = list(read(path, on_error=errors.append))
    assert all(t.source and t.source.format == "calls" and Trajectory.from_json(t.to_json()) == t for t in found)
    assert sum(t.meta["lines"] for t in found) + len(errors) == len(records)
    return found, errors


def said(trajectory: Trajectory) -> list[dict[str, Any]]:
    return [m.model_dump(exclude_none=True) for m in trajectory.messages]


def texts(trajectory: Trajectory) -> list[str]:
    return [m.text() for m in trajectory.messages]


def chat(*messages: str, reply: str | None, **more: Any) -> dict[str, Any]:
    """A call: messages are `s: …`, `u: …`, `a: …`; a failed one has no reply."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    asked = [{"role": roles[m[0]], "content": m[3:]} for m in messages]
    answer = {"choices": [{"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}]}
    failed = {"status_code": 500, "body": {"error": {"message": "busy"}}}
    return {"request": {"model": "m", "messages": asked}, "response": failed if reply is None else answer} | more


def test_litellms_payloads_one_run_a_conversation() -> None:
    loop, other = read(SAMPLES / "litellm.jsonl")
    call = {"id": "call_1", "name": "till", "arguments": {"e": "6*7"}}
    assert said(loop) == [
        {"role": "system", "content": "Use the till."},
        {"role": "user", "content": "What is 6 x 7?"},
        {"role": "assistant", "tool_calls": [call], "timestamp": 1.5},
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "It is 42.", "timestamp": 4.5},
        {"role": "user", "content": "What is 6 x 7?"},
        {"role": "assistant", "content": "Still 42.", "timestamp": 5.5},
    ]
    assert loop.id == "a" and loop.outcome is None and loop.task == "What is 6 x 7?"
    assert {k: loop.meta[k] for k in ("calls", "lines", "joined_by", "failed_calls")} == {
        "calls": 4,
        "lines": 4,
        "joined_by": "trace_id",
        "failed_calls": 1,
    }
    assert [t["function"]["name"] for t in loop.tools or []] == ["till"]
    assert loop.meta["response"]["finish_reason"] == "stop" and loop.meta["response"]["usage"]["total_tokens"] == 30
    assert loop.meta["response_cost"] == 1.35e-05 and "messages" not in loop.meta
    assert texts(other) == ["What is 6 x 7?", "Forty-two."] and other.id == "chatcmpl-2"
    assert other.meta["calls"] == 1 and "joined_by" not in other.meta
    assert loop.source and loop.source.line == 1 and other.source and other.source.line == 2


def test_without_an_id_the_history_joins_in_any_order(tmp_path: Path) -> None:
    first = chat("s: x", "u: q", reply="a1")
    second = chat("s: x", "u: q", "a: a1", "u: r", reply="a2")
    third = chat("s: x", "u: q", "a: a1", "u: r", "a: a2", "u: t", reply=None)
    for order in ([first, second, third], [third, second, first], [second, first, third]):
        (run,), errors = run_of(tmp_path, *order)
        assert texts(run) == ["x", "q", "a1", "r", "a2", "t"] and not errors
        assert run.meta["joined_by"] == "prefix" and run.meta["calls"] == 3 and run.meta["failed_calls"] == 1
        assert run.meta["response"]["error"] == {"message": "busy"} and run.meta["request"] == {"model": "m"}


def test_parallel_conversations_and_branches_stay_apart(tmp_path: Path) -> None:
    start = [chat("u: q", reply="a1"), chat("u: q", reply="b1")]
    on = [chat("u: q", "a: b1", "u: r", reply="b2"), chat("u: q", "a: a1", "u: r", reply="a2")]
    again = chat("u: q", "a: a1", "u: r", reply="c2")
    found, _ = run_of(tmp_path, *start, *on, again)
    assert [texts(t)[1::2] for t in found] == [["a1", "a2"], ["b1", "b2"], ["a1", "c2"]]


def test_a_shared_id_lets_the_system_prompt_change_and_keeps_sub_agents_apart(tmp_path: Path) -> None:
    session = {"metadata": {"session_id": "s"}}
    one = chat("s: at 10:00", "u: q", reply="a1", **session)
    two = chat("s: at 10:01", "u: q", "a: a1", "u: r", reply="a2", **session)
    helper = chat("s: you search", "u: find", reply="found", **session)
    stranger = chat("s: at 10:01", "u: q", "a: a1", "u: r", reply="z", headers={"X-Session-Id": "t"})
    found, _ = run_of(tmp_path, one, helper, two, stranger)
    assert [texts(t) for t in found] == [
        ["at 10:00", "q", "a1", "r", "a2"],
        ["you search", "find", "found"],
        ["at 10:01", "q", "a1", "r", "z"],
    ]
    assert [t.meta.get("joined_by") for t in found] == ["session_id", None, None]
    assert found[0].id == "s"
    apart, _ = run_of(tmp_path, {**one, "metadata": {}}, {**two, "metadata": {}})
    assert len(apart) == 2


def response(number: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"object": "response", "id": number, "output": [message], "status": "completed", **more}


def test_responses_whose_history_the_server_keeps(tmp_path: Path) -> None:
    def call(text: str, answer: dict[str, Any]) -> dict[str, Any]:
        asked = {"model": "m", "instructions": "be kind", "input": text}
        return {
            "request": {"url": "/v1/responses", "body": json.dumps(asked)},
            "response": {"body": json.dumps(answer)},
        }

    first = call("q", response("r1", "a1"))
    second = call("r", response("r2", "a2", previous_response_id="r1"))
    branch = call("s", response("r3", "a3", previous_response_id="r1"))
    circle = call("t", response("r4", "a4", previous_response_id="r5"))
    back = call("u", response("r5", "a5", previous_response_id="r4"))
    found, errors = run_of(tmp_path, second, branch, first, circle, back)
    assert not errors
    assert [texts(t) for t in found] == [
        ["be kind", "q", "a1", "r", "a2"],
        ["be kind", "q", "a1", "s", "a3"],
        ["be kind", "t", "a4", "u", "a5"],
    ]
    assert [t.meta["joined_by"] for t in found] == ["previous_response_id"] * 3
    assert found[0].meta["request"] == {"url": "/v1/responses", "model": "m"}
    talk = {"conversation": {"id": "conv"}}
    late, early = (
        call("r", response("r2", "a2", created_at=2.0, **talk)),
        call("q", response("r1", "a1", created_at=1.0, **talk)),
    )
    (run,), _ = run_of(tmp_path, late, early)
    assert texts(run) == ["be kind", "q", "a1", "r", "a2"]


def test_anthropics_messages_through_a_proxy(tmp_path: Path) -> None:
    use = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "tool_use", "id": "t", "name": "ls", "input": {"d": "."}},
    ]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "a.txt"}]
    head = {"model": "c", "system": [{"type": "text", "text": "sys"}], "tools": [{"name": "ls", "input_schema": {}}]}
    ask = {"role": "user", "content": "list"}
    one = {
        "type": "message",
        "role": "assistant",
        "content": use,
        "stop_reason": "tool_use",
        "usage": {"output_tokens": 3},
    }
    two = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "a.txt"}],
        "stop_reason": "end_turn",
    }
    back = [ask, {"role": "assistant", "content": use[1:]}, {"role": "user", "content": result}]
    (run,), _ = run_of(
        tmp_path,
        {"request_body": head | {"messages": [ask]}, "response_body": one, "request_id": "1"},
        {"request_body": head | {"messages": back}, "response_body": two, "request_id": "2", "passed": False},
    )
    assert said(run) == [
        {"role": "system", "content": "sys"},
        {"role": "user", "content": "list"},
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "t", "name": "ls", "arguments": {"d": "."}}],
        },
        {"role": "tool", "content": "a.txt", "tool_call_id": "t"},
        {"role": "assistant", "content": "a.txt"},
    ]
    assert run.tools == [{"type": "function", "function": {"name": "ls", "parameters": {}}}]
    assert run.meta["response"]["stop_reason"] == "end_turn" and run.id == "2"
    assert run.outcome is None and run.meta["passed"] is False, "a call that passed is no run that succeeded"


def test_lines_of_batches(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    asked = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body}
    message = {"role": "assistant", "content": "a", "refusal": None}
    answer = {
        "status_code": 200,
        "request_id": "r",
        "body": {"id": "c", "choices": [{"message": message}], "usage": {}},
    }
    done = {"id": "batch_req", "custom_id": "one", "response": answer, "error": None}
    alone = {**asked, "custom_id": "two"}
    lost = {**done, "custom_id": "three"}
    claude = {"custom_id": "four", "params": body}
    result = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "b"}]}
    ended = {"custom_id": "four", "result": {"type": "succeeded", "message": result}}
    broke = {"custom_id": "two", "result": {"type": "errored", "error": {"message": "no"}}}
    found, errors = run_of(tmp_path, done, asked, alone, lost, claude, ended, broke)
    assert [texts(t) for t in found] == [["q", "a"], ["q"], ["q", "b"]]
    assert [t.id for t in found] == ["one", "two", "four"] and [t.meta["lines"] for t in found] == [2, 2, 2]
    assert found[0].meta["request"] == {"model": "m"} and found[0].meta["response"]["status_code"] == 200
    assert found[1].meta["failed_calls"] == 1
    assert [e.line for e in errors] == [4] and "custom_id 'three'" in errors[0].reason
    assert "cat input.jsonl output.jsonl" in errors[0].reason


def test_several_choices_headers_and_plain_answers(tmp_path: Path) -> None:
    record = chat("u: q", reply="a")
    record["response"]["choices"].append({"message": {"role": "assistant", "content": "b"}})
    record["request"] = {"body": record["request"], "headers": {"Authorization": "Bearer k", "X-Trace-Id": "9"}}
    plain = {"input": [{"role": "user", "content": "p"}], "output": "said", "score": 0.5}
    legacy = {"request": {"model": "m", "prompt": "once"}, "response": {"choices": [{"text": " upon"}]}}
    answer = {"status_code": 200, "body": {"choices": [{"message": {"role": "assistant", "content": "c"}}]}}
    bodies = {"body": {"model": "m", "messages": [{"role": "user", "content": "b"}]}, "response": answer}
    first, second, third, fourth = run_of(tmp_path, record, plain, legacy, bodies)[0]
    assert texts(fourth) == ["b", "c"]
    assert texts(first) == ["q", "a"] and len(first.meta["response"]["other_choices"]) == 1
    assert first.meta["request"]["headers"] == {"Authorization": "[removed]", "X-Trace-Id": "9"}
    assert texts(second) == ["p", "said"] and second.outcome == 0.5
    assert texts(third) == ["once", " upon"]


@pytest.mark.parametrize(
    "record",
    [
        {"input": "a text", "output": "a text", "score": 1.0},
        {"messages": [{"role": "user", "content": "q"}], "response": "a data set's column"},
        {"request": {"messages": [{"role": "user", "content": "q"}]}},
        {"messages": [{"role": "user", "content": "q"}], "input": [{"role": "user", "content": "q"}], "output": "o"},
        response("r", "x", input=[{"role": "user", "content": "q"}]),
        {"custom_id": "x", "body": {"model": "embed", "texts": ["a"]}},
    ],
)
def test_what_is_no_log_of_calls(record: Any) -> None:
    assert not calls.sniff(record)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.sampled_from("xy"), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 99))
def test_every_conversation_comes_out_whole_whatever_the_order(talks: list[list[str]], seed: int) -> None:
    """Conversations of `xy` turns, cut into calls and shuffled: each call is in one run, and no longest talk is lost."""
    records, longest = [], set[tuple[str, ...]]()
    for number, turns in enumerate(talks):
        said: list[str] = [f"u: {number}"]
        for turn in turns:
            records.append(chat(*said, reply=turn))
            said += [f"a: {turn}", f"u: {turn}"]
        longest.add(tuple(m[3:] for m in said[:-1]))
    random.Random(seed).shuffle(records)
    found = [i for i in calls.gather(Item(r, "x", n) for n, r in enumerate(records, 1)) if isinstance(i, Item)]
    assert sum(len(i.context["run"].calls) for i in found) == len(records)
    assert {tuple(m["content"] for m in i.context["run"].messages) for i in found} == longest


def test_no_key_is_left_in_meta_however_headers_are_written(tmp_path: Path) -> None:
    flat, pairs, named, nested = (chat(f"u: {k}", reply="a") for k in range(4))
    flat["request"] |= {"method": "POST", "headers": {"Authorization": "KEY", "X-Trace": "9"}}
    pairs = {**pairs, "Headers": [["Authorization", "KEY"], ["accept", "*/*"]]}
    named = {**named, "request_headers": [{"name": "cookie", "value": "KEY"}, {"name": "accept", "value": "*/*"}]}
    proxied = {"headers": {"x-api-key": ["KEY"]}, "method": "POST"}
    nested = {**nested, "metadata": {"proxied": proxied}, "params": {"api_key": "KEY", "top_p": 1}}
    found, _ = run_of(tmp_path, flat, pairs, named, nested)
    assert not any("KEY" in t.to_json() for t in found)
    assert found[0].meta["request"]["headers"] == {"Authorization": "[removed]", "X-Trace": "9"}
    assert found[1].meta["Headers"] == [["Authorization", "[removed]"], ["accept", "*/*"]]
    assert found[2].meta["request_headers"][1] == {"name": "accept", "value": "*/*"}
    assert found[3].meta["metadata"]["proxied"]["method"] == "POST"
    assert found[3].meta["params"] == {"api_key": "[removed]", "top_p": 1}


def test_runs_that_begin_with_the_same_call_are_whole(tmp_path: Path) -> None:
    first = chat("u: q", reply="first")
    calls = [first, first, *(chat("u: q", "a: first", f"u: {k}?", reply=k) for k in "xy")]
    found, _ = run_of(tmp_path, *calls)
    assert [texts(t) for t in found] == [["q", "first", "x?", "x"], ["q", "first", "y?", "y"]]
    assert [t.meta["calls"] for t in found] == [2, 2]


def sse(*events: Any, names: bool = False, gap: str = "\n\n") -> str:
    """Events as the body of a streamed answer; `names`: as Anthropic and Responses write them, with an `event:` line."""
    return "".join(
        (f"event: {e['type']}\n" if names else "") + f"data: {e if isinstance(e, str) else json.dumps(e)}{gap}"
        for e in events
    )


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-7",
        "object": "chat.completion.chunk",
        "model": "m-1",
        "system_fingerprint": "fp",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


def tool(index: int, arguments: str, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def streamed(body: Any, **more: Any) -> dict[str, Any]:
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "q"}], **more}
    return {"request": asked, "response": body}


CHUNKS = [
    chunk(role="assistant", content=""),
    chunk(reasoning_content="Look it "),
    chunk(reasoning_content="up."),
    chunk(content="One \u2028mo"),
    chunk(content="ment."),
    chunk(tool_calls=[tool(0, "", "call_a", "search")]),
    chunk(tool_calls=[tool(0, '{"q": "Pa')]),
    chunk(tool_calls=[tool(1, "", "call_b", "search")]),
    chunk(tool_calls=[tool(0, 'ris"}')]),
    chunk(tool_calls=[tool(1, '{"q": "Rome"}', "")]),
    chunk("tool_calls"),
    {"id": "chatcmpl-7", "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 9}},
]


@pytest.mark.parametrize(
    "body",
    [
        sse(*CHUNKS, "[DONE]"),
        ": comment\n\n" + sse(*CHUNKS, gap="\n"),
        sse(*CHUNKS, "[DONE]", gap="\r\n\r\n"),
        {"status_code": 200, "headers": {}, "body": sse(*CHUNKS, "[DONE]")},
        CHUNKS,
        json.dumps(CHUNKS),
    ],
    ids=["sse", "no blank lines", "crlf", "in an envelope", "list", "list as text"],
)
def test_a_streamed_completion_is_joined(tmp_path: Path, body: Any) -> None:
    (run,), errors = run_of(tmp_path, streamed(body))
    assert not errors
    assert said(run)[1:] == [
        {
            "role": "assistant",
            "content": "One \u2028moment.",
            "reasoning_content": "Look it up.",
            "tool_calls": [
                {"name": "search", "arguments": {"q": "Paris"}, "id": "call_a"},
                {"name": "search", "arguments": {"q": "Rome"}, "id": "call_b"},
            ],
        }
    ]
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
        {"type": "message_start", "message": start},
        block(0, "thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="Hm"),
        delta(0, type="thinking_delta", thinking="m."),
        delta(0, type="signature_delta", signature="xx"),
        {"type": "content_block_stop", "index": 0},
        block(1, "text", text=""),
        {"type": "ping"},
        delta(1, type="text_delta", text="Let me "),
        delta(1, type="text_delta", text="see."),
        block(2, "tool_use", id="toolu_1", name="search", input={}),
        delta(2, type="input_json_delta", partial_json=""),
        delta(2, type="input_json_delta", partial_json='{"q": "Pa'),
        delta(2, type="input_json_delta", partial_json='ris"}'),
        block(3, "tool_use", id="toolu_2", name="now", input={}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    (run,), errors = run_of(tmp_path, streamed(sse(*events, names=True), system="be kind"))
    assert said(run)[2:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hmm.",
            "tool_calls": [
                {"name": "search", "arguments": {"q": "Paris"}, "id": "toolu_1"},
                {"name": "now", "arguments": {}, "id": "toolu_2"},
            ],
        }
    ]
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


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (sse(*CHUNKS[:5]), "breaks off after 5 events"),
        (sse(*CHUNKS)[:-40], "event 12 of the streamed answer is not JSON"),
        (sse("[DONE]"), "a stream of events of no API that is known"),
        (sse({"candidates": []}), r"no API that is known \(they hold candidates\)"),
        (sse(CHUNKS[-1], "[DONE]"), "breaks off"),
    ],
)
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
    made = [call for run in found for call in said(run)[1]["tool_calls"]]
    return [(call["name"], call["arguments"], call.get("id")) for call in made], errors


@pytest.mark.parametrize(
    "pieces",
    [
        [("ge", ""), ("t", '{"a"'), (None, ": 1}")],
        [("g", ""), ("e", ""), ("t", '{"a": 1}'), ("", "")],
        [("get", '{"a"'), ("get", ": "), ("get", "1}")],
        [("ge", ""), ("t", '{"a"'), ("get", ": 1}")],
    ],
)
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


@pytest.mark.parametrize(
    ("deltas", "why"),
    [
        ([{"tool_calls": [piece("{}")]}], "neither `index` nor `id`"),
        ([{"tool_calls": [piece("{}", name="get")]}] * 2, "neither `index` nor `id`"),
        ([{"tool_calls": ["get"]}], "tool call is no object"),
    ],
)
def test_a_piece_of_nobodys_call_is_an_error(tmp_path: Path, deltas: list[dict[str, Any]], why: str) -> None:
    calls, (error,) = joined(tmp_path, *deltas)
    assert not calls and why in error.reason and "log the whole answer instead" in error.reason


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
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.sampled_from(["error", "message_start", "message_delta", "x", ""]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_event_is_joined_or_refused(event: Any) -> None:
    for body in (sse({"choices": [], "type": "message_start"}, event, "[DONE]"), [{"type": "message_start"}, event]):
        with contextlib.suppress(ValueError):
            calls.parse(Item(streamed(body), "x", 1))
