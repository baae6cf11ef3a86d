"""Runs as the Python API takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.inputs import as_trajectories
from rrm.readers import read

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Refund order 8841."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order_id": "8841"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": '{"ok": true}'},
    {"role": "assistant", "content": "Refunded."},
]  # fmt: skip


class LangChainMessage:
    """As langchain_core's messages are read: `type`, and fields by `model_dump`."""

    def __init__(self, type: str, content: str, **fields: Any) -> None:
        self.type, self.fields = type, {"content": content, "type": type, **fields}

    def model_dump(self) -> dict[str, Any]:
        return self.fields


def test_messages_are_read_as_a_file_of_them_is(tmp_path: Path) -> None:
    (from_file,) = read(write(tmp_path, {"messages": MESSAGES}))
    trajectory = Trajectory.model_validate(from_file.model_dump())
    for run in (MESSAGES, {"messages": MESSAGES}, trajectory):
        (converted,) = as_trajectories([run])
        assert converted.digest == from_file.digest and len(converted.steps) == 2
    assert as_trajectories([trajectory])[0] is trajectory


def write(folder: Path, row: dict[str, Any]) -> Path:
    path = folder / "run.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def test_langchain_messages() -> None:
    call = {"name": "refund", "args": {"order_id": "8841"}, "id": "c1", "type": "tool_call"}
    (converted,) = as_trajectories([[
        LangChainMessage("human", "Refund order 8841."), LangChainMessage("ai", "", tool_calls=[call]),
        LangChainMessage("tool", '{"ok": true}', tool_call_id="c1"), LangChainMessage("ai", "Refunded."),
    ]])  # fmt: skip
    assert len(converted.steps) == 2 and converted.messages[1].tool_calls is not None
    assert converted.messages[1].tool_calls[0].arguments == {"order_id": "8841"}


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (MESSAGES, r"this is one run: judge\(\[messages\]\)"),
        ([[{"words": 1}]], "run 0 cannot be read"),
        ([[object()]], "run 0 holds a object, which is no message"),
    ],
)
def test_what_is_no_list_of_runs_says_so(runs: Any, why: str) -> None:
    with pytest.raises(RRMError, match=why):
        as_trajectories(runs)


def test_a_judge_takes_messages_and_its_own_mode(judge: AgentRRM) -> None:
    judge.settings.default_mode = "score"
    (row,) = judge.judge([MESSAGES])
    assert row.judge.mode == "score"
    assert row.score == judge.judge(as_trajectories([MESSAGES]), mode="score")[0].score


def test_one_run_alone_and_what_is_none_say_so() -> None:
    """A Trajectory, a generator and None were TypeErrors."""
    (trajectory,) = as_trajectories(run for run in [MESSAGES])
    for one in (trajectory, "text"):
        with pytest.raises(RRMError, match="a list of runs is wanted"):
            as_trajectories(one)
    for run, name in ((None, "NoneType"), ("text", "str"), (5, "int")):
        with pytest.raises(RRMError, match=f"run 1 is a {name}"):
            as_trajectories([trajectory, run])
