"""ATIF, field by field. The file is written by Harbor's own models (`samples/make_atif.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, sniff

SAMPLE = Path(__file__).parent / "samples" / "atif.json"
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "images/pond.png"}, "media_type": "image/png"}


def said(run: Trajectory) -> list[dict[str, Any]]:
    return [m.model_dump(exclude_none=True) for m in run.messages]


def one(folder: Path, **fields: Any) -> Trajectory:
    path = folder / "run.dat"
    path.write_text(json.dumps({"schema_version": "ATIF-v1.2", "agent": {"name": "a", "version": "1"}, **fields}))
    (found,) = read(path)
    return found


def test_every_field_of_a_document() -> None:
    run, helper = read(SAMPLE)
    assert said(run) == [
        {"role": "system", "content": "You watch birds.", "timestamp": "2026-01-02T03:04:05Z", "step_id": 1},
        {"role": "user", "content": [{"type": "text", "text": "How many herons are here?"}, IMAGE], "step_id": 2},
        {
            "role": "assistant",
            "content": "I look, and ask.",
            "reasoning_content": "Two ways to know.",
            "tool_calls": [
                {"name": "look", "arguments": {"at": "pond"}, "id": "c1"},
                {"name": "ask", "arguments": {"who": "counter"}, "id": "c2", "extra": {"retries": 1}},
            ],
            "timestamp": "2026-01-02T03:04:06Z",
            "step_id": 3,
            "model_name": "small-model",
            "reasoning_effort": "low",
            "metrics": {"prompt_tokens": 20, "completion_tokens": 9, "cost_usd": 0.001},
            "llm_call_count": 1,
            "extra": {"note": "both"},
        },
        {"role": "tool", "content": [{"type": "text", "text": "A pond."}, IMAGE], "tool_call_id": "c1", "name": "look"},
        {
            "role": "tool",
            "content": "Four.",
            "tool_call_id": "c2",
            "name": "ask",
            "subagent_trajectory_ref": [{"trajectory_id": "helper-1"}],
            "extra": {"sure": True},
        },
        {"role": "system", "content": "The context was shortened.", "step_id": 4},
        {"role": "tool", "content": "Two messages left.", "name": "environment"},
        {"role": "assistant", "content": "Four herons.", "step_id": 5, "is_copied_context": False},
    ]
    assert run.id == "t-1" and run.task == "How many herons are here?" and run.tools == [LOOK]
    assert run.source and (run.outcome, run.source.outcome_field) == (1.0, "extra.reward")
    assert run.meta == {
        "schema_version": "ATIF-v1.8",
        "session_id": "s-1",
        "trajectory_id": "t-1",
        "agent": {"name": "watcher", "version": "2.1", "model_name": "small-model"},
        "notes": "A made-up run.",
        "final_metrics": {"total_prompt_tokens": 20, "total_cost_usd": 0.001, "total_steps": 5},
        "extra": {"reward": 1.0},
        "subagents": ["helper-1"],
    }
    assert helper.id == "helper-1" and helper.task == "Count the herons." and helper.outcome is None
    assert helper.meta["parent"] == {"trajectory_id": "t-1", "session_id": "s-1"} and len(helper.steps) == 1


def test_what_is_not_as_the_schema_has_it(tmp_path: Path) -> None:
    call = {"tool_call_id": 7, "function_name": "f", "arguments": "{broken"}
    step = {
        "source": "agent",
        "message": None,
        "tool_calls": [call],
        "observation": {"results": [{"source_call_id": "x"}]},
    }
    run = one(tmp_path, steps=[{"source": "user", "message": "q", "timestamp": 5, "odd": [1]}, step])
    assert said(run) == [
        {"role": "user", "content": "q", "timestamp": "5", "odd": [1]},
        {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{broken", "id": "7"}]},
        {"role": "tool", "tool_call_id": "x"},
    ]
    for wrong, reason in (
        ({"steps": [{"source": "robot", "message": ""}]}, r"steps\[0\].source is 'robot'; known: system, user, agent"),
        ({"steps": [7]}, r"steps\[0\] must be an object"),
        ({"steps": [{"source": "agent", "message": "", "tool_calls": 3}]}, "tool_calls must be a list"),
        ({"steps": [{"source": "agent", "message": "", "observation": []}]}, "a list of `results`"),
        ({"steps": []}, "no messages"),
    ):
        with pytest.raises(ReadError, match=reason):
            one(tmp_path, **wrong)


def test_the_outcome_only_where_an_extra_says_it(tmp_path: Path) -> None:
    steps = [{"source": "user", "message": "q"}]
    assert one(tmp_path, steps=steps, final_metrics={"extra": {"resolved": False}}).outcome == 0.0
    assert one(tmp_path, steps=steps, extra={"reward": 3}).outcome is None
    assert sniff({"schema_version": "ATIF", "steps": steps}) is None
