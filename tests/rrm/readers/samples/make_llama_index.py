"""Makes `llama_index_messages.json` and `llama_index_events.jsonl` with llama-index-core 0.14.25 and a scripted model; no model and no server is
asked.

`pip install llama-index-core==0.14.25`, then `python tests/rrm/readers/samples/make_llama_index.py`. Two calls at once, of which one fails, a third and
the answer: the messages that the agent's memory holds, and the events of its workflow. (The chat store's own `json()` fails beside pydantic
2.14: a store is a `store` of such lists.)
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import AgentInput, AgentOutput, FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import ToolSelection

HERE = Path(__file__).parent


def called(number: str, of: str) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": "width", "arguments": json.dumps({"of": of})}}


STEPS: list[tuple[str, list[dict[str, Any]]]] = [
    ("Both widths are needed.", [called("c1", "door"), called("c2", "gate")]),
    ("The gate is called gateway.", [called("c3", "gateway")]),
    ("The gateway is wider than the door.", []),
]


class Scripted(FunctionCallingLLM):
    """A model that says what its script says."""

    step: int = 0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name="scripted")

    def _next(self) -> ChatResponse:
        content, calls = STEPS[self.step]
        self.step += 1
        message = ChatMessage(
            role="assistant", content=content, additional_kwargs={"tool_calls": calls} if calls else {}
        )
        return ChatResponse(message=message)

    def _prepare_chat_with_tools(self, tools: Any, **kwargs: Any) -> dict[str, Any]:
        return {"messages": []}

    def get_tool_calls_from_response(self, response: ChatResponse, *args: Any, **kwargs: Any) -> list[ToolSelection]:
        calls = response.message.additional_kwargs.get("tool_calls", [])
        return [ToolSelection(
            tool_id=c["id"], tool_name=c["function"]["name"], tool_kwargs=json.loads(c["function"]["arguments"])
        ) for c in calls]  # fmt: skip

    def chat(self, *args: Any, **kwargs: Any) -> ChatResponse:
        return self._next()

    async def achat(self, *args: Any, **kwargs: Any) -> ChatResponse:
        return self._next()

    async def astream_chat(self, *args: Any, **kwargs: Any) -> Any:
        async def chunks() -> Any:
            yield self._next()

        return chunks()

    def stream_chat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    complete = stream_complete = stream_chat

    async def acomplete(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    astream_complete = acomplete


def width(of: str) -> str:
    """How wide something is."""
    if of == "gate":
        raise ValueError("no gate is known, only a gateway")
    return f"the {of} is {len(of)} feet wide"


async def main() -> None:
    agent = FunctionAgent(name="measurer", tools=[width], llm=Scripted(), system_prompt="You measure things.")
    memory = ChatMemoryBuffer.from_defaults(token_limit=4000, tokenizer_fn=str.split)
    handler = agent.run("Which is wider, the door or the gate?", memory=memory)
    kept = (AgentInput, AgentOutput, ToolCallResult)
    lines = [json.dumps(e.model_dump(mode="json")) async for e in handler.stream_events() if isinstance(e, kept)]
    await handler
    (HERE / "llama_index_events.jsonl").write_text("\n".join(lines) + "\n")
    messages = [message.model_dump(mode="json") for message in memory.get_all()]
    (HERE / "llama_index_messages.json").write_text(json.dumps(messages, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
