"""Makes `adk_snake.json` and `adk_camel.json` with google-adk 2.13.0 and a scripted model; no model and no server is asked.

`pip install google-adk==2.13.0`, then `python tests/rrm/readers/samples/make_adk.py`. A thought and two calls at once, of which one fails, a third and
the answer: the session in both spellings of its names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, FunctionCall, Part

HERE = Path(__file__).parent


def called(number: str, of: str) -> Part:
    return Part(function_call=FunctionCall(id=number, name="width", args={"of": of}))


STEPS = [
    [Part(text="Both widths are needed.", thought=True), called("c1", "door"), called("c2", "gate")],
    [Part(text="The gate is called gateway."), called("c3", "gateway")],
    [Part(text="The gateway is wider than the door.")],
]


class Scripted(BaseLlm):
    """A model that says what its script says."""

    step: int = 0

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        """The next step."""
        self.step += 1
        yield LlmResponse(content=Content(role="model", parts=STEPS[self.step - 1]))


def width(of: str) -> dict[str, str]:
    """How wide something is."""
    if of == "gate":
        return {"error": "no gate is known, only a gateway"}
    return {"result": f"the {of} is {len(of)} feet wide"}


async def main() -> None:
    agent = LlmAgent(
        name="measurer", model=Scripted(model="scripted"), instruction="You measure things.", tools=[width]
    )
    runner = InMemoryRunner(agent=agent, app_name="measuring")
    session = await runner.session_service.create_session(app_name="measuring", user_id="u", session_id="s")
    asked = Content(role="user", parts=[Part(text="Which is wider, the door or the gate?")])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=asked):
        pass
    kept = await runner.session_service.get_session(app_name="measuring", user_id="u", session_id=session.id)
    assert kept is not None
    for name, by_alias in (("adk_snake", False), ("adk_camel", True)):
        (HERE / f"{name}.json").write_text(kept.model_dump_json(by_alias=by_alias, exclude_none=True, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
