"""JSON lines: what is read is what was written, an error names its line, and no output holds a number that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from rrm.data.annotation import Annotation, read_annotations
from rrm.data.jsonl import DECODER, read_lines, strict
from rrm.data.output import write_lines
from rrm.data.trajectory import ToolCall, Trajectory
from rrm.errors import ReadError
from rrm.readers import read
from rrm.readers.chat_text import reply_turns, turn_messages
from rrm.readers.exports import to_atif


def test_lines_come_back_and_blank_ones_are_passed_over(tmp_path) -> None:
    path = tmp_path / "numbers.jsonl"
    assert write_lines(path, map(str, range(3))) == 3
    write_lines(path, ["0", "1", "2", "", "3"])
    assert list(read_lines(path, json.loads, "a number")) == [0, 1, 2, 3]


def test_errors_name_file_and_line(tmp_path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("1\n\n{broken\n")
    rows = read_lines(path, json.loads, "a number")
    assert next(rows) == 1
    with pytest.raises(ReadError, match=r"numbers\.jsonl:3: not a number: "):
        next(rows)
    path.write_bytes(b"1\n\xff\xfe\n")
    with pytest.raises(ReadError, match=r"numbers\.jsonl:2: not a number: .*utf-8"):
        list(read_lines(path, json.loads, "a number"))
    with pytest.raises(ReadError, match=r"absent\.jsonl: cannot be opened: No such file"):
        list(read_lines(tmp_path / "absent.jsonl", json.loads, "a number"))


def test_annotations_are_read_in_file_order(tmp_path) -> None:
    rows = [Annotation(trajectory_id=t, annotator=a, kind="llm", trace="\ud800") for t, a in ("xa", "yb", "xc")]
    path = tmp_path / "annotations.jsonl"
    write_lines(path, (json.dumps(a.model_dump(exclude_none=True)) for a in rows))
    assert read_annotations(path) == rows


no_number = pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])


@no_number
def test_a_call_in_a_text_keeps_it_as_text(number: str) -> None:
    reply = f'<tool_call>\n{{"name": "f", "arguments": {{"k": {number}}}}}\n</tool_call>'
    (message,) = turn_messages(reply_turns(reply))
    (call,) = message["tool_calls"]
    assert (call["name"], call["arguments"]) == ("f", {"k": number})


@no_number
def test_two_ways_to_read_what_is_no_number(number: str) -> None:
    with pytest.raises(ValueError, match="is no JSON number"):
        strict(f'{{"k": [{number}]}}')
    assert DECODER.decode(f'{{"k": [{number}]}}') == {"k": [number]}
    assert strict('{"k": [1e300, 1, -0.5]}') == {"k": [1e300, 1, -0.5]}


@no_number
def test_arguments_that_hold_one_stay_text(number: str) -> None:
    arguments = f'{{"k": {number}}}'
    function = {"name": "f", "arguments": arguments}
    for call in (function, {"type": "function", "function": function}):
        assert ToolCall.model_validate(call).arguments == arguments


@no_number
def test_no_output_holds_one(tmp_path: Path, number: str) -> None:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    arguments = f'{{"k": {number}}}'
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    ask = {"role": "user", "content": "q"}
    rows = [
        {"id": "calls", "messages": [ask, {"role": "assistant", "tool_calls": [call]}]},
        {"id": "tools", "messages": [ask], "tools": f'[{{"name": "f", "default": {number}}}]'},
        {"id": "react", "prompt": "q", "response": f"Thought: x\nAction: f\nAction Input: {arguments}\nObservation: y\nFinal Answer: z"},
    ]  # fmt: skip
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = list(read(tmp_path / "in.jsonl"))
    assert len(runs) == len(rows)
    for run in runs:
        for output in (run.to_json(), json.dumps(to_atif(run))):
            json.loads(output, parse_constant=refuse)  # as a reader that follows the standard
        assert Trajectory.from_json(run.to_json()).digest == run.digest
