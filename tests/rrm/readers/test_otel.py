"""OpenTelemetry traces as the SDK itself encodes and prints them (samples/make_otel.py), and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, sniff
from rrm.readers.spans import ModelSpan, ToolRun, assemble

SAMPLES = Path(__file__).parent / "samples"
FILES = ("otel_otlp.json", "otel_otlp.jsonl", "otel_console.json")
TRACE = "0af7651916cd43dd8448eb211c80319c"


def traces(tmp_path: Path, *lines: Any, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    errors: list[ReadError] = []
    return list(read(path, on_error=errors.append, **options)), errors


def span(number: int, attributes: dict[str, Any], *, trace: str = TRACE, start: int = 0, **more: Any) -> dict[str, Any]:
    """One span of OTLP JSON on a line of its own."""
    listed = [
        {"key": k, "value": {"stringValue": v if isinstance(v, str) else json.dumps(v)}} for k, v in attributes.items()
    ]
    own = {"traceId": trace, "spanId": f"{number:016x}", "name": "chat", "attributes": listed}
    return own | {"startTimeUnixNano": str(start * 10**9), "endTimeUnixNano": str((start + 1) * 10**9)} | more


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def agent(text: str) -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


@pytest.mark.parametrize("file", FILES)
def test_a_trace_is_a_run(file: str) -> None:
    newer, older, flat = read(SAMPLES / file)
    assert [t.id[-1] for t in (newer, older, flat)] == ["1", "2", "3"]
    dumped = [m.model_dump(exclude_none=True) for m in newer.messages]
    call = {"name": "width", "arguments": {"of": "door"}, "id": "call_1"}
    first = {"role": "assistant", "content": "", "reasoning_content": "A door is what they mean.", "tool_calls": [call]}
    told = {"role": "tool", "content": "90 cm", "tool_call_id": "call_1", "name": "width", "duration_s": 0.5}
    assert dumped == [
        {"role": "system", "content": "Measure, do not guess."},
        {"role": "user", "content": "How wide is the door?"},
        first | {"timestamp": 1700000002.0, "finish_reason": "tool_call"},
        told | {"timestamp": 1700000002.5},
        {"role": "assistant", "content": "90 cm.", "timestamp": 1700000004.0, "finish_reason": "stop"},
    ]
    function = {"name": "width", "description": "Measure.", "parameters": {"type": "object"}}
    assert newer.tools == [{"type": "function", "function": function}]
    known = ("spans", "model", "agent", "conversation_id", "duration_s", "usage", "evaluations", "resource")
    assert {k: newer.meta[k] for k in known} == {
        "spans": {"invoke_agent": 1, "chat": 2, "execute_tool": 1},
        "model": "m-1",
        "agent": "joiner",
        "conversation_id": "conv-1",
        "duration_s": 5.0,
        "usage": {"input_tokens": 60, "output_tokens": 8},
        "evaluations": {"correctness": {"score": 1.0, "label": "pass"}},
        "resource": {"service.name": "workshop"},
    }


@pytest.mark.parametrize("file", FILES)
def test_events_and_flat_names(file: str) -> None:
    _, older, flat = read(SAMPLES / file)
    assert [(m.role, m.content) for m in older.messages] == [
        ("system", "Measure."),
        ("user", "How wide is the gate?"),
        ("assistant", "I measure."),
        ("tool", "no such thing: gate"),  # from the tool's own span: no call read it
    ]
    assert older.messages[3].model_dump()["is_error"] is True and older.messages[3].tool_call_id == "call_2"
    assert older.meta["errors"] == ["no such thing: gate"] and older.meta["model"] == "m-2"
    assert [(m.role, m.content) for m in flat.messages[:2]] == [
        ("system", "Be brief."),
        ("user", "How wide is the hatch?"),
    ]
    assert flat.messages[2].tool_calls and flat.messages[2].tool_calls[0].arguments == {"of": "hatch"}
    assert (
        flat.tools == [{"type": "function", "function": {"name": "width"}}] and flat.meta["usage"]["input_tokens"] == 12
    )


def test_evaluations_are_an_outcome_only_when_named() -> None:
    assert [t.outcome for t in read(SAMPLES / FILES[0])] == [None] * 3
    named = list(read(SAMPLES / FILES[0], outcome="evaluations.correctness.score?"))
    assert [t.outcome for t in named] == [1.0, None, None]


def test_interleaved_traces_of_one_file_stay_apart_and_their_order_is_time(tmp_path: Path) -> None:
    other = "1" * 32
    said = {"gen_ai.input.messages": [user("a"), agent("b"), user("c")], "gen_ai.output.messages": [agent("d")]}
    (one, two), errors = traces(
        tmp_path,
        span(2, said, start=5),
        span(9, {"gen_ai.input.messages": [user("z")], "gen_ai.output.messages": [agent("y")]}, trace=other),
        span(1, {"gen_ai.input.messages": [user("a")], "gen_ai.output.messages": [agent("b")]}, start=1),
    )
    assert errors == [] and [m.content for m in one.messages] == ["a", "b", "c", "d"]
    assert [m.timestamp for m in one.messages] == [None, 2.0, None, 6.0]  # the first answer as its own span has it
    assert [m.content for m in two.messages] == ["z", "y"] and (one.meta["lines"], two.meta["lines"]) == (2, 1)


def test_a_sub_agent_is_kept_beside_the_longest_conversation(tmp_path: Path) -> None:
    (run,), _ = traces(
        tmp_path,
        span(1, {"gen_ai.input.messages": [user("a")], "gen_ai.output.messages": [agent("b")]}),
        span(2, {"gen_ai.input.messages": [user("x")], "gen_ai.output.messages": [agent("y")]}, start=1),
        span(
            3,
            {"gen_ai.input.messages": [user("a"), agent("b"), user("c")], "gen_ai.output.messages": [agent("d")]},
            start=2,
        ),
    )
    assert [m.content for m in run.messages] == ["a", "b", "c", "d"]
    assert [[m["content"] for m in c] for c in run.meta["other_conversations"]] == [["x", "y"]]


def test_openllmetrys_flat_names_and_its_tool_spans(tmp_path: Path) -> None:
    call = {"id": "c", "name": "f", "arguments": '{"x": 1}'}
    said = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q", "gen_ai.completion.0.role": "assistant"}
    said |= {f"gen_ai.completion.0.tool_calls.0.{k}": v for k, v in call.items()}
    ran = {"traceloop.span.kind": "tool", "traceloop.entity.name": "f", "traceloop.entity.output": "seven"}
    (run,), errors = traces(tmp_path, span(1, said), span(2, ran, start=2))
    assert errors == [] and [(m.role, m.text()) for m in run.messages] == [
        ("user", "q"),
        ("assistant", ""),
        ("tool", "seven"),
    ]
    assert run.messages[1].tool_calls and run.messages[1].tool_calls[0].arguments == {"x": 1}
    assert (run.messages[2].tool_call_id, run.messages[2].duration_s) == ("c", 1.0)


def test_the_oldest_events_hold_lists(tmp_path: Path) -> None:
    def event(kind: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        value = {"stringValue": json.dumps(messages)}
        pair = {"key": f"gen_ai.{kind}", "value": value}
        return {"name": f"gen_ai.content.{kind}", "attributes": [pair]}

    asked, wrote = [_said("system", "s"), _said("user", "q")], [_said("assistant", "a")]
    (run,), errors = traces(tmp_path, span(1, {}, events=[event("prompt", asked), event("completion", wrote)]))
    assert errors == [] and [(m.role, m.content) for m in run.messages] == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", "a"),
    ]


def test_log_records_carry_the_events_of_their_span(tmp_path: Path) -> None:
    def record(name: str, body: dict[str, Any], at: int) -> dict[str, Any]:
        pairs = [{"key": k, "value": v} for k, v in body.items()]
        own = {"traceId": TRACE, "spanId": f"{1:016x}", "timeUnixNano": str(at), "eventName": name}
        return own | {"body": {"kvlistValue": {"values": pairs}}}

    message = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "42"}}]}}
    logs = [
        record("gen_ai.choice", {"message": message}, 2),
        record("gen_ai.user.message", {"content": {"stringValue": "q"}}, 1),
    ]
    (run,), errors = traces(tmp_path, {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}, span(1, {}))
    assert errors == [] and [(m.role, m.content) for m in run.messages] == [("user", "q"), ("assistant", "42")]


def test_parts_of_every_kind(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "content": "look"},
        {"type": "blob", "modality": "image", "mime_type": "image/gif", "content": "R0lG"},
        {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"},
        {"type": "odd", "x": 1},
    ]
    (run,), _ = traces(tmp_path, span(1, {"gen_ai.input.messages": [{"role": "user", "parts": parts}]}))
    assert run.messages[0].content == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lG"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "odd", "x": 1},
    ]


def test_what_holds_no_messages_is_said(tmp_path: Path) -> None:
    found, errors = traces(tmp_path, span(1, {"http.method": "GET"}), {"resourceSpans": []})
    assert found == [] and len(errors) == 2
    assert "no span in it" in errors[0].reason and "message content switched on" in errors[1].reason
    _, (error,) = traces(tmp_path, span(1, {"gen_ai.input.messages": [{"role": "emperor", "parts": []}]}))
    assert "role 'emperor'" in error.reason


def _said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


def test_a_retry_without_an_answer_is_continued_and_a_second_answer_stands_beside() -> None:
    ask, first, second = _said("user", "q"), _said("assistant", "a"), _said("assistant", "b")
    assert assemble([ModelSpan([ask], [], 0), ModelSpan([ask], [first], 1)], []).messages == [ask, first]
    found = assemble([ModelSpan([ask], [first], 0), ModelSpan([ask], [second], 1)], [])
    assert found.messages == [ask, second] and found.others == [[ask, first]]


def test_tool_runs_meet_their_calls_by_id_then_by_name_and_arguments() -> None:
    calls = [{"name": "f", "arguments": '{"x": 1}', "id": "c1"}, {"name": "f", "arguments": {"x": 2}, "id": "c2"}]
    asked = _said("assistant", "", tool_calls=calls)
    runs = [
        ToolRun("f", None, {"x": 2}, "two", start=1),
        ToolRun("f", "c1", None, "one", start=2),
        ToolRun("g", result="?"),
    ]
    found = assemble([ModelSpan([_said("user", "q")], [asked])], runs)
    assert [(m["content"], m["tool_call_id"]) for m in found.messages[2:]] == [("one", "c1"), ("two", "c2")]
    assert found.meta() == {"other_tool_runs": [{"name": "g", "arguments": None, "result": "?"}]}


def test_results_without_ids_meet_their_calls_by_name() -> None:
    """The mail that was sent had failed, and the payment that was declined had not."""
    asked = _said("assistant", "", tool_calls=[{"name": n, "arguments": {"x": 1}} for n in ("pay", "mail", "log")])
    results = [_said("tool", "sent", name="mail"), _said("tool", "declined", name="pay"), _said("tool", "kept")]
    runs = [ToolRun("pay", None, {"x": 1}, "declined", True, 1), ToolRun("mail", None, {"x": 1}, "sent", False, 2, 0.5)]
    ask = _said("user", "q")
    found = assemble(
        [ModelSpan([ask], [asked], 0), ModelSpan([ask, asked, *results], [_said("assistant", "done")], 3)], runs
    )
    said = [(m["name"], m["content"], m.get("is_error"), m.get("duration_s")) for m in found.messages[2:5]]
    assert said == [("mail", "sent", None, 0.5), ("pay", "declined", True, None), ("log", "kept", None, None)]


def test_a_call_that_two_instrumentations_recorded_keeps_what_was_thought(tmp_path: Path) -> None:
    thought = {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, *agent("b")["parts"]]}
    first = {"gen_ai.input.messages": [user("a")], "gen_ai.output.messages": [thought]}
    second = {"gen_ai.input.messages": [user("a"), agent("b"), user("c")], "gen_ai.output.messages": [agent("d")]}
    spans = [span(k, (first, second)[k // 2], start=k) for k in range(4)]
    (found,), _ = traces(tmp_path, *spans)
    assert [m.text() for m in found.messages] == ["a", "b", "c", "d"] and found.messages[1].reasoning_content == "hm"
    assert "other_conversations" not in found.meta


def test_an_agent_inside_a_tools_span_is_not_the_run(tmp_path: Path) -> None:
    said = {"gen_ai.input.messages": [user("x"), agent("y"), user("z")], "gen_ai.output.messages": [agent("w")]}
    tool = span(1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask"}, start=1)
    inner = span(2, said, start=2, parentSpanId=f"{1:016x}")
    (found, below), _ = traces(tmp_path, tool, inner, span(3, asked_b(), start=3))
    assert [m.text() for m in found.messages] == ["a", "b"] and "other_conversations" not in found.meta
    assert [m.text() for m in below.messages] == ["x", "y", "z", "w"] and below.meta["parent"] == {"trace_id": found.id}


def asked_b() -> dict[str, Any]:
    return {"gen_ai.input.messages": [user("a")], "gen_ai.output.messages": [agent("b")]}


def test_a_chat_logged_beside_the_ids_of_its_trace_is_a_chat() -> None:
    ids = {"trace_id": TRACE, "span_id": "1" * 16, "start_time": 1}
    assert sniff({"messages": [{"role": "user", "content": "q"}], **ids}) == "openai" and sniff(ids) == "otel"
