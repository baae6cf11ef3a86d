"""OpenAI's Responses API, field by field: what the Agents SDK writes, a stored response, items that need care."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.errors import ReadError
from rrm.readers import read
from rrm.trajectory import Trajectory

SAMPLES = Path(__file__).parent / "samples"


def one(folder: Path, value: Any) -> Trajectory:
    path = folder / "run.dat"  # what a file holds decides, not its suffix
    path.write_text(json.dumps(value))
    (found,) = read(path)
    assert found.source and found.source.format == "responses"
    assert Trajectory.from_json(found.to_json()) == found
    return found


def said(trajectory: Trajectory) -> list[dict[str, Any]]:
    return [m.model_dump(exclude_none=True) for m in trajectory.messages]


def test_the_agents_sdks_input_list() -> None:
    (run,) = read(SAMPLES / "agents_sdk.json")
    calls = [
        {"id": "call_1", "name": "stock", "arguments": {"item": "lamp"}},
        {"id": "call_2", "name": "stock", "arguments": {"item": "sofa"}},
    ]
    assert said(run) == [
        {"role": "user", "content": "How many lamps and sofas are left?"},
        {"role": "assistant", "reasoning_content": "I need the stock of both.", "tool_calls": calls},
        {"role": "tool", "content": "3", "tool_call_id": "call_1", "name": "stock"},
        {"role": "tool", "content": "0", "tool_call_id": "call_2", "name": "stock"},
        {"role": "assistant", "content": "Three lamps, no sofa.", "id": "msg_1"},
    ]
    assert run.task == "How many lamps and sofas are left?" and run.outcome is None and run.meta == {}
    assert [len(step.observations) for step in run.steps] == [2, 0]


def test_a_stored_response_with_tools_of_the_server() -> None:
    (run,) = read(SAMPLES / "response.json")
    assert run.id == "resp_1" and run.source and run.source.format == "responses"
    messages = said(run)
    assert messages[0] == {"role": "system", "content": "Answer from the files."}
    assert messages[1]["reasoning_content"] == "[encrypted reasoning]"
    pairs = [(m["tool_calls"][-1], r) for m, r in zip(messages[1:-1:2], messages[2:-1:2], strict=True)]
    assert [call["name"] for call, _ in pairs] == [
        "web_search",
        "file_search",
        "code_interpreter",
        "price",
        "image_generation",
    ]
    assert all(call["id"] == result["tool_call_id"] and call["name"] == result["name"] for call, result in pairs)
    assert pairs[0][0]["arguments"] == {"type": "search", "query": "tallest lamp", "queries": ["tallest lamp"]}
    assert json.loads(pairs[0][1]["content"]) == [{"type": "url", "url": "https://example.org/lamps"}]
    assert pairs[1][0]["arguments"] == {"queries": ["lamp height"]}
    assert json.loads(pairs[1][1]["content"])[0]["text"] == "The Obelisk: 9 m."
    assert pairs[2][0]["arguments"]["code"] == "print(9 * 100)" and pairs[2][1]["content"] == "900\n"
    assert pairs[3][0] | {"id": ""} == {
        "id": "",
        "name": "price",
        "arguments": {"item": "Obelisk"},
        "server_label": "shop",
        "status": "failed",
    }
    assert pairs[3][1]["is_error"] is True and "no such item" in pairs[3][1]["content"]
    assert messages[9]["tool_calls"][0] == {"id": "call_9", "name": "note", "arguments": "tallest: Obelisk"}
    assert pairs[4][1]["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    last = messages[-1]
    assert last["content"] == "The Obelisk, 900 cm.\nI cannot say where it stands." and last["status"] == "incomplete"
    assert last["refusal"] == "I cannot say where it stands." and last["annotations"][0]["file_id"] == "file_1"
    assert [t.get("name") or t["function"]["name"] for t in run.tools or []] == ["note", "web_search", "price"]
    assert (run.tools or [])[2]["server_label"] == "shop"
    assert run.meta["status"] == "incomplete" and run.meta["incomplete_details"] == {"reason": "max_output_tokens"}
    assert run.meta["usage"]["total_tokens"] == 150 and "output" not in run.meta and "instructions" not in run.meta


def test_a_request_with_input_alone_and_every_kind_of_output(tmp_path: Path) -> None:
    picture = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}
    run = one(
        tmp_path,
        {
            "instructions": [{"role": "developer", "content": "Be brief."}],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Look"}, picture]},
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "short"}],
                    "content": [{"text": "long"}],
                },
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]},
                {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"], "timeout_ms": None}},
                {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "a", "stderr": ""}]},
                {"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file", "path": "a"}},
                {"type": "apply_patch_call_output", "call_id": "p", "status": "failed", "output": "no such file"},
                {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
                {
                    "type": "computer_call_output",
                    "call_id": "c",
                    "output": {"type": "computer_screenshot", "image_url": "data:x"},
                },
                {"type": "mcp_approval_request", "id": "m", "server_label": "l", "name": "rm", "arguments": "{}"},
                {"type": "mcp_approval_response", "approval_request_id": "m", "approve": False, "reason": "never"},
                {"type": "teleport_call", "id": "t", "where": "home"},
                {"type": "item_reference", "id": "x"},
            ],
        },
    )
    assert said(run) == [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "reasoning_content": "long",
            "reasoning_summary": "short",
            "content": "One moment.",
            "tool_calls": [{"name": "shell", "arguments": {"commands": ["ls"]}, "id": "s"}],
        },
        {"role": "tool", "content": '[{"stdout": "a", "stderr": ""}]', "tool_call_id": "s", "name": "shell"},
        {
            "role": "assistant",
            "tool_calls": [{"name": "apply_patch", "arguments": {"type": "delete_file", "path": "a"}, "id": "p"}],
        },
        {"role": "tool", "content": "no such file", "tool_call_id": "p", "name": "apply_patch", "status": "failed"},
        {
            "role": "assistant",
            "tool_calls": [{"name": "computer", "arguments": {"type": "click", "x": 1, "y": 2}, "id": "c"}],
        },
        {
            "role": "tool",
            "content": [{"type": "image_url", "image_url": {"url": "data:x"}}],
            "tool_call_id": "c",
            "name": "computer",
        },
        {"role": "assistant", "tool_calls": [{"name": "rm", "arguments": {}, "id": "m", "server_label": "l"}]},
        {"role": "tool", "content": '{"approve": false, "reason": "never"}', "tool_call_id": "m", "name": "rm"},
        {"role": "assistant", "tool_calls": [{"name": "teleport", "arguments": {"where": "home"}, "id": "t"}]},
    ]
    assert run.meta["other_items"] == [{"type": "item_reference", "id": "x"}]
    assert run.task == "Look"


def test_a_result_that_the_log_leaves_out_is_said(tmp_path: Path) -> None:
    run = one(
        tmp_path, [{"role": "user", "content": "q"}, {"type": "web_search_call", "id": "w", "status": "completed"}]
    )
    assert run.messages[2].content == "[completed; its result is not in the log]"


def test_two_messages_of_the_model_stay_two_steps(tmp_path: Path) -> None:
    turn = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    run = one(tmp_path, {"items": [turn, turn, {"type": "reasoning", "summary": []}, turn]})
    assert [step.message.content for step in run.steps] == ["x", "x", "x"]


def test_a_failed_response_without_output_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"object": "response", "id": "r", "output": [], "status": "failed"}))
    errors: list[ReadError] = []
    assert list(read(path, on_error=errors.append)) == []
    assert errors[0].reason == "no messages: there is nothing to judge (format responses)"


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        [{"type": "call"}],
        {"data": [{"type": "reasoning", "role": "x"}]},
    ],
)
def test_other_lists_are_not_taken_for_items(value: Any) -> None:
    from rrm.readers import responses

    assert not responses.sniff(value)
