"""Logs that were read as another run than they hold. Each docstring names what was read before."""

from __future__ import annotations

import json

from typing import Any

import pytest


from log_rows import one

FILES = [{"type": "file", "path": "secret.py", "size": 12}, {"type": "dir", "path": "src"}]
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    "run",
    [
        [
            {"role": "user", "parts": [{"type": "text", "text": "list"}]},
            {
                "role": "assistant",
                "parts": [
                    {"type": "tool-ls", "toolCallId": "c", "state": "output-available", "input": {}, "output": FILES}
                ],
            },
        ],
        [
            {"role": "user", "parts": [{"text": "list"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"result": FILES}}}]},
        ],
        {"messages": [{"role": "user", "content": "list"}, {"role": "tool", "name": "ls", "content": FILES}]},
    ],
)
def test_a_tools_list_of_typed_objects_is_its_result(run: Any) -> None:
    """It was `[file]` and `[dir]`: the paths that the agent saw stood nowhere."""
    (result,) = [m for m in one(run).messages if m.role == "tool"]
    assert json.loads(result.text()) == FILES


def test_what_a_validator_said_of_a_call_is_its_result() -> None:
    """It was `[string_type]`."""
    wrong = [{"type": "string_type", "loc": ["d"], "msg": "Input should be a valid string", "input": 1}]
    part = {"part_kind": "retry-prompt", "tool_name": "ls", "tool_call_id": "c", "content": wrong}
    asked = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "list"}]}
    (*_, result) = one([asked, {"kind": "request", "parts": [part]}]).messages
    assert json.loads(result.text()) == wrong


@pytest.mark.parametrize("content", [[PICTURE], [{"type": "text", "text": "a door"}, PICTURE]])
def test_a_picture_in_a_result_stays_one(content: Any) -> None:
    """A result in parts, as a message has them, is no data."""
    found = one({"messages": [{"role": "user", "content": "look"}, {"role": "tool", "content": content}]})
    assert found.messages[1].content == content
