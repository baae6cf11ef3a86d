"""Traces of OpenTelemetry and LangSmith as their own classes write them (samples/README.md), of Langfuse, and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_rows import SAMPLES, lines, one, read_lines, read_text, rows, sent, talk, turns

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, sniff
from rrm.readers.spans import ModelSpan, ToolRun, assemble

FILES = ("otel_otlp.json", "otel_otlp.jsonl", "otel_console.json")
TRACE = "0af7651916cd43dd8448eb211c80319c"


def traces(tmp_path: Path, *lines: Any, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    return read_lines(tmp_path / "spans.jsonl", *lines, **options)


def span(number: int, attributes: dict[str, Any], *, trace: str = TRACE, start: int = 0, **more: Any) -> dict[str, Any]:
    """One span of OTLP JSON on a line of its own."""
    values = {k: v if isinstance(v, str) else json.dumps(v) for k, v in attributes.items()}
    listed = [{"key": k, "value": {"stringValue": v}} for k, v in values.items()]
    own = {"traceId": trace, "spanId": f"{number:016x}", "name": "chat", "attributes": listed}
    return own | {"startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str((start + 1) * 10**9)} | more


def exchange(*texts: str) -> dict[str, Any]:
    """The attributes of a call that read all but the last text, a user's and the agent's in turn, and wrote the last."""
    messages = [{"role": m["role"], "parts": [{"type": "text", "content": m["content"]}]} for m in talk(*texts)]
    return {"gen_ai.input.messages": messages[:-1], "gen_ai.output.messages": messages[-1:]}


@pytest.mark.parametrize("file", FILES)
def test_a_trace_is_a_run(file: str) -> None:
    newer, older, flat = read(SAMPLES / file)
    assert [t.id[-1] for t in (newer, older, flat)] == ["1", "2", "3"]
    call = {"name": "width", "arguments": {"of": "door"}, "id": "call_1"}
    first = {"role": "assistant", "content": "", "reasoning_content": "A door is what they mean.", "tool_calls": [call]}
    told = {"role": "tool", "content": "90 cm", "tool_call_id": "call_1", "name": "width", "duration_s": 0.5}
    assert sent(newer) == [
        {"role": "system", "content": "Measure, do not guess."}, {"role": "user", "content": "How wide is the door?"},
        first | {"timestamp": 1700000002.0, "finish_reason": "tool_call"}, told | {"timestamp": 1700000002.5},
        {"role": "assistant", "content": "90 cm.", "timestamp": 1700000004.0, "finish_reason": "stop"},
    ]  # fmt: skip
    function = {"name": "width", "description": "Measure.", "parameters": {"type": "object"}}
    assert newer.tools == [{"type": "function", "function": function}]
    known = ("spans", "model", "agent", "conversation_id", "duration_s", "usage", "evaluations", "resource")
    assert {k: newer.meta[k] for k in known} == {
        "spans": {"invoke_agent": 1, "chat": 2, "execute_tool": 1}, "model": "m-1", "agent": "joiner",
        "conversation_id": "conv-1", "duration_s": 5.0, "usage": {"input_tokens": 60, "output_tokens": 8},
        "evaluations": {"correctness": {"score": 1.0, "label": "pass"}}, "resource": {"service.name": "workshop"},
    }  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_events_and_flat_names(file: str) -> None:
    _, older, flat = read(SAMPLES / file)
    assert turns(older) == [
        ("system", "Measure."), ("user", "How wide is the gate?"), ("assistant", "I measure."),
        ("tool", "no such thing: gate"),  # from the tool's own span: no call read it
    ]  # fmt: skip
    assert older.messages[3].model_dump()["is_error"] is True and older.messages[3].tool_call_id == "call_2"
    assert older.meta["errors"] == ["no such thing: gate"] and older.meta["model"] == "m-2"
    assert turns(flat)[:2] == [("system", "Be brief."), ("user", "How wide is the hatch?")]
    assert flat.messages[2].tool_calls and flat.messages[2].tool_calls[0].arguments == {"of": "hatch"}
    assert flat.tools == [{"type": "function", "function": {"name": "width"}}]
    assert flat.meta["usage"]["input_tokens"] == 12


def test_evaluations_are_an_outcome_only_when_named() -> None:
    assert [t.outcome for t in read(SAMPLES / FILES[0])] == [None] * 3
    named = list(read(SAMPLES / FILES[0], outcome="evaluations.correctness.score?"))
    assert [t.outcome for t in named] == [1.0, None, None]


def test_interleaved_traces_of_one_file_stay_apart_and_their_order_is_time(tmp_path: Path) -> None:
    other = "1" * 32
    (one, two), errors = traces(
        tmp_path, span(2, exchange("a", "b", "c", "d"), start=5), span(9, exchange("z", "y"), trace=other),
        span(1, exchange("a", "b"), start=1),
    )  # fmt: skip
    assert errors == [] and [m.content for m in one.messages] == ["a", "b", "c", "d"]
    assert [m.timestamp for m in one.messages] == [None, 2.0, None, 6.0]  # the first answer as its own span has it
    assert [m.content for m in two.messages] == ["z", "y"] and (one.meta["lines"], two.meta["lines"]) == (2, 1)


def test_a_sub_agent_is_kept_beside_the_longest_conversation(tmp_path: Path) -> None:
    (run,), _ = traces(
        tmp_path, span(1, exchange("a", "b")), span(2, exchange("x", "y"), start=1),
        span(3, exchange("a", "b", "c", "d"), start=2),
    )  # fmt: skip
    assert [m.content for m in run.messages] == ["a", "b", "c", "d"]
    assert [[m["content"] for m in c] for c in run.meta["other_conversations"]] == [["x", "y"]]


def test_openllmetrys_flat_names_and_its_tool_spans(tmp_path: Path) -> None:
    call = {"id": "c", "name": "f", "arguments": '{"x": 1}'}
    names = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q", "gen_ai.completion.0.role": "assistant"}
    names |= {f"gen_ai.completion.0.tool_calls.0.{k}": v for k, v in call.items()}
    ran = {"traceloop.span.kind": "tool", "traceloop.entity.name": "f", "traceloop.entity.output": "seven"}
    (run,), errors = traces(tmp_path, span(1, names), span(2, ran, start=2))
    assert errors == [] and [(m.role, m.text()) for m in run.messages] == [
        ("user", "q"), ("assistant", ""), ("tool", "seven"),
    ]  # fmt: skip
    assert run.messages[1].tool_calls and run.messages[1].tool_calls[0].arguments == {"x": 1}
    assert (run.messages[2].tool_call_id, run.messages[2].duration_s) == ("c", 1.0)


def test_the_oldest_events_hold_lists(tmp_path: Path) -> None:
    def event(kind: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        pair = {"key": f"gen_ai.{kind}", "value": {"stringValue": json.dumps(messages)}}
        return {"name": f"gen_ai.content.{kind}", "attributes": [pair]}

    asked = event("prompt", [message("system", "s"), message("user", "q")])
    events = [asked, event("completion", [message("assistant", "a")])]
    (run,), errors = traces(tmp_path, span(1, {}, events=events))
    assert errors == [] and turns(run) == [("system", "s"), ("user", "q"), ("assistant", "a")]


def test_log_records_carry_the_events_of_their_span(tmp_path: Path) -> None:
    def record(name: str, body: dict[str, Any], at: int) -> dict[str, Any]:
        pairs = [{"key": k, "value": v} for k, v in body.items()]
        own = {"traceId": TRACE, "spanId": f"{1:016x}", "timeUnixNano": str(at), "eventName": name}
        return own | {"body": {"kvlistValue": {"values": pairs}}}

    answer = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "42"}}]}}
    asked = record("gen_ai.user.message", {"content": {"stringValue": "q"}}, 1)
    logs = [record("gen_ai.choice", {"message": answer}, 2), asked]
    (run,), errors = traces(tmp_path, {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}, span(1, {}))
    assert errors == [] and turns(run) == [("user", "q"), ("assistant", "42")]


def test_parts_of_every_kind(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "content": "look"},
        {"type": "blob", "modality": "image", "mime_type": "image/gif", "content": "R0lG"},
        {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"},
        {"type": "odd", "x": 1},
    ]
    (run,), _ = traces(tmp_path, span(1, {"gen_ai.input.messages": [{"role": "user", "parts": parts}]}))
    assert run.messages[0].content == [
        {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, {"type": "odd", "x": 1},
    ]  # fmt: skip


def test_what_holds_no_messages_ismessage(tmp_path: Path) -> None:
    found, errors = traces(tmp_path, span(1, {"http.method": "GET"}), {"resourceSpans": []})
    assert found == [] and len(errors) == 2
    assert "no span in it" in errors[0].reason and "message content switched on" in errors[1].reason
    _, (error,) = traces(tmp_path, span(1, {"gen_ai.input.messages": [{"role": "emperor", "parts": []}]}))
    assert "role 'emperor'" in error.reason


def message(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def test_a_retry_without_an_answer_is_continued_and_a_second_answer_stands_beside() -> None:
    ask, first, second = message("user", "q"), message("assistant", "a"), message("assistant", "b")
    assert assemble([ModelSpan([ask], [], 0), ModelSpan([ask], [first], 1)], []).messages == [ask, first]
    found = assemble([ModelSpan([ask], [first], 0), ModelSpan([ask], [second], 1)], [])
    assert found.messages == [ask, second] and found.others == [[ask, first]]


def test_tool_runs_meet_their_calls_by_id_then_by_name_and_arguments() -> None:
    calls = [{"name": "f", "arguments": '{"x": 1}', "id": "c1"}, {"name": "f", "arguments": {"x": 2}, "id": "c2"}]
    asked = message("assistant", "", tool_calls=calls)
    runs = [ToolRun("f", None, {"x": 2}, "two", start=1), ToolRun("f", "c1", None, "one", start=2)]
    runs.append(ToolRun("g", result="?"))
    found = assemble([ModelSpan([message("user", "q")], [asked])], runs)
    assert [(m["content"], m["tool_call_id"]) for m in found.messages[2:]] == [("one", "c1"), ("two", "c2")]
    assert found.meta() == {"other_tool_runs": [{"name": "g", "arguments": None, "result": "?"}]}


def test_results_without_ids_meet_their_calls_by_name() -> None:
    asked = message("assistant", "", tool_calls=[{"name": n, "arguments": {"x": 1}} for n in ("pay", "mail", "log")])
    results = [message("tool", "sent", name="mail"), message("tool", "declined", name="pay"), message("tool", "kept")]
    runs = [ToolRun("pay", None, {"x": 1}, "declined", True, 1), ToolRun("mail", None, {"x": 1}, "sent", False, 2, 0.5)]
    ask = message("user", "q")
    last = ModelSpan([ask, asked, *results], [message("assistant", "done")], 3)
    found = assemble([ModelSpan([ask], [asked], 0), last], runs)
    results = [(m["name"], m["content"], m.get("is_error"), m.get("duration_s")) for m in found.messages[2:5]]
    assert results == [("mail", "sent", None, 0.5), ("pay", "declined", True, None), ("log", "kept", None, None)]


def test_a_call_that_two_instrumentations_recorded_keeps_what_was_thought(tmp_path: Path) -> None:
    first, second = exchange("a", "b"), exchange("a", "b", "c", "d")
    first["gen_ai.output.messages"][0]["parts"].insert(0, {"type": "reasoning", "content": "hm"})
    spans = [span(k, (first, second)[k // 2], start=k) for k in range(4)]
    (found,), _ = traces(tmp_path, *spans)
    assert [m.text() for m in found.messages] == ["a", "b", "c", "d"] and found.messages[1].reasoning_content == "hm"
    assert "other_conversations" not in found.meta


def test_an_agent_inside_a_tools_span_is_not_the_run(tmp_path: Path) -> None:
    tool = span(1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask"}, start=1)
    inner = span(2, exchange("x", "y", "z", "w"), start=2, parentSpanId=f"{1:016x}")
    (found, below), _ = traces(tmp_path, tool, inner, span(3, exchange("a", "b"), start=3))
    assert [m.text() for m in found.messages] == ["a", "b"] and "other_conversations" not in found.meta
    assert [m.text() for m in below.messages] == ["x", "y", "z", "w"] and below.meta["parent"] == {"trace_id": found.id}


def test_a_chat_logged_beside_the_ids_of_its_trace_is_a_chat() -> None:
    ids = {"trace_id": TRACE, "span_id": "1" * 16, "start_time": 1}
    assert sniff({"messages": [{"role": "user", "content": "q"}], **ids}) == "openai" and sniff(ids) == "otel"


def runs_of(tmp_path: Path, runs: Any, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    return read_text(tmp_path / "runs.json", json.dumps(runs), **options)


def traced(id: str, kind: str, inputs: Any, outputs: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    ids = {"id": id, "trace_id": "t", "run_type": kind, "parent_run_id": parent}
    return {**ids, "inputs": inputs, "outputs": outputs, **more}


def chain(id: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
    return traced(id, "chain", {"question": "q"}, {"answer": id}, parent, **more)


def test_fields_of_a_trace() -> None:
    door, gate = read(SAMPLES / "langsmith_runs.jsonl")
    call = {"name": "width", "arguments": {"of": "door"}, "id": "call_1"}
    assert sent(door) == [
        {"role": "system", "content": "Measure, do not guess."}, {"role": "user", "content": "How wide is the door?"},
        {"role": "assistant", "tool_calls": [call], "timestamp": "2026-01-01T00:00:02Z"},
        {
            "role": "tool", "content": "90 cm", "tool_call_id": "call_1", "name": "width",
            "timestamp": "2026-01-01T00:00:02.500000Z", "duration_s": 0.5,
        },
        {"role": "assistant", "content": "90 cm.", "timestamp": "2026-01-01T00:00:04Z"},
    ]  # fmt: skip
    assert [t.outcome for t in (door, gate)] == [1.0, 0.0] and door.id == "00000000-0000-0001-0000-000000000000"
    assert door.source and door.source.outcome_field == "feedback_stats.correctness.avg"
    assert door.tools == [{"type": "function", "function": {"name": "width", "parameters": {"type": "object"}}}]
    assert door.meta["model"] == "m-1" and door.meta["duration_s"] == 5.0
    assert door.meta["runs"] == {"chain": 1, "llm": 2, "tool": 1} and gate.messages[-1].content == "A metre."


@pytest.mark.parametrize("wrapped", [True, False])
def test_langchains_messages_and_runs_inside_runs(tmp_path: Path, wrapped: bool) -> None:
    def lc_message(kind: str, **fields: Any) -> dict[str, Any]:
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}

    call = {"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}
    answer = {"generations": [[{"text": "", "message": lc_message("AIMessage", content="", tool_calls=[call])}]]}
    llm = traced("b", "llm", {"messages": [[lc_message("HumanMessage", content="q")]]}, answer)
    told = {"output": lc_message("ToolMessage", content="seven", tool_call_id="c", status="error")}
    root = traced("a", "chain", {"input": "q"}, {}, child_runs=[llm, traced("d", "tool", {"input": "{'x': 1}"}, told)])
    (found,), errors = runs_of(tmp_path, {"runs": [root]} if wrapped else [root])
    assert errors == [] and [m.role for m in found.messages] == ["user", "assistant", "tool"]
    assert found.messages[1].tool_calls and found.messages[1].tool_calls[0].arguments == {"x": 1}
    assert found.messages[2].content == "seven" and found.messages[2].model_dump()["is_error"] is True


def test_a_graphs_state_is_the_whole_conversation(tmp_path: Path) -> None:
    state = [{"type": "human", "content": "q"}, {"type": "ai", "content": "a"}, {"type": "human", "content": "and?"}]
    llm = traced("b", "llm", {"messages": [["human", "q"]]}, {"role": "assistant", "content": "a"}, "a")
    root = traced("a", "chain", {}, {"messages": [*state, {"type": "ai", "content": "z"}]})
    (found,), _ = runs_of(tmp_path, [root, llm])
    assert [m.content for m in found.messages] == ["q", "a", "and?", "z"] and "other_conversations" not in found.meta


def test_a_trace_without_a_models_call_is_its_question_and_answer(tmp_path: Path) -> None:
    (found,), _ = runs_of(tmp_path, [chain("a")])
    assert turns(found) == [("user", "q"), ("assistant", "a")]
    _, (error,) = runs_of(tmp_path, [traced("a", "chain", {"x": 1}, {"y": 2})])
    assert "no messages in 1 runs" in error.reason


def rated(trace: str, **stats: float) -> dict[str, Any]:
    feedback = {k: {"n": 1, "avg": v} for k, v in stats.items()}
    return chain(trace) | {"trace_id": trace, "feedback_stats": feedback}


def test_of_several_keys_of_feedback_none_is_chosen(tmp_path: Path) -> None:
    runs = [rated("a", helpful=1.0, correct=0.0)]
    (found,), _ = runs_of(tmp_path, runs)
    fields = ["feedback_stats.helpful.avg", "feedback_stats.correct.avg"]
    assert found.outcome is None and found.meta["outcome_fields"] == fields
    assert runs_of(tmp_path, runs, outcome=fields[0])[0][0].outcome == 1.0


def test_a_one_is_no_success_where_the_key_has_a_five(tmp_path: Path) -> None:
    found, _ = runs_of(tmp_path, [rated("a", stars=1.0), rated("b", stars=5.0)])
    assert [t.outcome for t in found] == [None, None]
    single = [chain(k) | {"trace_id": k} for k in "ab"]
    found, _ = runs_of(tmp_path, [single[0] | {"feedback": [{"key": "ok", "score": True}]}, single[1]])
    assert [t.outcome for t in found] == [1.0, None]


def test_traces_are_found_by_parents_where_no_run_names_one(tmp_path: Path) -> None:
    runs = [traced("b", "llm", {"messages": [["human", "q"]]}, {"output": "a"}, "a"), chain("a")]
    runs += [chain("x", "y"), chain("y", "x")]  # a circle
    found, errors = runs_of(tmp_path, [{k: v for k, v in r.items() if k != "trace_id"} for r in runs])
    assert errors == [] and [t.id for t in found] == ["a", "x"] and found[0].meta["lines"] == 2


def test_an_agent_inside_a_tool_is_not_the_run(tmp_path: Path) -> None:
    asked: list[Any] = [["human", "the tool's task"]]
    root = chain("t", feedback_stats={"correctness": {"n": 1, "avg": 1.0}})
    tool, inner = traced("tool", "tool", {"x": 1}, {"output": "o"}, "t"), traced("inner", "chain", {}, {}, "tool")
    runs = [root, tool, inner]
    for k in range(3):
        runs.append(traced(f"i{k}", "llm", {"messages": list(asked)}, message("assistant", f"i{k}"), "inner"))
        asked += [["ai", f"i{k}"], ["human", "go on"]]
    runs.append(traced("l", "llm", {"messages": [["human", "q"]]}, message("assistant", "a"), "t"))
    (found, below), _ = runs_of(tmp_path, runs)
    assert [m.content for m in found.messages] == ["q", "a"] and found.outcome == 1.0
    assert len(below.messages) == 6 and below.outcome is None and below.meta["parent"] == {"trace_id": found.id}
    (alone,), _ = runs_of(tmp_path, [r for r in runs if r["id"] != "l"])
    assert len(alone.messages) == 6


@pytest.mark.parametrize(("key", "outcome"), [
    ("correctness", 1.0), ("is_correct", 1.0), ("Answer Correctness", 1.0), ("user_score", 1.0), ("taskSuccess", 1.0)
] + [(key, None) for key in ("hallucination", "toxicity", "latency", "incorrect", "format_score", "conciseness")])  # fmt: skip
def test_the_only_feedback_is_the_outcome_where_its_key_says_success(
    tmp_path: Path, key: str, outcome: float | None
) -> None:
    (found,), _ = runs_of(tmp_path, [rated("a", **{key: 1.0})])
    field = f"feedback_stats.{key}.avg"
    assert found.outcome == outcome and found.meta.get("outcome_fields") == (None if outcome else [field])
    assert runs_of(tmp_path, [rated("a", **{key: 1.0})], outcome=field)[0][0].outcome == 1.0


ASK = {"role": "user", "content": "How wide is the door?"}
ANSWERED = [
    ("user", "How wide is the door?", "", []), ("assistant", "", "", [("width", "door", "c1")]),
    ("tool", "4 feet", "c1", []), ("assistant", "It is 4 feet wide.", "", []),
]  # fmt: skip


def of(kind: str, start: int, read: Any, wrote: Any, **more: Any) -> dict[str, Any]:
    time = f"2026-01-01T00:00:0{start}Z"
    return {"id": f"o{start}", "traceId": "t", "type": kind, "startTime": time, "input": read, "output": wrote, **more}


def trace(*observations: dict[str, Any]) -> dict[str, Any]:
    return {"id": "t", "projectId": "p", "observations": list(observations)}


def test_calls_that_langchain_keeps_in_additional_kwargs() -> None:
    called = {"id": "c1", "type": "function", "function": {"name": "width", "arguments": '{"of": "door"}'}}
    calls = message("assistant", "", additional_kwargs={"tool_calls": [called], "kept": 1})
    gave = {"type": "tool", "content": "4 feet", "name": "width", "tool_call_id": "c1", "status": "success"}
    answer = message("assistant", "It is 4 feet wide.")
    found = one(trace(
        of("GENERATION", 1, [ASK], calls),
        of("TOOL", 2, "{'of': 'door'}", gave, name="width", endTime="2026-01-01T00:00:04Z"),
        of("GENERATION", 5, [ASK, calls, message("tool", "4 feet", tool_call_id="c1")], answer),
    ))  # fmt: skip
    assert rows(found) == ANSWERED and found.messages[2].duration_s == 2 and "other_tool_runs" not in found.meta
    assert found.messages[1].model_dump()["additional_kwargs"] == {"kept": 1}


CALL = {"toolCallId": "c1", "toolName": "width"}


@pytest.mark.parametrize("wrote", [
    [{"toolCallType": "function", **CALL, "args": '{"of": "door"}'}],
    {"text": "", "toolCalls": [{**CALL, "input": {"of": "door"}}]},
    [{"type": "tool-call", **CALL, "input": {"of": "door"}}],
])  # fmt: skip
def test_calls_and_results_of_vercels_sdk(wrote: Any) -> None:
    called = {"role": "assistant", "content": [{"type": "tool-call", **CALL, "args": {"of": "door"}}]}
    gave = {"role": "tool", "content": [{"type": "tool-result", **CALL, "result": "4 feet"}]}
    asked = {"role": "user", "content": [{"type": "text", "text": ASK["content"]}]}
    found = one(trace(
        of("GENERATION", 1, [asked], wrote),
        of("GENERATION", 3, json.dumps([asked, called, gave]), "It is 4 feet wide."),
    ))  # fmt: skip
    assert rows(found) == ANSWERED and "other_conversations" not in found.meta


def test_generations_that_were_given_only_what_was_new_are_one_run() -> None:
    system = message("system", "You measure.")
    asked = ("Find the door.", "I look for it.", "It is here. How wide is it?", "4 feet.")
    found = one(trace(
        of("GENERATION", 1, [system, message("user", asked[0])], asked[1]),
        of("GENERATION", 3, [system, message("user", asked[2])], asked[3]),
    ))  # fmt: skip
    assert [m.text() for m in found.messages] == ["You measure.", *asked] and found.task == asked[0]
    assert "other_conversations" not in found.meta


def test_conversations_of_which_one_holds_what_another_was_asked_stay_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two answers to one question are attempts, and other instructions are another agent's."""
    for first in ([ASK], [message("system", "Guess."), message("user", "A door?")]):
        caplog.clear()
        (found,) = lines(tmp_path, [of("GENERATION", 1, first, "3 feet."), of("GENERATION", 3, [ASK], "4 feet.")])
        assert len(found.meta["other_conversations"]) == 1
        assert "1 conversations of traces are in no run" in caplog.text


def test_a_page_of_the_api_and_models_as_exports_name_them(tmp_path: Path) -> None:
    held = [of("GENERATION", 1, [ASK], "4 feet."), {**of("GENERATION", 2, [ASK], "Wide."), "traceId": "u"}]
    exported = [{**o, "provided_model_name": "m"} for o in held]
    for values in ([{"data": held, "meta": {"page": 1, "totalItems": 2}}], exported):
        first, second = lines(tmp_path, values)
        assert (first.id, second.id, second.messages[-1].text()) == ("t", "u", "Wide.")
    assert first.meta["model"] == "m" and first.messages[-1].model_dump()["model"] == "m"
