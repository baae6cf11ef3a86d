"""Makes `smolagents_tools.json` and `smolagents_code.json` with smolagents 1.26.0 and a scripted model; no model and no server is asked.

`pip install smolagents==1.26.0`, then `python tests/rrm/readers/samples/make_smolagents.py`. One task by an agent that calls tools (the full steps of
its memory) and by one that writes code (a `RunResult`); the first call fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smolagents import ChatMessage, CodeAgent, Model, TokenUsage, ToolCallingAgent, tool
from smolagents.agents import EMPTY_PROMPT_TEMPLATES, PromptTemplates
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

HERE = Path(__file__).parent
TASK = "How wide is the gateway?"
PROMPTS: PromptTemplates = {**EMPTY_PROMPT_TEMPLATES, "system_prompt": "You measure things."}


def called(number: str, name: str, arguments: dict[str, Any]) -> list[ChatMessageToolCall]:
    return [ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), number, "function")]


TOOLS = [
    ("I ask for the gate.", called("c1", "width", {"of": "gate"})),
    ("It is called gateway.", called("c2", "width", {"of": "gateway"})),
    ("That answers it.", called("c3", "final_answer", {"answer": "It is seven feet wide."})),
]
CODE = [
    ("Thought: I ask for the gate.\n<code>\nprint(width(of='gate'))\n</code>", None),
    ("Thought: It is called gateway.\n<code>\nfound = width(of='gateway')\nprint(found)\n</code>", None),
    ("Thought: That answers it.\n<code>\nfinal_answer('It is seven feet wide.')\n</code>", None),
]


class Scripted(Model):
    """A model that says what its script says."""

    def __init__(self, script: list[tuple[str, Any]]) -> None:
        super().__init__(model_id="scripted")
        self.script = iter(script)

    def generate(self, *args: Any, **kwargs: Any) -> ChatMessage:
        """The next message."""
        content, calls = next(self.script)
        return ChatMessage("assistant", content, calls, token_usage=TokenUsage(20, 5))


@tool
def width(of: str) -> str:
    """How wide something is.

    Args:
        of: the thing.
    """
    if of == "gate":
        raise ValueError("no gate is known, only a gateway")
    return f"the {of} is {len(of)} feet wide"


if __name__ == "__main__":
    agent = ToolCallingAgent(tools=[width], model=Scripted(TOOLS), prompt_templates=PROMPTS)
    agent.run(TASK)
    (HERE / "smolagents_tools.json").write_text(json.dumps(agent.memory.get_full_steps(), indent=1) + "\n")
    coder = CodeAgent(tools=[width], model=Scripted(CODE), prompt_templates=PROMPTS, return_full_result=True)
    (HERE / "smolagents_code.json").write_text(json.dumps(coder.run(TASK).dict(), indent=1) + "\n")
