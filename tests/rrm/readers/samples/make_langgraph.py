"""Makes `langgraph_events.jsonl` and `langgraph_updates.jsonl` with langgraph 1.2.24, langchain-core 1.8.3 and a scripted model; no model and no
server is asked.

`pip install langgraph==1.2.24 langchain-core==1.8.3`, then `python tests/rrm/readers/samples/make_langgraph.py`. Two calls at once, of which one
fails, a third and the answer: the events of `astream_events`, and the chunks of `stream` in the mode `updates`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

HERE = Path(__file__).parent
ASKED = {"messages": [HumanMessage("Which is wider, the door or the gate?", id="m0")]}


def called(number: str, of: str) -> ToolCall:
    return ToolCall(name="width", args={"of": of}, id=number)


STEPS = [
    AIMessage("Both widths are needed.", tool_calls=[called("c1", "door"), called("c2", "gate")]),
    AIMessage("The gate is called gateway.", tool_calls=[called("c3", "gateway")]),
    AIMessage("The gateway is wider than the door."),
]


class Scripted(BaseChatModel):
    """A model that says what its script says."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        """The step after those that were read."""
        said = STEPS[sum(isinstance(m, AIMessage) for m in messages)]
        return ChatResult(generations=[ChatGeneration(message=said.model_copy())])


@tool
def width(of: str) -> str:
    """How wide something is."""
    if of == "gate":
        raise ValueError("no gate is known, only a gateway")
    return f"the {of} is {len(of)} feet wide"


def graph() -> Any:
    """An agent with one tool."""
    model = Scripted()
    built = StateGraph(MessagesState)
    built.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    built.add_node("tools", ToolNode([width], handle_tool_errors=True))
    built.add_edge(START, "agent")
    built.add_conditional_edges("agent", tools_condition)
    built.add_edge("tools", "agent")
    return built.compile()


def plain(value: Any) -> Any:
    """What a stream gives as JSON."""
    if isinstance(value, BaseMessage):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


async def main() -> None:
    events = [plain(event) async for event in graph().astream_events(ASKED, version="v2")]
    kept = [e for e in events if e["event"] != "on_chat_model_stream" and not e["event"].startswith("on_chain_stream")]
    updates = [plain(chunk) for chunk in graph().stream(ASKED, stream_mode=["values", "updates"])]
    for name, rows in (("langgraph_events", kept), ("langgraph_updates", updates)):
        text = "\n".join(json.dumps(row, default=str) for row in rows)
        (HERE / f"{name}.jsonl").write_text(text + "\n")


if __name__ == "__main__":
    asyncio.run(main())
