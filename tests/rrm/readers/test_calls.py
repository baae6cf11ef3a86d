"""Logs of model calls: what LiteLLM hands to its loggers, batches, proxies; which calls are one run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from call_logs import chat, response, run_of, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from log_rows import sent

from rrm.readers import calls, read
from rrm.readers.base import SourceItem

SAMPLES = Path(__file__).parent / "samples"


def test_litellms_payloads_one_run_a_conversation() -> None:
    loop, other = read(SAMPLES / "litellm.jsonl")
    call = {"id": "call_1", "name": "till", "arguments": {"e": "6*7"}}
    assert sent(loop) == [
        {"role": "system", "content": "Use the till."}, {"role": "user", "content": "What is 6 x 7?"},
        {"role": "assistant", "tool_calls": [call], "timestamp": 1.5},
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "It is 42.", "timestamp": 4.5}, {"role": "user", "content": "What is 6 x 7?"},
        {"role": "assistant", "content": "Still 42.", "timestamp": 5.5},
    ]  # fmt: skip
    assert loop.id == "a" and loop.outcome is None and loop.task == "What is 6 x 7?"
    counts = {"calls": 4, "lines": 4, "joined_by": "trace_id", "failed_calls": 1}
    assert {k: loop.meta[k] for k in counts} == counts
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
        ["at 10:00", "q", "a1", "r", "a2"], ["you search", "find", "found"], ["at 10:01", "q", "a1", "r", "z"],
    ]  # fmt: skip
    assert [t.meta.get("joined_by") for t in found] == ["session_id", None, None]
    assert found[0].id == "s"
    apart, _ = run_of(tmp_path, {**one, "metadata": {}}, {**two, "metadata": {}})
    assert len(apart) == 2


def test_responses_whose_history_the_server_keeps(tmp_path: Path) -> None:
    def call(text: str, answer: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps({"model": "m", "instructions": "be kind", "input": text})
        return {"request": {"url": "/v1/responses", "body": body}, "response": {"body": json.dumps(answer)}}

    first = call("q", response("r1", "a1"))
    second = call("r", response("r2", "a2", previous_response_id="r1"))
    branch = call("s", response("r3", "a3", previous_response_id="r1"))
    circle = call("t", response("r4", "a4", previous_response_id="r5"))
    back = call("u", response("r5", "a5", previous_response_id="r4"))
    found, errors = run_of(tmp_path, second, branch, first, circle, back)
    assert not errors
    assert [texts(t) for t in found] == [
        ["be kind", "q", "a1", "r", "a2"], ["be kind", "q", "a1", "s", "a3"], ["be kind", "t", "a4", "u", "a5"],
    ]  # fmt: skip
    assert [t.meta["joined_by"] for t in found] == ["previous_response_id"] * 3
    assert found[0].meta["request"] == {"url": "/v1/responses", "model": "m"}
    talk = {"conversation": {"id": "conv"}}
    early = call("q", response("r1", "a1", created_at=1.0, **talk))
    (run,), _ = run_of(tmp_path, call("r", response("r2", "a2", created_at=2.0, **talk)), early)
    assert texts(run) == ["be kind", "q", "a1", "r", "a2"]


def test_anthropics_messages_through_a_proxy(tmp_path: Path) -> None:
    use = [{"type": "thinking", "thinking": "hm", "signature": "x"}]
    use += [{"type": "tool_use", "id": "t", "name": "ls", "input": {"d": "."}}]
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "a.txt"}]
    head = {"model": "c", "system": [{"type": "text", "text": "sys"}], "tools": [{"name": "ls", "input_schema": {}}]}
    ask = {"role": "user", "content": "list"}
    message = {"type": "message", "role": "assistant"}
    one = message | {"content": use, "stop_reason": "tool_use", "usage": {"output_tokens": 3}}
    two = message | {"content": [{"type": "text", "text": "a.txt"}], "stop_reason": "end_turn"}
    back = [ask, {"role": "assistant", "content": use[1:]}, {"role": "user", "content": result}]
    (run,), _ = run_of(
        tmp_path,
        {"request_body": head | {"messages": [ask]}, "response_body": one, "request_id": "1"},
        {"request_body": head | {"messages": back}, "response_body": two, "request_id": "2", "passed": False},
    )
    assert sent(run) == [
        {"role": "system", "content": "sys"}, {"role": "user", "content": "list"},
        {"role": "assistant", "reasoning_content": "hm", "tool_calls": [{
            "id": "t", "name": "ls", "arguments": {"d": "."}
        }]},
        {"role": "tool", "content": "a.txt", "tool_call_id": "t"}, {"role": "assistant", "content": "a.txt"},
    ]  # fmt: skip
    assert run.tools == [{"type": "function", "function": {"name": "ls", "parameters": {}}}]
    assert run.meta["response"]["stop_reason"] == "end_turn" and run.id == "2"
    assert run.outcome is None and run.meta["passed"] is False, "a call that passed is no run that succeeded"


def test_lines_of_batches(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    asked = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body}
    message = {"role": "assistant", "content": "a", "refusal": None}
    answer = {"status_code": 200, "request_id": "r", "body": {
        "id": "c", "choices": [{"message": message}], "usage": {}
    }}  # fmt: skip
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


@pytest.mark.parametrize("record", [
    {"input": "a text", "output": "a text", "score": 1.0},
    {"messages": [{"role": "user", "content": "q"}], "response": "a data set's column"},
    {"request": {"messages": [{"role": "user", "content": "q"}]}},
    {"messages": [{"role": "user", "content": "q"}], "input": [{"role": "user", "content": "q"}], "output": "o"},
    response("r", "x", input=[{"role": "user", "content": "q"}]),
    {"custom_id": "x", "body": {"model": "embed", "texts": ["a"]}},
])  # fmt: skip
def test_what_is_no_log_of_calls(record: Any) -> None:
    assert not calls.sniff(record)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.sampled_from("xy"), min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 99))
def test_every_conversation_comes_out_whole_whatever_the_order(talks: list[list[str]], seed: int) -> None:
    records, longest = [], set[tuple[str, ...]]()
    for number, turns in enumerate(talks):
        said: list[str] = [f"u: {number}"]
        for turn in turns:
            records.append(chat(*said, reply=turn))
            said += [f"a: {turn}", f"u: {turn}"]
        longest.add(tuple(m[3:] for m in said[:-1]))
    random.Random(seed).shuffle(records)
    found = [
        i for i in calls.gather(SourceItem(r, "x", n) for n, r in enumerate(records, 1)) if isinstance(i, SourceItem)
    ]
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


def served(
    number: str, text: str, reply: str, *, made: Any = 1, after: str | None = None, **more: Any
) -> dict[str, Any]:
    """A call of the Responses API; of a conversation that the server keeps, if it goes on from no other."""
    talk = {"previous_response_id": after} if after else {"conversation": {"id": "conv"}}
    answer = response(number, reply, created_at=made, **talk, **more)
    return {"request": {"model": "m", "input": text}, "response": answer}


@pytest.mark.parametrize("times", [(1767225600, "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"), (1, 2, 3)])
@pytest.mark.parametrize("named", [{}, {"after": "r1", "conversation": {"id": "conv"}}])
def test_calls_of_a_conversation_follow_one_another_as_they_were_made(
    tmp_path: Path, times: tuple[Any, ...], named: dict[str, Any]
) -> None:
    first, last = served("r1", "q", "a", made=times[0]), served("r3", "s", "c", made=times[2])
    kept = [first, served("r2", "r", "b", made=times[1], **named), last]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        (run,), errors = run_of(tmp_path, *(kept[at] for at in order))
        assert texts(run) == ["q", "a", "r", "b", "s", "c"] and not errors


@pytest.mark.parametrize(("time", "why"), [(None, "is missing"), ("noon", "'noon' is neither")])
def test_calls_of_a_conversation_without_an_order_are_an_error(tmp_path: Path, time: Any, why: str) -> None:
    late, early = served("r2", "r", "b", made=time), served("r1", "q", "a")
    found, errors = run_of(tmp_path, late, early)
    assert not found and [e.line for e in errors] == [1, 2]
    for error in errors:
        assert "the 2 responses of the conversation 'conv' have no order" in error.reason
        assert why in error.reason and "line 1" in error.reason and "(format calls)" in error.reason
    (run,), errors = run_of(tmp_path, late)  # one alone needs none
    assert texts(run) == ["r", "b"] and not errors


@pytest.mark.parametrize("order", [(0, 1, 0, 1), (0, 0, 1, 1), (1, 0, 0, 1)])
def test_a_log_that_was_appended_twice_is_read_once(tmp_path: Path, order: tuple[int, ...]) -> None:
    kept = [served("r1", "q", "a"), served("r2", "r", "b", after="r1")]
    sent = [chat("u: q", reply="a"), chat("u: q", "a: a", "u: r", reply="b")]
    for at, call in enumerate(sent):
        call["response"] |= {"id": f"chatcmpl-{at}", "created": 7}
    for records in (kept, sent):
        (run,), errors = run_of(tmp_path, *(records[at] for at in order))
        assert texts(run) == ["q", "a", "r", "b"] and run.meta["lines"] == 4 and not errors


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_a_response_logged_twice_the_completed_one_is_kept(tmp_path: Path, order: tuple[int, ...]) -> None:
    calls = served("r1", "q", "It"), served("r1", "q", "It is so.")
    calls[0]["response"]["status"] = "in_progress"
    (run,), errors = run_of(tmp_path, *(calls[at] for at in order))
    assert texts(run) == ["q", "It is so."] and not errors


@pytest.mark.parametrize("other", [served("r1", "q", "two"), served("r1", "r", "one")])
def test_two_calls_whose_responses_have_one_id_are_not_taken_for_one(tmp_path: Path, other: dict[str, Any]) -> None:
    (run,), (error,) = run_of(tmp_path, other, served("r1", "q", "one"))
    assert texts(run) == ["q", "one"] and error.line == 1
    assert "another response with the id 'r1' and another request or output is kept (line 2)" in error.reason


def test_one_id_for_all_answers_loses_none(tmp_path: Path) -> None:
    said = [("q", "a", 7), ("r", "a", 7), ("q", "b", 7), ("q", "a", 8), ("q", "a", 7)]
    calls = [chat(f"u: {asked}", reply=reply) for asked, reply, _ in said]
    for call, (_, _, made) in zip(calls, said, strict=True):
        call["response"] |= {"id": "chatcmpl", "created": made}
    found, errors = run_of(tmp_path, *calls)
    assert [texts(t) for t in found] == [["q", "a"], ["r", "a"], ["q", "b"], ["q", "a"]] and not errors
