"""LangChain's messages in the three forms in which they are kept, and LangGraph's state, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from log_rows import SAMPLES, read_lines, sent, talk

from rrm.data.trajectory import Trajectory
from rrm.readers import langchain, read


def lines_of(folder: Path, *values: Any) -> list[Trajectory]:
    found, errors = read_lines(folder / "log.jsonl", *values)
    assert not errors and all(
        t.source and t.source.format == "langchain" and Trajectory.from_json(t.to_json()) == t for t in found
    )
    return found


@pytest.mark.parametrize("name", ["langchain_dumps", "langchain_dict", "langchain_model_dump"])
def test_one_conversation_in_its_three_forms(name: str) -> None:
    (run,) = read(SAMPLES / f"{name}.json")
    assert run.source and run.source.format == "langchain"
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/door.png"}}
    assert sent(run) == [
        {"role": "system", "content": "Measure, do not guess."},
        {"role": "user", "content": [{"type": "text", "text": "How wide is this?"}, picture], "name": "ann"},
        {
            "role": "assistant", "content": "I measure it.", "reasoning_content": "A door is what they mean.",
            "tool_calls": [{"name": "width", "arguments": {"of": "door"}, "id": "call_1"}], "id": "run-1",
        },
        {
            "role": "tool", "content": "no ruler", "tool_call_id": "call_1", "name": "width", "is_error": True,
            "artifact": {"raw": 1},
        },
        {"role": "assistant", "content": "", "reasoning_content": "Try again.", "tool_calls": [
            {"name": "width", "arguments": {"of": "door", "with": "tape"}, "id": "call_2"},
            {"name": "width", "arguments": "{of:", "id": "call_3", "error": "bad"},
        ]},
        {"role": "tool", "content": "81 cm", "tool_call_id": "call_2"},
        {"role": "assistant", "content": "81 cm.", "response_metadata": {"finish_reason": "stop"}},
    ]  # fmt: skip
    assert run.task == "How wide is this?" and run.meta == {}


def test_a_graphs_state() -> None:
    (run,) = read(SAMPLES / "langgraph_state.json")
    assert [m["role"] for m in sent(run)] == ["user", "assistant", "tool", "assistant"]
    assert run.messages[1].tool_calls and run.messages[1].tool_calls[0].arguments == {"of": "door"}
    assert run.messages[2].text() == "81 cm" and run.messages[2].tool_call_id == "call_1"


def test_states_keep_what_they_hold_beside_messages(tmp_path: Path) -> None:
    human, ai = {"type": "human", "content": "q"}, {"type": "AIMessageChunk", "content": "a"}
    thread = {"thread_id": "t", "values": {"messages": [human, ai], "count": 2}, "next": [], "success": True}
    constructor = {"lc": 1, "type": "constructor"}
    message = constructor | {"id": ["x", "HumanMessage"], "kwargs": {"content": "q"}}
    name = ["langchain", "prompts", "chat", "ChatPromptValue"]
    prompt = constructor | {"id": name, "kwargs": {"messages": [message]}}
    removed = {"type": "remove", "content": "", "id": "x"}
    mixed = {"id": 7, "messages": [{"role": "system", "content": "s"}, human, removed]}
    first, second, third = lines_of(tmp_path, thread, prompt, mixed)
    assert first.id == "t" and first.outcome == 1.0
    assert first.meta["values"] == {"count": 2} and first.meta["next"] == []
    assert [m["role"] for m in sent(first)] == ["user", "assistant"]
    assert sent(second) == [{"role": "user", "content": "q"}]
    assert third.id == "7" and [m["role"] for m in sent(third)] == ["system", "user"]
    assert third.meta["removed_messages"] == [removed]


def test_a_checkpoint_is_read_where_its_state_is(tmp_path: Path) -> None:
    state = {"messages": [{"type": "human", "content": "q"}, {"type": "ai", "content": "a"}], "count": 2}
    checkpoint = {"v": 4, "id": "1f0", "channel_values": state, "versions_seen": {}}
    bare, kept = lines_of(tmp_path, checkpoint, {"checkpoint": checkpoint, "metadata": {"step": 3}})
    assert sent(bare) == sent(kept) == talk("q", "a")
    assert bare.meta["channel_values"] == {"count": 2} and bare.meta["v"] == 4 and bare.id == "1f0"
    assert kept.meta["checkpoint"]["channel_values"] == {"count": 2} and kept.meta["metadata"] == {"step": 3}


def test_blocks_and_calls_of_every_provider_once_each(tmp_path: Path) -> None:
    blocks = [
        "plain", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "sum"}]},
        {"type": "reasoning", "reasoning": "std"}, {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "a", "name": "n", "input": {"k": 1}},
        {"type": "input_json_delta", "partial_json": "{"},
        {"type": "function_call", "call_id": "b", "id": "fc", "name": "m", "arguments": '{"k": 2}'},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0"}},
        {"type": "image", "url": "https://example.org/x.png"}, {"type": "file", "file_id": "f"},
    ]  # fmt: skip
    raw = [{"id": "r", "type": "function", "function": {"name": "old", "arguments": "{}"}}]
    ai = {"type": "ai", "content": blocks, "tool_calls": [{"name": "n", "args": {"k": 1}, "id": "a"}]}
    old = {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": raw, "seen": True}, "tool_calls": []}
    critic = {"type": "chat", "role": "user", "content": "c"}
    (run,) = lines_of(tmp_path, [{"type": "human", "content": "q"}, ai, old, critic])
    _, first, second, third = sent(run)
    assert first["reasoning_content"] == "sum\nstd\n[redacted thinking]"
    calls = [(c["id"], c["name"], c["arguments"]) for c in first["tool_calls"]]
    assert calls == [("a", "n", {"k": 1}), ("b", "m", {"k": 2})]
    assert first["content"] == [
        {"type": "text", "text": "plain"}, {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}, {"type": "file", "file_id": "f"},
    ]  # fmt: skip
    assert second["tool_calls"] == [{"id": "r", "name": "old", "arguments": {}}]
    assert second["additional_kwargs"] == {"seen": True}
    assert third == {"role": "user", "content": "c"}


def test_nothing_is_loaded(tmp_path: Path) -> None:
    """A constructor of anything but a message is data, or no transcript; its class is never looked for."""
    bomb = {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "x", "content": "y"}}
    runs, errors = read_lines(tmp_path / "a.jsonl", {"messages": [bomb, bomb]}, [bomb])
    assert runs == [] and len(errors) == 2
    (run,) = lines_of(tmp_path, [{"type": "ai", "content": "a", "additional_kwargs": {"x": bomb}}])
    assert sent(run)[0]["additional_kwargs"] == {"x": bomb}


@pytest.mark.parametrize("value", [
    [{"type": "system", "subtype": "init"}], [{"role": "user", "content": "x", "type": "human"}],
    {"type": "ai", "content": "one message is no conversation"}, {"messages": [{"type": "message", "content": "x"}]},
])  # fmt: skip
def test_other_things_with_a_type(value: Any) -> None:
    assert not langchain.sniff(value)
