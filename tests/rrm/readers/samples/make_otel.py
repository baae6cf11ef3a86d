"""Makes the `otel_*.json`: spans that OpenTelemetry's SDK itself prints and encodes; the content is made up.

In an environment of its own: `pip install opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-common==1.45.2`, then
`python make_otel.py`. Attribute names are those of the GenAI conventions (opentelemetry-semantic-conventions 0.66b2).
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Status, StatusCode, set_span_in_context

HERE = Path(__file__).parent
START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
ASK = {"role": "user", "parts": [{"type": "text", "content": "How wide is the door?"}]}
CALL = {"type": "tool_call", "id": "call_1", "name": "width", "arguments": {"of": "door"}}
THINK = {"type": "reasoning", "content": "A door is what they mean."}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "90 cm."}], "finish_reason": "stop"}
TOOLS = [{"type": "function", "name": "width", "description": "Measure.", "parameters": {"type": "object"}}]


class Counting(IdGenerator):
    """Ids that are the same in every run."""

    def __init__(self) -> None:
        self.spans, self.traces = 0, 0

    def generate_span_id(self) -> int:
        self.spans += 1
        return 0xA000000000000000 + self.spans

    def generate_trace_id(self) -> int:
        self.traces += 1
        return 0xB0000000000000000000000000000000 + self.traces


def span(
    tracer: Tracer, name: str, at: int, took: float, attributes: dict[str, Any], parent: Any = None, **more: Any
) -> Any:
    context = set_span_in_context(parent) if parent is not None else None
    made = tracer.start_span(name, context=context, attributes=attributes, start_time=START + at * SECOND)
    for event, said in more.get("events", []):
        made.add_event(event, said, timestamp=START + at * SECOND)
    if more.get("failed"):
        made.set_status(Status(StatusCode.ERROR, more["failed"]))
    made.end(end_time=START + int((at + took) * SECOND))
    return made


def newer(tracer: Tracer) -> None:
    """Messages as attributes: two calls and a tool whose result only the second call's input and the tool's span hold."""
    first = {"role": "assistant", "parts": [THINK, CALL], "finish_reason": "tool_call"}
    told = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "90 cm"}]}
    again = {"role": "assistant", "parts": [CALL]}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "gen_ai.system_instructions": json.dumps(
        [{"type": "text", "content": "Measure, do not guess."}]
    )}  # fmt: skip
    root = tracer.start_span("invoke_agent joiner", start_time=START, attributes={
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "joiner", "gen_ai.conversation.id": "conv-1",
    })  # fmt: skip
    span(tracer, "chat m-1", 1, 1, chat | {
        "gen_ai.input.messages": json.dumps([ASK]), "gen_ai.output.messages": json.dumps([first]),
        "gen_ai.tool.definitions": json.dumps(TOOLS), "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 5,
    }, root)  # fmt: skip
    span(tracer, "execute_tool width", 2, 0.5, {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "width", "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": '{"of": "door"}', "gen_ai.tool.call.result": "90 cm",
    }, root)  # fmt: skip
    score = {
        "gen_ai.evaluation.name": "correctness",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "pass",
    }
    span(tracer, "chat m-1", 3, 1, chat | {
        "gen_ai.input.messages": json.dumps([ASK, again, told]), "gen_ai.output.messages": json.dumps([ANSWER]),
        "gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 3,
    }, root, events=[("gen_ai.evaluation.result", score)])  # fmt: skip
    root.end(end_time=START + 5 * SECOND)


def older(tracer: Tracer) -> None:
    """Messages as events, and a tool that fails after the last call: its result stands in its own span alone."""
    call = [{"id": "call_2", "type": "function", "function": {"name": "width", "arguments": '{"of": "gate"}'}}]
    root = tracer.start_span("agent", start_time=START)
    span(tracer, "chat m-2", 1, 2, {"gen_ai.operation.name": "chat", "gen_ai.response.model": "m-2"}, root, events=[
        ("gen_ai.system.message", {"content": "Measure."}),
        ("gen_ai.user.message", {"content": "How wide is the gate?"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "tool_calls", "message": json.dumps(
            {"role": "assistant", "content": "I measure.", "tool_calls": call}
        )}),
    ])  # fmt: skip
    span(tracer, "execute_tool width", 4, 1, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "call_2",
        "gen_ai.tool.name": "width"}, root, failed="no such thing: gate")  # fmt: skip
    root.end(end_time=START + 6 * SECOND)


def flat(tracer: Tracer) -> None:
    said, wrote = "llm.input_messages", "llm.output_messages.0.message"
    span(tracer, "ChatCompletion", 0, 1, {
        "openinference.span.kind": "LLM", "llm.model_name": "m-3",
        f"{said}.0.message.role": "system", f"{said}.0.message.content": "Be brief.",
        f"{said}.1.message.role": "user", f"{said}.1.message.contents.0.message_content.type": "text",
        f"{said}.1.message.contents.0.message_content.text": "How wide is the hatch?",
        f"{wrote}.role": "assistant", f"{wrote}.tool_calls.0.tool_call.id": "call_3",
        f"{wrote}.tool_calls.0.tool_call.function.name": "width",
        f"{wrote}.tool_calls.0.tool_call.function.arguments": '{"of": "hatch"}',
        "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": {"name": "width"}}),
        "llm.token_count.prompt": 12, "llm.token_count.completion": 4,
    })  # fmt: skip


def otlp(spans: list[ReadableSpan]) -> Any:
    """Spans as OTLP JSON, in which ids are hexadecimal (protobuf's own JSON has base64)."""

    def hexadecimal(value: Any) -> Any:
        if isinstance(value, list):
            return [hexadecimal(v) for v in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: base64.b64decode(v).hex() if k in ids else hexadecimal(v) for k, v in value.items()}

    return hexadecimal(MessageToDict(encode_spans(spans)))


def main() -> None:
    kept, printed = InMemorySpanExporter(), io.StringIO()
    provider = TracerProvider(
        resource=Resource({"service.name": "workshop"}), id_generator=Counting(), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(kept))
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=printed)))
    tracer = provider.get_tracer("made-up")
    for make in (newer, older, flat):
        make(tracer)
    spans: list[ReadableSpan] = list(kept.get_finished_spans())
    (HERE / "otel_otlp.json").write_text(json.dumps(otlp(spans), indent=1) + "\n")
    lines = [json.dumps(otlp([s])) for s in spans]
    (HERE / "otel_otlp.jsonl").write_text("\n".join(lines) + "\n")
    (HERE / "otel_console.json").write_text(printed.getvalue())


if __name__ == "__main__":
    main()
