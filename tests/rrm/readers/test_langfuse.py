"""Langfuse's traces as its SDKs, LangChain and Vercel's AI SDK write them. Each docstring names what was read before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_rows import lines, one, rows

ASK = {"role": "user", "content": "How wide is the door?"}
ANSWERED = [
    ("user", "How wide is the door?", "", []),
    ("assistant", "", "", [("width", "door", "c1")]),
    ("tool", "4 feet", "c1", []),
    ("assistant", "It is 4 feet wide.", "", []),
]


def of(kind: str, start: int, read: Any, wrote: Any, **more: Any) -> dict[str, Any]:
    """An observation."""
    time = f"2026-01-01T00:00:0{start}Z"
    return {"id": f"o{start}", "traceId": "t", "type": kind, "startTime": time, "input": read, "output": wrote, **more}


def trace(*observations: dict[str, Any]) -> dict[str, Any]:
    return {"id": "t", "projectId": "p", "observations": list(observations)}


def test_calls_that_langchain_keeps_in_additional_kwargs() -> None:
    """The agent's call was an empty step, and the tool's record stood beside the run."""
    called = {"id": "c1", "type": "function", "function": {"name": "width", "arguments": '{"of": "door"}'}}
    calls = {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [called], "kept": 1}}
    gave = {"type": "tool", "content": "4 feet", "name": "width", "tool_call_id": "c1", "status": "success"}
    answer = {"role": "assistant", "content": "It is 4 feet wide."}
    found = one(
        trace(
            of("GENERATION", 1, [ASK], calls),
            of("TOOL", 2, "{'of': 'door'}", gave, name="width", endTime="2026-01-01T00:00:04Z"),
            of("GENERATION", 5, [ASK, calls, {"role": "tool", "content": "4 feet", "tool_call_id": "c1"}], answer),
        )
    )
    assert rows(found) == ANSWERED and found.messages[2].duration_s == 2 and "other_tool_runs" not in found.meta
    assert found.messages[1].model_dump()["additional_kwargs"] == {"kept": 1}


CALL = {"toolCallId": "c1", "toolName": "width"}


@pytest.mark.parametrize(
    "wrote",
    [
        [{"toolCallType": "function", **CALL, "args": '{"of": "door"}'}],
        {"text": "", "toolCalls": [{**CALL, "input": {"of": "door"}}]},
        [{"type": "tool-call", **CALL, "input": {"of": "door"}}],
    ],
)
def test_calls_and_results_of_vercels_sdk(wrote: Any) -> None:
    """The agent wrote the JSON of its call, and what it read again was `[tool-call]` and `[tool-result]`."""
    called = {"role": "assistant", "content": [{"type": "tool-call", **CALL, "args": {"of": "door"}}]}
    gave = {"role": "tool", "content": [{"type": "tool-result", **CALL, "result": "4 feet"}]}
    asked = {"role": "user", "content": [{"type": "text", "text": ASK["content"]}]}
    found = one(
        trace(
            of("GENERATION", 1, [asked], wrote),
            of("GENERATION", 3, json.dumps([asked, called, gave]), "It is 4 feet wide."),
        )
    )
    assert rows(found) == ANSWERED and "other_conversations" not in found.meta


def test_generations_that_were_given_only_what_was_new_are_one_run() -> None:
    """The run was the last generation alone."""
    system = {"role": "system", "content": "You measure."}
    asked = ("Find the door.", "I look for it.", "It is here. How wide is it?", "4 feet.")
    found = one(
        trace(
            of("GENERATION", 1, [system, {"role": "user", "content": asked[0]}], asked[1]),
            of("GENERATION", 3, [system, {"role": "user", "content": asked[2]}], asked[3]),
        )
    )
    assert [m.text() for m in found.messages] == ["You measure.", *asked] and found.task == asked[0]
    assert "other_conversations" not in found.meta


def test_conversations_of_which_one_holds_what_another_was_asked_stay_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What stands beside the run was not said. Two answers to one question are attempts, and other instructions are another agent's."""
    for first in ([ASK], [{"role": "system", "content": "Guess."}, {"role": "user", "content": "A door?"}]):
        caplog.clear()
        (found,) = lines(tmp_path, [of("GENERATION", 1, first, "3 feet."), of("GENERATION", 3, [ASK], "4 feet.")])
        assert len(found.meta["other_conversations"]) == 1
        assert "1 conversations of traces are in no run" in caplog.text


def test_a_page_of_the_api_and_models_as_exports_name_them(tmp_path: Path) -> None:
    """The page was of no known format; the export's runs had no model."""
    held = [of("GENERATION", 1, [ASK], "4 feet."), {**of("GENERATION", 2, [ASK], "Wide."), "traceId": "u"}]
    exported = [{**o, "provided_model_name": "m"} for o in held]
    for values in ([{"data": held, "meta": {"page": 1, "totalItems": 2}}], exported):
        first, second = lines(tmp_path, values)
        assert (first.id, second.id, second.messages[-1].text()) == ("t", "u", "Wide.")
    assert first.meta["model"] == "m" and first.messages[-1].model_dump()["model"] == "m"
