"""`anthropic`: a list of messages without an object around it, and where other readers meet Anthropic's blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_rows import one, read_lines, talk

from rrm.errors import ReadError
from rrm.integrations.rows import messages_of
from rrm.readers import read, read_value, sniff
from rrm.readers.messages import chat_messages

USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"town": "Oslo"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "4 degrees"}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "How warm is it in Oslo?"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "I look."}, USE]},
    {"role": "user", "content": [RESULT]},
    {"role": "assistant", "content": "4 degrees."},
]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def test_a_list_alone_is_read_with_its_calls_and_results(tmp_path: Path) -> None:
    whole = one({"messages": MESSAGES})
    (tmp_path / "one.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "some.json").write_text(json.dumps([MESSAGES, MESSAGES]))
    (tmp_path / "lines.jsonl").write_text(f"{json.dumps(MESSAGES)}\n" * 2)
    files = [list(read(tmp_path / name)) for name in ("one.json", "some.json", "lines.jsonl")]
    assert [len(runs) for runs in files] == [1, 2, 2]
    for run in [*files[0], *files[1], *files[2], one(MESSAGES), *read(tmp_path / "one.json", format="anthropic")]:
        assert run.source is not None and run.source.format == "anthropic"
        assert run.messages == whole.messages and run.task == whole.task and run.question_id == whole.question_id
        assert [m.role for m in run.messages] == ["user", "assistant", "tool", "assistant"]
        (call,) = run.messages[1].tool_calls or []
        assert (call.name, call.arguments) == ("weather", {"town": "Oslo"})
        assert run.messages[1].reasoning_content == "I look." and run.messages[2].content == "4 degrees"


@pytest.mark.parametrize("block", [USE, RESULT, {"type": "redacted_thinking"}, {"type": "mcp_tool_use"}])
def test_one_block_tells_it(block: dict[str, Any]) -> None:
    assert sniff(talk("q", [block])) == "anthropic"


def test_an_mcp_servers_call_is_a_call() -> None:
    use = {"type": "mcp_tool_use", "id": "m", "name": "find", "server_name": "s", "input": {"q": 1}}
    result = {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "r"}]}
    run = one(talk("q", [use, result]))
    assert [m.role for m in run.messages] == ["user", "assistant", "tool"]
    (call,) = run.messages[1].tool_calls or []
    assert (call.name, call.arguments, run.messages[2].content) == ("find", {"q": 1}, "r")


@pytest.mark.parametrize("parts", [[{"type": "text", "text": "q"}], [{"type": "text", "text": "q"}, PICTURE], []])
def test_a_list_of_openais_parts_stays_openais(parts: list[Any]) -> None:
    run = one(talk(parts, "a"))
    assert run.source is not None and run.source.format == "openai"
    assert len(run.messages) == 2


SHAREGPT = [{"from": m["role"], "value": m["content"]} for m in MESSAGES]


@pytest.mark.parametrize(("record", "options"), [
    (MESSAGES, {"format": "openai"}), ({"messages": MESSAGES}, {"format": "openai"}), ({"conversations": MESSAGES}, {}),
    ({"conversations": SHAREGPT}, {}), ({"prompt": MESSAGES[:1], "completion": MESSAGES[1:]}, {}),
    ({"log": {"turns": MESSAGES}}, {"mapping": {"messages": "log.turns"}}),
    ({"log": SHAREGPT}, {"mapping": {"messages": "log", "message.content": "value", "message.role": "from"}}),
    ({"q": "How warm is it in Oslo?", "a": MESSAGES[1:]}, {"mapping": {"task": "q", "response": "a"}}),
])  # fmt: skip
def test_whatever_holds_the_list_its_calls_and_results_are_read(
    tmp_path: Path, record: Any, options: dict[str, Any]
) -> None:
    (run,), _ = read_lines(tmp_path / "line.jsonl", record, **options)
    expected = one(MESSAGES)
    assert run.messages == expected.messages and run.task == expected.task


def test_calls_that_a_log_writes_in_both_ways_are_there_once() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Oslo"}'}}
    other = {"type": "tool_use", "id": "t2", "name": "clock", "input": None}
    both = {"role": "assistant", "tool_calls": [call], "content": [{"type": "text", "text": "I look."}, USE, other]}
    result = {"role": "tool", "tool_call_id": "t1", "content": [{"type": "tool_result", "content": "4 degrees"}]}
    _, asked, answer = one({"conversations": [MESSAGES[0], both, result]}).messages
    assert [(c.id, c.name) for c in asked.tool_calls or []] == [("t1", "weather"), ("t2", "clock")]
    assert asked.content == "I look." and (asked.tool_calls or [])[1].arguments == {}
    assert (answer.role, answer.content, answer.tool_call_id) == ("tool", "4 degrees", "t1")


def test_a_row_of_a_data_set_keeps_them_without_its_pictures() -> None:
    seen = {**RESULT, "content": [{"type": "text", "text": "4 degrees"}, {"type": "image", "source": object()}]}
    rows = [*MESSAGES[:2], {"role": "user", "content": [seen, {"type": "image", "source": object()}]}]
    question, call, result, picture = messages_of("assistant", rows, "the reply")
    assert question["content"] == MESSAGES[0]["content"] and call["reasoning_content"] == "I look."
    assert call["tool_calls"] == [{"id": "t1", "name": "weather", "arguments": {"town": "Oslo"}}]
    assert result == {
        "role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "4 degrees"}, {"type": "image"}]
    }  # fmt: skip
    assert picture["content"] == [{"type": "image"}]


@pytest.mark.parametrize("record", ["text", 3, None, {"messages": {}}, {}])
def test_what_has_no_list_is_refused(record: Any) -> None:
    (error,) = read_value(record, "body", format="anthropic")
    assert isinstance(error, ReadError) and "no list of `messages`" in error.reason


def test_a_thought_in_parts_is_read_as_its_text() -> None:
    """Mistral's reasoning models write them so, in messages of OpenAI's shape."""
    texts = [{"type": "text", "text": text} for text in ("I look.", "Then I add.", "4")]
    content = [{"type": "thinking", "thinking": texts[:2]}, texts[2]]
    messages = chat_messages([{"role": "assistant", "content": content}])
    assert messages == [{"role": "assistant", "content": "4", "reasoning_content": "I look.\nThen I add."}]
