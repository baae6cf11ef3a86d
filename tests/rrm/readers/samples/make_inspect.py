"""Makes inspect_two.eval and inspect_two.json: one small task, two samples, two epochs, logged by Inspect itself.

In an environment of its own: pip install inspect_ai==0.3.285; python make_inspect.py. The model is Inspect's mock, the content
is made up.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import Tool, ToolError, tool

HERE = Path(__file__).parent
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7" + "A" * 120
"""A picture as data, long enough that Inspect stores it as an attachment."""


@tool
def divide() -> Tool:
    """A tool that can fail."""

    async def execute(a: int, b: int) -> str:
        """Divide two numbers.

        Args:
            a: the dividend
            b: the divisor
        """
        if b == 0:
            raise ToolError("division by zero")
        return str(a // b)

    return execute


@tool
def lookup() -> Tool:
    """A tool that always knows."""

    async def execute(name: str) -> str:
        """Look a number up.

        Args:
            name: whose number
        """
        return "12"

    return execute


def answer(messages: list[Any], tools: Any, choice: Any, config: Any) -> ModelOutput:
    """The next output, with its usage: without one the mock counts tokens with a vocabulary that it would download."""
    output = said(messages)
    output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    return output


def said(messages: list[Any]) -> ModelOutput:
    turns = sum(m.role == "assistant" for m in messages)
    second = any("Bea" in m.text for m in messages)
    if turns == 0:
        return ModelOutput.for_tool_call(
            "mockllm/model", "lookup", {"name": "Bea" if second else "Al"}, content="Looking."
        )
    if turns == 1:
        return ModelOutput.for_tool_call("mockllm/model", "divide", {"a": 12, "b": 0 if second else 4}, content="")
    return ModelOutput.from_content("mockllm/model", "The answer is 5." if second else "3")


def main() -> None:
    picture = ChatMessageUser(
        content=[ContentText(text="What is a quarter of Al's number?"), ContentImage(image=PIXEL)]
    )
    samples = [
        Sample(input=[picture], target="3", id="al", metadata={"level": 1}),
        Sample(input="What is a zeroth of Bea's number?", target="none", id="bea"),
    ]
    for kind in ("eval", "json"):
        task = Task(
            name="numbers", dataset=samples,
            solver=[system_message("Use the tools."), use_tools(lookup(), divide()), generate()],
            scorer=[match(), includes()], epochs=2,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            model = get_model("mockllm/model", custom_outputs=answer)
            (log,) = eval(task, model=model, log_dir=folder, log_format=kind, max_samples=1, display="none")
            made = Path(log.location.removeprefix("file://"))
            if kind == "json":  # the same values without the indentation, which is half of the file
                (HERE / "inspect_two.json").write_text(json.dumps(json.loads(made.read_text())) + "\n")
            else:
                shutil.copy(made, HERE / "inspect_two.eval")


if __name__ == "__main__":
    main()
