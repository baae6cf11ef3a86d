"""Makes `openhands.json` with the event classes of openhands-ai 0.59.0, as its `save_trajectory_path` writes them.

`pip install openhands-ai==0.59.0` (Python 3.12), then `python tests/rrm/readers/samples/make_openhands.py`. Made-up content: a system
prompt, a question, a command by a tool call and its output, two calls of one reply, one of them by code, a command without metadata
that fails, a change of the agent's state, a message of the agent's and the end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from litellm import ModelResponse
from openhands.events.action import (
    AgentFinishAction,
    ChangeAgentStateAction,
    CmdRunAction,
    IPythonRunCellAction,
    MessageAction,
    RecallAction,
    SystemMessageAction,
)
from openhands.events.event import Event, EventSource, RecallType
from openhands.events.observation import (
    AgentStateChangedObservation,
    CmdOutputObservation,
    ErrorObservation,
    IPythonRunCellObservation,
)
from openhands.events.serialization.event import event_to_trajectory
from openhands.events.tool import ToolCallMetadata

TOOL = {"type": "function", "function": {"name": "execute_bash", "parameters": {"type": "object"}}}


def reply(id: str, content: str | None, *calls: tuple[str, str, dict[str, Any]]) -> ModelResponse:
    made = [
        {"id": number, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, name, arguments in calls
    ]
    message = {"role": "assistant", "content": content, "tool_calls": made}
    return ModelResponse(
        id=id, created=1, model="small", choices=[{"index": 0, "finish_reason": "tool_calls", "message": message}]
    )


def metadata(response: ModelResponse, k: int) -> ToolCallMetadata:
    calls = response.choices[0].message.tool_calls
    return ToolCallMetadata(
        function_name=calls[k].function.name, tool_call_id=calls[k].id, model_response=response,
        total_calls_in_response=len(calls),
    )  # fmt: skip


def main() -> None:
    first = reply("m1", "I list the files.", ("c1", "execute_bash", {"command": "ls"}))
    second = reply(
        "m2", None, ("c2", "execute_bash", {"command": "wc a.txt"}), ("c3", "execute_ipython_cell", {"code": "1+1"})
    )
    last = reply("m3", None, ("c4", "finish", {"message": "Done."}))
    agent, user, environment = EventSource.AGENT, EventSource.USER, EventSource.ENVIRONMENT
    told: list[tuple[Event, EventSource, int | None, ToolCallMetadata | None]] = [
        (SystemMessageAction(content="You are handy.", tools=[TOOL]), agent, None, None),
        (
            MessageAction(content="Count the lines of a.txt.", image_urls=["data:image/png;base64,AA=="]),
            user,
            None,
            None,
        ),
        (RecallAction(recall_type=RecallType.KNOWLEDGE, query="Count"), user, None, None),
        (CmdRunAction(command="ls", thought="I list the files."), agent, None, metadata(first, 0)),
        (CmdOutputObservation(content="a.txt", command="ls"), agent, 3, metadata(first, 0)),
        (CmdRunAction(command="wc a.txt"), agent, None, metadata(second, 0)),
        (IPythonRunCellAction(code="1+1"), agent, None, metadata(second, 1)),
        (CmdOutputObservation(content="3 a.txt", command="wc a.txt"), agent, 5, metadata(second, 0)),
        (IPythonRunCellObservation(content="2", code="1+1"), agent, 6, metadata(second, 1)),
        (CmdRunAction(command="rm", thought="I tidy up."), agent, None, None),
        (ErrorObservation(content="rm: missing operand"), environment, 9, None),
        (ChangeAgentStateAction(agent_state="running"), user, None, None),
        (AgentStateChangedObservation(content="", agent_state="running"), environment, 11, None),
        (MessageAction(content="There are 3 lines."), agent, None, None),
        (AgentFinishAction(final_thought="Done.", outputs={}), agent, None, metadata(last, 0)),
    ]
    written = []
    for k, (event, source, cause, tool_call) in enumerate(told):
        event._id, event._timestamp, event._source = k, f"2026-01-02T03:04:{k:02}", source
        if cause is not None:
            event._cause = cause
        if tool_call is not None:
            event.tool_call_metadata = tool_call
        written.append(event_to_trajectory(event))
    Path(__file__).with_name("openhands.json").write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
