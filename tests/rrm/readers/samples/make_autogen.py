"""Makes `autogen_task.json` and `autogen_state.json` with autogen-agentchat 0.7.5 and a scripted client; no model and no server is asked.

`pip install autogen-agentchat==0.7.5`, then `python tests/rrm/readers/samples/make_autogen.py`. Two calls at once, of which one fails, a call
behind a thought, and the answer: what `run` gives, and what `save_state` keeps of the agent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

HERE = Path(__file__).parent
STEPS: list[tuple[Any, str | None]] = [
    ([FunctionCall("c1", '{"of": "door"}', "width"), FunctionCall("c2", '{"of": "gate"}', "width")], None),
    ([FunctionCall("c3", '{"of": "gateway"}', "width")], "The gate is called gateway."),
    ("The gateway is wider than the door.", None),
]


class Scripted(ChatCompletionClient):
    """A client that says what its script says."""

    def __init__(self) -> None:
        self.script = iter(STEPS)

    async def create(self, messages: Any, **kwargs: Any) -> CreateResult:
        """The next message."""
        content, thought = next(self.script)
        why = "stop" if isinstance(content, str) else "function_calls"
        return CreateResult(
            finish_reason=why, content=content, usage=self.actual_usage(), cached=False, thought=thought
        )

    def create_stream(self, messages: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        return None

    def actual_usage(self) -> RequestUsage:
        return RequestUsage(20, 5)

    def total_usage(self) -> RequestUsage:
        return self.actual_usage()

    def count_tokens(self, messages: Any, **kwargs: Any) -> int:
        return 20

    def remaining_tokens(self, messages: Any, **kwargs: Any) -> int:
        return 1000

    @property
    def capabilities(self) -> Any:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )


async def width(of: str) -> str:
    """How wide something is."""
    if of == "gate":
        raise ValueError("no gate is known, only a gateway")
    return f"the {of} is {len(of)} feet wide"


async def main() -> None:
    agent = AssistantAgent(
        "measurer", Scripted(), tools=[width], system_message="You measure things.", max_tool_iterations=5
    )
    result = await agent.run(task="Which is wider, the door or the gate?")
    state: Mapping[str, Any] = await agent.save_state()
    for name, value in (("autogen_task", result.model_dump(mode="json")), ("autogen_state", state)):
        (HERE / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
