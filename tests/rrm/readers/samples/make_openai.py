"""Makes `agents_sdk.json` and `response.json` with openai-agents 0.24.0 and openai 3.54.0; no server is asked.

`pip install openai-agents==0.24.0 openai==3.54.0`, then `python tests/rrm/readers/samples/make_openai.py`. The runner, its tools and its
`to_input_list()` are the SDK's; only the model is scripted. The stored response is validated by the client's own types.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from agents.items import ModelResponse
from agents.models.interface import Model
from openai.types.responses import Response
from pydantic import TypeAdapter

from agents import Agent, Runner, Usage, function_tool, set_tracing_disabled

HERE = Path(__file__).parent
TEXT = {"type": "output_text", "annotations": [], "logprobs": []}
TURNS: list[list[dict[str, Any]]] = [
    [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I need the stock of both."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "stock", "arguments": '{"item": "lamp"}'},
        {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "stock", "arguments": '{"item": "sofa"}'},
    ],
    [{
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{**TEXT, "text": "Three lamps, no sofa."}],
    }],
]  # fmt: skip


class Scripted(Model):
    """Says what the script says, turn by turn."""

    def __init__(self, turns: list[list[dict[str, Any]]]) -> None:
        self.turns = list(turns)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        output = Response.model_fields["output"].annotation
        return ModelResponse(TypeAdapter(output).validate_python(self.turns.pop(0)), Usage(), None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


@function_tool
def stock(item: str) -> str:
    """How many there are."""
    return {"lamp": "3"}.get(item, "0")


RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1_700_000_000.0, "model": "gpt-example", "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"}, "instructions": "Answer from the files.",
    "parallel_tool_calls": True, "tool_choice": "auto",
    "tools": [
        {
            "type": "function", "name": "note", "description": "Keep it.", "strict": True,
            "parameters": {"type": "object"},
        },
        {"type": "web_search"},
    ],
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b64"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {
            "type": "search", "query": "tallest lamp", "queries": ["tallest lamp"],
            "sources": [{"type": "url", "url": "https://example.org/lamps"}],
        }},
        {
            "type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["lamp height"],
            "results": [{"file_id": "file_1", "filename": "lamps.txt", "score": 0.9, "text": "The Obelisk: 9 m."}],
        },
        {
            "type": "code_interpreter_call", "id": "ci_1", "status": "completed", "container_id": "cntr_1",
            "code": "print(9 * 100)", "outputs": [{"type": "logs", "logs": "900\n"}],
        },
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "shop", "tools": [{
            "name": "price", "input_schema": {"type": "object"}, "description": "What it costs."
        }]},
        {
            "type": "mcp_call", "id": "mcp_1", "server_label": "shop", "name": "price",
            "arguments": '{"item": "Obelisk"}', "status": "failed",
            "error": {"type": "mcp_protocol_error", "code": 404, "message": "no such item"},
        },
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_9", "name": "note", "input": "tallest: Obelisk"},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="},
        {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete",
            "content": [
                {**TEXT, "text": "The Obelisk, 900 cm.", "annotations": [{
                    "type": "file_citation", "file_id": "file_1", "filename": "lamps.txt", "index": 19
                }]},
                {"type": "refusal", "refusal": "I cannot say where it stands."},
            ],
        },
    ],
    "usage": {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 150,
    },
}  # fmt: skip


def write(name: str, value: Any) -> None:
    (HERE / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    set_tracing_disabled(True)
    agent = Agent(name="shop", instructions="Answer briefly.", tools=[stock], model=Scripted(TURNS))
    result = asyncio.run(Runner.run(agent, "How many lamps and sofas are left?"))
    write("agents_sdk.json", result.to_input_list())
    write("response.json", Response.model_validate(RESPONSE).model_dump(mode="json"))


if __name__ == "__main__":
    main()
