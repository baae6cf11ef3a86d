"""Logs that were read as another run than they hold. Each docstring names what was read before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_rows import lines, one

from rrm.readers import read

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


def test_a_session_of_codex_and_its_fork_in_one_file_are_two_runs(tmp_path: Path) -> None:
    """They were one run of the parent's id, with both questions. The fork repeats its parent's head."""

    def rollout(id: str, parent: str | None, *texts: str) -> list[dict[str, Any]]:
        heads = [{"id": id, **({"forked_from_id": parent} if parent else {})}, *([{"id": parent}] if parent else [])]
        said = [
            {"type": "message", "role": ("user", "assistant")[k % 2], "content": [{"type": "input_text", "text": text}]}
            for k, text in enumerate(texts)
        ]
        kinds = [("session_meta", head) for head in heads] + [("response_item", message) for message in said]
        return [{"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload} for kind, payload in kinds]

    found = lines(tmp_path, [*rollout("a", None, "q", "one"), *rollout("b", "a", "q", "one", "more", "two")])
    texts = [(t.id, [m.text() for m in t.messages]) for t in found]
    assert texts == [("a", ["q", "one"]), ("b", ["q", "one", "more", "two"])]


def entry(task: str, output: str | None = None) -> dict[str, Any]:
    """A line of a crew's log."""
    status = {"status": "completed", "output": output} if output else {"status": "started"}
    return {"timestamp": "t", "task_name": task, "task": f"{task} it", "agent": "R", **status}


@pytest.mark.parametrize("whole", [False, True])
def test_a_crews_second_kick_off_is_a_run_of_its_own(tmp_path: Path, whole: bool) -> None:
    """The second answer stood in the first kick-off's run, without its question."""
    log = [
        *(entry("find"), entry("find", "a door"), entry("tell"), entry("tell", "A door.")),
        *(entry("find"), entry("find", "a gate"), entry("tell"), entry("tell", "A gate.")),
    ]
    (tmp_path / "log.json").write_text(json.dumps(log))
    found = list(read(tmp_path / "log.json")) if whole else lines(tmp_path, log)
    assert [[m.text() for m in t.messages] for t in found] == [
        ["find it", said, "tell it", told] for said, told in (("a door", "A door."), ("a gate", "A gate."))
    ]


@pytest.mark.parametrize(("name", "shows"), [("user_proxy", False), ("Customer", True)])
def test_what_autogens_user_proxy_says_is_the_users(name: str, shows: bool) -> None:
    """The request for input and the user's wish were two steps of the agent."""

    def said(source: str, text: str, kind: str = "TextMessage") -> dict[str, Any]:
        return {"type": kind, "source": source, "content": text, "models_usage": None}

    request = [said(name, "", "UserInputRequestedEvent")] if shows else []
    spoken = (said("user", "Book a flight."), said("helper", "When?"), said(name, "Today."), said("helper", "Booked."))
    found = one({"messages": [*spoken[:2], *request, *spoken[2:]], "stop_reason": "done"})
    assert [(m.role, m.text()) for m in found.messages] == [
        ("user", "Book a flight."),
        ("assistant", "When?"),
        ("user", "Today."),
        ("assistant", "Booked."),
    ]
    assert [m["type"] for m in found.meta.get("other_messages", [])] == [m["type"] for m in request]


@pytest.mark.parametrize(
    ("said", "observed", "is_there"),
    [
        ("Now I know the count.", "1423 things, of 42.5 kg", False),
        ("There are 42.", None, True),
        ("I count.", "Last output: 42", True),
    ],
)
def test_a_short_answer_of_smolagents_is_not_taken_for_said(said: str, observed: str | None, is_there: bool) -> None:
    """The answer vanished where its digits stood in a time or a count of tokens, as in 1423 here."""
    step = {"step_number": 1, "timing": {"end_time": 1700000042.5}, "model_output": said, "observations": observed}
    step["token_usage"] = {"input_tokens": 142, "output_tokens": 42}
    found = one({"output": 42, "state": "success", "steps": [{"task": "How many?"}, step]})
    assert (found.messages[-1].text() != "42") == is_there


def test_an_answer_of_smolagents_in_its_call_is_said_once() -> None:
    """An answer that the last call gave is no further step."""
    calls = [{"id": "c", "type": "function", "function": {"name": "final_answer", "arguments": {"answer": "a\n“b”"}}}]
    step = {"step_number": 1, "timing": {}, "model_output": None, "observations": None, "tool_calls": calls}
    found = one({"output": "a\n“b”", "steps": [{"task": "How many?"}, step]})
    assert [m.role for m in found.messages] == ["user", "assistant"]


def test_what_a_tool_of_codex_quotes_is_not_how_it_ended(tmp_path: Path) -> None:
    """The log that the agent read well had failed."""
    kinds = ("job build: Exit code: 1", False), ("Exit code: 1\nWall time: 1 s\nOutput:\n", True)
    for text, failed in kinds:
        output = {"type": "function_call_output", "call_id": "c", "output": text}
        head = {"type": "session_meta", "payload": {"id": "a"}}
        (found,) = lines(tmp_path, [head, {"type": "response_item", "payload": output}])
        assert found.messages[0].model_dump().get("is_error", False) == failed
