"""Numbers that are none reach no output: arguments that hold them stay the text that the agent wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rrm.data.jsonl import DECODER, strict
from rrm.data.trajectory import ToolCall, Trajectory
from rrm.readers import read
from rrm.readers.chat_text import reply_turns, turn_messages
from rrm.readers.exports import to_atif

NONE = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("number", NONE)
def test_a_call_in_a_text_keeps_it_as_text(number: str) -> None:
    said = f'<tool_call>\n{{"name": "f", "arguments": {{"k": {number}}}}}\n</tool_call>'
    (message,) = turn_messages(reply_turns(said))
    (call,) = message["tool_calls"]
    assert (call["name"], call["arguments"]) == ("f", {"k": number})


def as_others_read(text: str) -> Any:
    """As a reader that follows the standard."""
    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("number", NONE)
def test_two_ways_to_read_what_is_no_number(number: str) -> None:
    with pytest.raises(ValueError, match="is no JSON number"):
        strict(f'{{"k": [{number}]}}')
    assert DECODER.decode(f'{{"k": [{number}]}}') == {"k": [number]}
    assert strict('{"k": [1e300, 1, -0.5]}') == {"k": [1e300, 1, -0.5]}


@pytest.mark.parametrize("number", NONE)
def test_arguments_that_hold_one_stay_text(number: str) -> None:
    said = f'{{"k": {number}}}'
    assert ToolCall.model_validate({"name": "f", "arguments": said}).arguments == said
    nested = {"type": "function", "function": {"name": "f", "arguments": said}}
    assert ToolCall.model_validate(nested).arguments == said


@pytest.mark.parametrize("number", NONE)
def test_no_output_holds_one(tmp_path: Path, number: str) -> None:
    said = f'{{"k": {number}}}'
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": said}}
    rows = [
        {"id": "calls", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}]},
        {"id": "tools", "messages": [{"role": "user", "content": "q"}], "tools": f'[{{"name": "f", "default": {number}}}]'},
        {"id": "react", "prompt": "q", "response": f"Thought: x\nAction: f\nAction Input: {said}\nObservation: y\nFinal Answer: z"},
    ]  # fmt: skip
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = list(read(path))
    assert len(runs) == len(rows)
    for run in runs:
        as_others_read(run.to_json())
        as_others_read(json.dumps(to_atif(run)))
        assert Trajectory.from_json(run.to_json()).digest == run.digest
