"""Makes `mini_tools.traj.json`, `mini_text.traj.json` and `mini_responses.traj.json` with mini-swe-agent 2.4.6; no server is asked.

`pip install mini-swe-agent==2.4.6`, then `python tests/rrm/readers/samples/make_mini_swe_agent.py`. Agent, shell and file writer are
the framework's, and so are its scripted models: one that calls tools, one that writes commands as text, one of the Responses API.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.exceptions import FormatError
from minisweagent.models.test_models import (
    DeterministicModel,
    DeterministicResponseAPIToolcallModel,
    DeterministicToolcallModel,
    make_output,
    make_response_api_output,
    make_toolcall_output,
)

HERE = Path(__file__).parent
TASK = "Write the word heron into bird.txt and submit."
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat bird.txt"
REFUSED = {"role": "user", "content": "No command was found.", "extra": {"interrupt_type": "FormatError"}}


def call(number: int, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    action = {"command": command, "tool_call_id": f"call_{number}"}
    return {"id": f"call_{number}", "type": "function", "function": function}, action


def tool_turn(said: str | None, *calls: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """One reply that calls tools."""
    return make_toolcall_output(said, [c for c, _ in calls], [a for _, a in calls])


class Hesitant(DeterministicModel):
    """Its first reply holds no command, which the framework's models refuse."""

    refused = False

    def query(self, messages: list[dict[str, str]], **kwargs: Any) -> dict[str, Any]:
        if not self.refused:
            self.refused = True
            raise FormatError({"role": "assistant", "content": "I think for a while."}, REFUSED)
        return super().query(messages, **kwargs)


def run(model: Any, name: str, *extra: dict[str, Any], step_limit: int = 0) -> None:
    """One run in an empty folder, saved as the framework saves it."""
    agent = DefaultAgent(
        model, LocalEnvironment(), system_template="You use a shell.", instance_template="{{task}}",
        step_limit=step_limit,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        agent.run(TASK)
        os.chdir(HERE)
    agent.save(HERE / name, *extra)


def main() -> None:
    tools = [
        tool_turn("Two things at once.", call(1, "echo heron > bird.txt"), call(2, "cat nothing.txt")),
        tool_turn(None, call(3, SUBMIT)),
    ]
    run(DeterministicToolcallModel(outputs=tools), "mini_tools.traj.json", {"instance_id": "birds__pond-7"})
    command = "echo heron > bird.txt"
    text = [make_output(f"```mswea_bash_command\n{command}\n```", [{"command": command}])]
    run(Hesitant(outputs=text), "mini_text.traj.json", step_limit=2)
    replies = [
        make_response_api_output("First the file.", [{"command": "echo heron > bird.txt", "tool_call_id": "call_1"}]),
        make_response_api_output(None, [{"command": SUBMIT, "tool_call_id": "call_2"}]),
    ]
    run(DeterministicResponseAPIToolcallModel(outputs=replies), "mini_responses.traj.json")


if __name__ == "__main__":
    main()
