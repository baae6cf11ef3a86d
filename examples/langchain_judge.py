"""LangChain: a callback that has each run of an agent judged at its end. Needs `pip install 'agent-rrm[langchain,local]'`.

    python examples/langchain_judge.py

The agent's model is played here; with `langchain.agents.create_agent` it is the same callback. The last line is JSON: scores by question.
"""

from __future__ import annotations

import json
import sys
from typing import Any

try:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool

    from rrm.integrations.langchain_tracer import AgentRRMTracer
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[langchain,local]'")


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def agent(question: str, config: Any) -> str:
    """A loop of a model and its tools."""
    call = {"name": "multiply", "args": {"a": 6, "b": 7}, "id": "c1", "type": "tool_call"}
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Final Answer: 42")]))
    messages: list[Any] = [HumanMessage(question)]
    while True:
        messages.append(said := model.invoke(messages, config))
        if not said.tool_calls:
            return str(said.content)
        messages += [multiply.invoke(one, config) for one in said.tool_calls]


def main() -> None:
    """Two runs, judged together."""
    tracer = AgentRRMTracer("lab", mode="full")
    for question in ("What is 6 * 7?", "What is 6 * 8?"):
        RunnableLambda(agent).invoke(question, {"callbacks": [tracer]})
    print(json.dumps({row.trajectory.task: row.feedback.score for row in tracer.wait()}))


if __name__ == "__main__":
    main()
