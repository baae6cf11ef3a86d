"""Makes `pydantic_ai.json` with pydantic-ai-slim 2.68.0 and its function model; no model and no server is asked.

`pip install pydantic-ai-slim==2.68.0`, then `python tests/rrm/readers/samples/make_pydantic_ai.py`. A thought and two calls at once, one of which
must be made again, then the answer.
"""

from __future__ import annotations

from pathlib import Path

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

HERE = Path(__file__).parent
STEPS = [
    [
        ThinkingPart("Both widths are needed."),
        ToolCallPart("width", {"of": "door"}, "c1"),
        ToolCallPart("width", {"of": "gate"}, "c2"),
    ],
    [TextPart("The gate is called gateway."), ToolCallPart("width", {"of": "gateway"}, "c3")],
    [TextPart("The gateway is wider than the door.")],
]


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The next step of the script."""
    return ModelResponse(STEPS[sum(isinstance(m, ModelResponse) for m in messages)])


agent = Agent(FunctionModel(answer), instructions="You measure things.")


@agent.tool_plain(retries=2)
def width(of: str) -> str:
    """How wide something is."""
    if of == "gate":
        raise ModelRetry("no gate is known, only a gateway")
    return f"the {of} is {len(of)} feet wide"


if __name__ == "__main__":
    result = agent.run_sync("Which is wider, the door or the gate?")
    (HERE / "pydantic_ai.json").write_bytes(result.all_messages_json() + b"\n")
