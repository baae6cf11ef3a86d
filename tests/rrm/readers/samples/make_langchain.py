"""Makes the `langchain_*.json` with langchain-core 1.7.2 and langgraph 1.2.22; no model and no server is asked.

`pip install langchain-core==1.7.2 langgraph==1.2.22`, then `python tests/rrm/readers/samples/make_langchain.py`. One conversation in each of
the forms in which people keep it: `dumps`, `messages_to_dict`, `model_dump`, and the state of a graph that ran its tool.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    messages_to_dict,
)
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

HERE = Path(__file__).parent
CALL = ToolCall(name="width", args={"of": "door"}, id="call_1")
BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "A door is what they mean.", "signature": "s"},
    {"type": "text", "text": "I measure it."},
    {"type": "tool_use", "id": "call_1", "name": "width", "input": {"of": "door"}},
]
LOOK: list[Any] = [
    {"type": "text", "text": "How wide is this?"},
    {"type": "image_url", "image_url": {"url": "https://example.org/door.png"}},
]
MESSAGES: list[AnyMessage] = [
    SystemMessage("Measure, do not guess."),
    HumanMessage(LOOK, name="ann"),
    AIMessage(BLOCKS, tool_calls=[CALL], id="run-1"),
    ToolMessage("no ruler", tool_call_id="call_1", name="width", status="error", artifact={"raw": 1}),
    AIMessage(
        "",
        additional_kwargs={"reasoning_content": "Try again."},
        tool_calls=[ToolCall(name="width", args={"of": "door", "with": "tape"}, id="call_2")],
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "name": "width", "args": "{of:", "id": "call_3", "error": "bad"}
        ],
    ),
    ToolMessage([{"type": "text", "text": "81 cm"}], tool_call_id="call_2"),
    AIMessage("81 cm.", response_metadata={"finish_reason": "stop"}, usage_metadata=None),
]


@tool
def width(of: str) -> str:
    """How wide something is."""
    return "81 cm" if of == "door" else "unknown"


def state() -> dict[str, Any]:
    """What a graph of a scripted model and a real tool node ends in."""
    replies = iter([AIMessage("", tool_calls=[CALL], id="run-1"), AIMessage("81 cm.", id="run-2")])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [next(replies)]})
    graph.add_node("tools", ToolNode([width]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile().invoke({"messages": [HumanMessage("How wide is the door?", id="h-1")]})


def main() -> None:
    made = state()
    for message in made["messages"]:
        message.id = message.id if message.type != "tool" else "tool-1"  # the tool node draws it at random
    texts = {
        "langchain_dumps": dumps(MESSAGES, pretty=True),
        "langchain_dict": json.dumps(messages_to_dict(MESSAGES), indent=1),
        "langchain_model_dump": json.dumps([m.model_dump(mode="json") for m in MESSAGES], indent=1),
        "langgraph_state": dumps(made, pretty=True),
    }
    for name, text in texts.items():
        (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
