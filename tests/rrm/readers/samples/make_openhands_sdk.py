"""Makes `openhands_sdk.json` with the event classes of openhands-sdk 1.58.2, which validate what they write.

`pip install openhands-sdk==1.58.2` (Python 3.12), then `python tests/rrm/readers/samples/make_openhands_sdk.py`. Made-up content: a system
prompt with a tool, a question with an image, two calls of one reply, what came back, a call that the user rejects, an error of the
agent's, a summary, and the end.
"""

from __future__ import annotations

import json
from pathlib import Path

from openhands.sdk.event import (
    ActionEvent,
    AgentErrorEvent,
    Condensation,
    CondensationSummaryEvent,
    MessageEvent,
    ObservationEvent,
    PauseEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from openhands.sdk.llm import ImageContent, Message, MessageToolCall, TextContent
from openhands.sdk.tool.builtins.finish import FinishAction
from openhands.sdk.tool.builtins.think import ThinkAction, ThinkObservation, ThinkTool


def at(k: int) -> dict[str, str]:
    return {"id": f"event-{k}", "timestamp": f"2026-01-02T03:04:{k:02}"}


def call(id: str, name: str, **arguments: str) -> dict[str, object]:
    made = MessageToolCall(id=id, name=name, arguments=json.dumps(arguments), origin="completion")
    return {"tool_name": name, "tool_call_id": id, "tool_call": made}


def text(words: str) -> TextContent:
    """A part of text."""
    return TextContent(text=words)


def main() -> None:
    image = ImageContent(image_urls=["data:image/png;base64,AA=="])
    think = ThinkAction(thought="Four, I believe.")
    events = [
        SystemPromptEvent(**at(0), system_prompt=text("You watch birds."), tools=ThinkTool.create()),
        MessageEvent(
            **at(1), source="user", llm_message=Message(role="user", content=[text("How many herons?"), image]),
            extended_content=[text("Herons are grey.")],
        ),
        ActionEvent(
            **at(2), **call("c1", "think", thought="Four, I believe."), thought=[text("I think first.")],
            reasoning_content="Two ways.", action=think, llm_response_id="r1", summary="think about herons",
        ),
        ActionEvent(**at(3), **call("c2", "think", thought="Or five."), thought=[], action=think, llm_response_id="r1"),
        ObservationEvent(
            **at(4), tool_name="think", tool_call_id="c1", action_id="event-2",
            observation=ThinkObservation.from_text("Your thought has been logged."),
        ),
        UserRejectObservation(
            **at(5), tool_name="think", tool_call_id="c2", action_id="event-3", rejection_reason="No."
        ),
        ActionEvent(**at(6), **call("c3", "fly"), thought=[text("I fly.")], action=None, llm_response_id="r2"),
        AgentErrorEvent(**at(7), tool_name="fly", tool_call_id="c3", error="No tool 'fly'."), PauseEvent(**at(8)),
        Condensation(**at(9), forgotten_event_ids=["event-2"], summary="It thought.", llm_response_id="r3"),
        CondensationSummaryEvent(**at(10), summary="It thought."),
        ActionEvent(
            **at(11), **call("c4", "finish", message="Four."), thought=[], action=FinishAction(message="Four."),
            llm_response_id="r4",
        ),
    ]  # fmt: skip
    written = [event.model_dump(mode="json", exclude_none=True) for event in events]
    Path(__file__).with_name("openhands_sdk.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
