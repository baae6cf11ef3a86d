"""OpenAI's Responses API, field by field: what the Agents SDK writes, a stored response, items that need care."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from linear_time import assert_linear
from log_rows import SAMPLES, in_file, read_lines, sent, talk, turns

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, responses
from rrm.readers.base import SourceItem


def one(folder: Path, value: Any) -> Trajectory:
    found = in_file(folder / "run.dat", value)  # what a file holds decides, not its suffix
    assert found.source and found.source.format == "responses"
    return found


def listing(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A page of the API's list of a response's input."""
    return {"object": "list", "data": list(items), "first_id": "a", "last_id": "b", "has_more": False, **more}


def asked(text: str, id: str, role: str = "user") -> dict[str, Any]:
    return {"id": id, "type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_the_agents_sdks_input_list() -> None:
    (run,) = read(SAMPLES / "agents_sdk.json")
    calls = [
        {"id": "call_1", "name": "stock", "arguments": {"item": "lamp"}},
        {"id": "call_2", "name": "stock", "arguments": {"item": "sofa"}},
    ]
    assert sent(run) == [
        {"role": "user", "content": "How many lamps and sofas are left?"},
        {"role": "assistant", "reasoning_content": "I need the stock of both.", "tool_calls": calls},
        {"role": "tool", "content": "3", "tool_call_id": "call_1", "name": "stock"},
        {"role": "tool", "content": "0", "tool_call_id": "call_2", "name": "stock"},
        {"role": "assistant", "content": "Three lamps, no sofa.", "id": "msg_1"},
    ]
    assert run.task == "How many lamps and sofas are left?" and run.outcome is None and run.meta == {}
    assert [len(step.observations) for step in run.steps] == [2, 0]


def test_a_stored_response_with_tools_of_the_server(tmp_path: Path) -> None:
    stored = json.loads((SAMPLES / "response.json").read_text())
    run = one(tmp_path, {"response": stored, "input_items": listing(asked("How high is the tallest lamp?", "i1"))})
    assert run.id == "resp_1" and run.task == "How high is the tallest lamp?"
    messages = sent(run)
    assert messages.pop(1) == {"role": "user", "content": "How high is the tallest lamp?", "id": "i1"}
    assert messages[0] == {"role": "system", "content": "Answer from the files."}
    assert messages[1]["reasoning_content"] == "[encrypted reasoning]"
    pairs = [(m["tool_calls"][-1], r) for m, r in zip(messages[1:-1:2], messages[2:-1:2], strict=True)]
    names = "web_search file_search code_interpreter price image_generation"
    assert " ".join(call["name"] for call, _ in pairs) == names
    assert all(call["id"] == result["tool_call_id"] and call["name"] == result["name"] for call, result in pairs)
    assert pairs[0][0]["arguments"] == {"type": "search", "query": "tallest lamp", "queries": ["tallest lamp"]}
    assert json.loads(pairs[0][1]["content"]) == [{"type": "url", "url": "https://example.org/lamps"}]
    assert pairs[1][0]["arguments"] == {"queries": ["lamp height"]}
    assert json.loads(pairs[1][1]["content"])[0]["text"] == "The Obelisk: 9 m."
    assert pairs[2][0]["arguments"]["code"] == "print(9 * 100)" and pairs[2][1]["content"] == "900\n"
    assert pairs[3][0] | {"id": ""} == {
        "id": "", "name": "price", "arguments": {"item": "Obelisk"}, "server_label": "shop", "status": "failed",
    }  # fmt: skip
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
    run = one(tmp_path, {"instructions": [{"role": "developer", "content": "Be brief."}], "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look"}, picture]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": [{"text": "long"}]},
        spoken("One moment."),
        {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"], "timeout_ms": None}},
        {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "a", "stderr": ""}]},
        {"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "p", "status": "failed", "output": "no such file"},
        {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
        {"type": "computer_call_output", "call_id": "c", "output": {
            "type": "computer_screenshot", "image_url": "data:x"
        }},
        {"type": "mcp_approval_request", "id": "m", "server_label": "l", "name": "rm", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "m", "approve": False, "reason": "never"},
        {"type": "teleport_call", "id": "t", "where": "home"}, {"type": "item_reference", "id": "x"},
    ]})  # fmt: skip
    assert sent(run) == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {
            "url": "https://example.org/a.png", "detail": "low"
        }}]},
        {
            "role": "assistant", "reasoning_content": "long", "reasoning_summary": "short", "content": "One moment.",
            "tool_calls": [{"name": "shell", "arguments": {"commands": ["ls"]}, "id": "s"}],
        },
        {"role": "tool", "content": '[{"stdout": "a", "stderr": ""}]', "tool_call_id": "s", "name": "shell"},
        {"role": "assistant", "tool_calls": [{
            "name": "apply_patch", "arguments": {"type": "delete_file", "path": "a"}, "id": "p"
        }]},
        {"role": "tool", "content": "no such file", "tool_call_id": "p", "name": "apply_patch", "status": "failed"},
        {"role": "assistant", "tool_calls": [{
            "name": "computer", "arguments": {"type": "click", "x": 1, "y": 2}, "id": "c"
        }]},
        {
            "role": "tool", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}], "tool_call_id": "c",
            "name": "computer",
        },
        {"role": "assistant", "tool_calls": [{"name": "rm", "arguments": {}, "id": "m", "server_label": "l"}]},
        {"role": "tool", "content": '{"approve": false, "reason": "never"}', "tool_call_id": "m", "name": "rm"},
        {"role": "assistant", "tool_calls": [{"name": "teleport", "arguments": {"where": "home"}, "id": "t"}]},
    ]  # fmt: skip
    assert run.meta["other_items"] == [{"type": "item_reference", "id": "x"}]
    assert run.task == "Look"


def test_a_result_that_the_log_leaves_out_is_sent(tmp_path: Path) -> None:
    run = one(
        tmp_path, [{"role": "user", "content": "q"}, {"type": "web_search_call", "id": "w", "status": "completed"}]
    )
    assert run.messages[2].content == "[completed; its result is not in the log]"


def test_two_messages_of_the_model_stay_two_steps(tmp_path: Path) -> None:
    turn = spoken("x")
    run = one(tmp_path, {"items": [turn, turn, {"type": "reasoning", "summary": []}, turn]})
    assert [step.message.content for step in run.steps] == ["x", "x", "x"]


def test_a_failed_response_without_output_is_an_error_that_names_it(tmp_path: Path) -> None:
    runs, (error,) = runs_of(tmp_path, [{"object": "response", "id": "r", "output": [], "status": "failed"}])
    assert runs == [] and error.reason == "no messages: there is nothing to judge (format responses)"


@pytest.mark.parametrize("value", [
    talk("a", "b"), {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, [{"type": "call"}],
    {"data": [{"type": "reasoning", "role": "x"}]},
])  # fmt: skip
def test_other_lists_are_not_taken_for_items(value: Any) -> None:
    assert not responses.sniff(value)


def stored(id: str, after: str | None, new: Any, *output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"object": "response", "id": id, "previous_response_id": after, "input": new, "output": list(output), **more}


def spoken(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


ASKS = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Paris"}'}
BACK = {"type": "function_call_output", "call_id": "c1", "output": "12 C"}
CHAIN = [
    stored(
        "r1", None, [{"role": "user", "content": "Weather in Paris?"}], ASKS, instructions="Be kind.", success=False
    ),
    stored("r2", "r1", [BACK], spoken("12 degrees."), instructions="Be kind.", success=True),
    stored("r3", "r2", "In Fahrenheit?", spoken("54."), instructions="Be brief.", status="completed"),
]


def of_conversation(*times: Any) -> list[dict[str, Any]]:
    """Two responses of a conversation that the server keeps, made at these times."""
    kept = [{"conversation": {"id": "conv"}, "created_at": time} for time in times]
    return [stored("r1", None, "Weather?", ASKS, **kept[0]), stored("r2", None, [BACK], spoken("12."), **kept[1])]


def runs_of(folder: Path, records: list[Any]) -> tuple[list[Trajectory], list[ReadError]]:
    return read_lines(folder / "runs.jsonl", *records)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_responses_whose_history_the_server_keeps_are_one_run(tmp_path: Path, order: tuple[int, ...]) -> None:
    (run,), errors = runs_of(tmp_path, [CHAIN[i] for i in order])
    assert sent(run) == [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather in Paris?"},
        {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}, "id": "c1"}]},
        {"role": "tool", "content": "12 C", "tool_call_id": "c1", "name": "weather"},
        {"role": "assistant", "content": "12 degrees."}, {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "In Fahrenheit?"}, {"role": "assistant", "content": "54."},
    ]  # fmt: skip
    assert not errors and run.id == "r3" and run.task == "Weather in Paris?" and run.outcome == 1.0
    assert run.meta["responses"] == 3 and run.meta["joined_by"] == "previous_response_id"
    assert run.source and run.source.line == order.index(0) + 1


def test_two_that_go_on_from_one_are_two_runs_with_what_was_before(tmp_path: Path) -> None:
    others = [stored("r9", None, "Hi", spoken("Hello.")), stored("r4", "r2", "In Kelvin?", spoken("285."))]
    found, errors = runs_of(tmp_path, [*CHAIN, *others])
    assert [[m.text() for m in t.messages][-1] for t in found] == ["54.", "285.", "Hello."] and not errors
    assert [len(t.steps) for t in found] == [3, 3, 1] and "responses" not in found[2].meta


def test_a_run_whose_beginning_is_not_there_is_an_error(tmp_path: Path) -> None:
    found, (error,) = runs_of(tmp_path, CHAIN[1:])
    assert not found and error.line == 1
    assert "previous_response_id 'r1', which is not in this file" in error.reason and "nor for the 1 " in error.reason
    found, (error,) = runs_of(tmp_path, [stored("r2", None, [BACK], spoken("12."))])
    assert not found and "begins with a tool's result" in error.reason
    found, (error,) = runs_of(tmp_path, [{"request": {"model": "m", "input": [BACK]}, "response": CHAIN[1]}])
    assert not found and "'r1', which is not in this file" in error.reason and "(format calls)" in error.reason


def test_a_circle_is_an_error_and_so_is_what_hangs_on_it(tmp_path: Path) -> None:
    circle = [stored("r1", "r2", "a", spoken("b")), stored("r2", "r1", "c", spoken("d"))]
    found, errors = runs_of(tmp_path, [*circle, stored("r3", "r2", "e", spoken("f"))])
    assert not found and len(errors) == 1 and all("circle" in e.reason for e in errors)
    found, errors = runs_of(tmp_path, [*circle, {**CHAIN[0], "id": "r8"}, {**CHAIN[0], "id": "r9"}])
    assert len(errors) == 2 and [t.id for t in found] == ["r8", "r9"]


@pytest.mark.parametrize("order", [(0, 0, 1, 2), (0, 1, 1, 2), (0, 1, 2, 2), (0, 1, 2, 0, 1, 2), (2, 2, 1, 0, 0)])
def test_a_response_that_is_there_twice_is_one(tmp_path: Path, order: tuple[int, ...]) -> None:
    (run,), errors = runs_of(tmp_path, [CHAIN[i] for i in order])
    assert not errors and run.id == "r3" and run.meta["responses"] == 3
    assert [s.message.content for s in run.steps] == [None, "12 degrees.", "54."]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_a_response_logged_as_it_went_on_the_completed_one_is_kept(tmp_path: Path, order: tuple[int, int]) -> None:
    begun = stored("r2", "r1", [BACK], status="in_progress")
    ended = stored("r2", "r1", [BACK], spoken("12."), status="completed")
    (run,), errors = runs_of(tmp_path, [CHAIN[0], *((begun, ended)[i] for i in order)])
    assert not errors and run.id == "r2" and run.messages[-1].text() == "12." and run.meta["status"] == "completed"
    late = stored("r2", "r1", [BACK], spoken("12, or"), status="in_progress")
    (run,), errors = runs_of(tmp_path, [CHAIN[0], begun, late])  # none is completed: the last
    assert not errors and run.messages[-1].text() == "12, or"


STATES = [("completed",) * 2, ("failed", "completed"), ("incomplete",) * 2, ("success",) * 2, (None, "failed")]


@pytest.mark.parametrize(("first", "second"), STATES)
def test_two_responses_with_one_id_are_not_taken_for_one_in_silence(tmp_path: Path, first: Any, second: Any) -> None:
    same = [stored("r1", None, "q", spoken(text), status=state) for text, state in (("one", first), ("two", second))]
    (run,), (error,) = runs_of(tmp_path, same)
    assert run.messages[-1].text() == "two" and error.line == 1
    assert "another response with the id 'r1' and another output is kept (line 2)" in error.reason


@pytest.mark.parametrize(("first", "second"), [
    ("2025-03-01T10:00:00Z", "2025-03-01T10:00:01Z"), ("2025-03-01T12:30:00+05:00", "2025-03-01T10:00:00Z"),  # 07:30 and 10:00 in UTC
    ("2025-03-01 10:00:00", "2025-03-01T09:30:00-01:00"),  # no zone: UTC
    (1740823199, "2025-03-01T10:00:00Z"), (1, 2),  # a second before
])  # fmt: skip
def test_responses_of_a_conversation_follow_one_another_as_they_were_made(
    tmp_path: Path, first: Any, second: Any
) -> None:
    early, late = of_conversation(first, second)
    for records in ([early, late], [late, early]):
        (run,), errors = runs_of(tmp_path, records)
        assert not errors and run.task == "Weather?" and run.id == "r2" and run.meta["joined_by"] == "conversation"
        assert [m.role for m in run.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("time", "why"),
    [(None, "is missing"), ("noon", "'noon' is neither"), (True, "True is neither"), ([1], "is neither")],
)
def test_a_conversation_without_an_order_is_an_error(tmp_path: Path, time: Any, why: str) -> None:
    early, late = of_conversation(1, time)
    after = stored("r3", "r2", "Sure?", spoken("Yes."))
    found, errors = runs_of(tmp_path, [late, early, after])
    assert not found and sorted(e.line or 0 for e in errors) == [2, 3]
    for error in errors:
        assert "the 2 responses of the conversation 'conv' have no order" in error.reason
        assert why in error.reason and "line 1" in error.reason
    (run,), errors = runs_of(tmp_path, [{**early, "created_at": time}])  # one alone needs none
    assert not errors and run.id == "r1"


def test_a_long_chain_is_read_in_linear_time() -> None:
    def work(count: int) -> None:
        chain = [stored(f"r{i}", f"r{i - 1}" if i else None, "q", spoken("a")) for i in range(count)]
        (run,) = responses.gather(SourceItem(record, "x", i) for i, record in enumerate(reversed(chain), 1))
        assert isinstance(run, SourceItem) and len(run.context["before"]) == count - 1

    assert_linear(work, 4000)


def bare(id: str, after: str | None, *output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response as the API returns it: without what it was given."""
    return {k: v for k, v in stored(id, after, None, *output, **more).items() if k != "input"}


def test_a_response_without_its_input_is_an_error(tmp_path: Path) -> None:
    found, (error,) = runs_of(tmp_path, [bare("r1", None, ASKS), bare("r2", "r1", spoken("12."))])
    assert not found and error.line == 1
    assert "what the response 'r1' was given is not here" in error.reason and "input_items?order=asc" in error.reason
    found, (error,) = runs_of(tmp_path, [CHAIN[0], bare("r2", "r1", spoken("12."))])  # what the tool gave is lost
    assert not found and "what the response 'r2' was given" in error.reason
    (run,), errors = runs_of(tmp_path, [bare("r1", None, spoken("12."), question="Weather?")])
    assert not errors and run.task == "Weather?"
    (run,), errors = runs_of(tmp_path, [{**CHAIN[0], "input": []}])  # said to be nothing
    assert not errors and [m.role for m in run.messages] == ["system", "assistant"]


PAGE = [asked("Be kind.", "i0", "developer"), asked("Weather in Paris?", "i1")]


@pytest.mark.parametrize("newest_first", [False, True])
def test_the_list_of_a_responses_input_may_stand_beside_it(tmp_path: Path, newest_first: bool) -> None:
    def page(*items: dict[str, Any]) -> dict[str, Any]:
        return listing(*(items[::-1] if newest_first else items))

    calls = {**ASKS, "id": "fc1"}
    back = {**BACK, "id": "fo1"}
    first = {"response": bare("r1", None, calls), "input_items": page(*PAGE), "outcome": 1.0, "id": "mine"}
    run = one(tmp_path, first)
    assert turns(run) == [("developer", "Be kind."), ("user", "Weather in Paris?"), ("assistant", None)]
    assert run.outcome == 1.0 and run.id == "r1" and run.meta["beside_response"] == {"id": "mine"}
    later = [page(back), page(*PAGE, calls, back)]  # what is new, or (Alibaba's server) with all that came before
    for items in later:
        second = {"response": bare("r2", "r1", spoken("12.")), "input_items": items}
        (run,), errors = runs_of(tmp_path, [second, first])
        assert [m.role for m in run.messages] == ["developer", "user", "assistant", "tool", "assistant"] and not errors
    inside = {**bare("r1", None, calls), "input_items": page(*PAGE)["data"]}
    assert sent(one(tmp_path, inside)) == sent(one(tmp_path, first)) and "input_items" not in run.meta


@pytest.mark.parametrize(("items", "why"), [
    (listing(asked("a", "1"), has_more=True), "one page of several"),
    (listing(asked("a", "1"), asked("b", "2")), "nothing in it says which"),
    (listing(ASKS, BACK, asked("b", "2"), asked("c", "3", "system")), "nothing in it says which"),
    ({"object": "list"}, "no list of items"), ("Weather?", "no list of items"),
])  # fmt: skip
def test_a_list_of_input_that_does_not_tell_is_an_error(tmp_path: Path, items: Any, why: str) -> None:
    found, (error,) = runs_of(tmp_path, [{"response": bare("r1", None, spoken("12.")), "input_items": items}])
    assert not found and why in error.reason


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_one_that_names_only_its_conversation_goes_on_from_the_latest_of_it(tmp_path: Path, order: Any) -> None:
    first, _ = of_conversation(1, 2)
    kept = {"conversation": {"id": "conv"}}
    second = stored("r2", "r1", [BACK], spoken("12."), created_at=2, **kept)
    records = [first, second, stored("r3", None, "In Fahrenheit?", spoken("54."), created_at=3, **kept)]
    (run,), errors = runs_of(tmp_path, [records[i] for i in order])
    assert not errors and [m.text() for m in run.messages][-3:] == ["12.", "In Fahrenheit?", "54."]
    timeless = {**records[1], "created_at": None}
    found, errors = runs_of(tmp_path, [first, timeless, records[2]])
    assert not found and all("have no order" in e.reason for e in errors)
    (run,), errors = runs_of(tmp_path, [first, timeless])  # one alone is the first
    assert not errors and run.id == "r2" and len(run.steps) == 2
