"""Logs of agents' frameworks: what their own packages wrote (`benchmarks/formats`) and what their documentation shows comes back whole."""

from __future__ import annotations

import json
import logging
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rrm.errors import ReadError
from rrm.readers import read, read_value
from rrm.trajectory import Trajectory

SAMPLES = Path(__file__).parent / "samples"
CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"
WIDER = [
    ("user", "Which is wider, the door or the gate?", "", []),
    ("assistant", "Both widths are needed.", "", [("width", "door", "c1"), ("width", "gate", "c2")]),
    ("tool", "the door is 4 feet wide", "c1", []),
    ("tool", "no gate is known, only a gateway", "c2 failed", []),
    ("assistant", "The gate is called gateway.", "", [("width", "gateway", "c3")]),
    ("tool", "the gateway is 7 feet wide", "c3", []),
    ("assistant", "The gateway is wider than the door.", "", []),
]
"""The task of most samples: role, text or thought, a result's call and whether it failed, calls."""


def rows(trajectory: Trajectory) -> list[tuple[Any, ...]]:
    """The messages in the form of `WIDER`; system messages are left out."""
    found = list[tuple[Any, ...]]()
    for message in trajectory.messages:
        calls = [(c.name, next(iter(dict(c.arguments).values()), ""), c.id) for c in message.tool_calls or []]  # pyright: ignore[reportArgumentType]
        failed = " failed" if message.model_dump().get("is_error") else ""
        if message.role != "system":
            said = message.reasoning_content or message.text()
            found.append((message.role, said, (message.tool_call_id or "") + failed, calls))
    return found


def one(value: Any, **options: Any) -> Trajectory:
    """The only run in a value."""
    (found,) = read_value(value, "x", **options)
    assert isinstance(found, Trajectory), found
    return found


def lines(tmp_path: Path, values: Iterable[Any]) -> list[Trajectory]:
    """The runs of a file of lines."""
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, values)))
    return list(read(tmp_path / "log.jsonl"))


def whole(name: str, format: str) -> None:
    """A sample holds the task of `WIDER`, and nothing of it is left behind."""
    (found,) = read(SAMPLES / name)
    wanted = list(WIDER)
    if format == "autogen":  # a model's words beside its calls are no part of its first message there
        wanted[1] = ("assistant", "", "", wanted[1][3])
    error = WIDER[3][1]
    assert [(r, error if error in t else t, *more) for r, t, *more in rows(found)] == wanted
    assert found.source and found.source.format == format and found.task == WIDER[0][1]
    assert "left_behind" not in found.meta and found.outcome is None


@pytest.mark.parametrize("spelling", ["camel", "snake"])
def test_adks_sessions(spelling: str) -> None:
    """39b3a1de: no known transcript format."""
    whole(f"adk_{spelling}.json", "adk")


@pytest.mark.parametrize("kind", ["state", "task"])
def test_autogens_messages(kind: str) -> None:
    """39b3a1de: no known transcript format."""
    whole(f"autogen_{kind}.json", "autogen")


@pytest.mark.parametrize("kind", ["events", "updates"])
def test_langgraphs_streams(kind: str) -> None:
    """39b3a1de: no known transcript format."""
    whole(f"langgraph_{kind}.jsonl", "langgraph")


@pytest.mark.parametrize("name", ["llama_index_events.jsonl", "llama_index_messages.json"])
def test_llama_indexs_messages_and_events(name: str) -> None:
    """39b3a1de: messages without content, calls and results, each an `openai` message with `blocks` that nobody reads; events: an error."""
    whole(name, "llama_index")


def test_pydantic_ais_messages() -> None:
    """39b3a1de: no known transcript format."""
    whole("pydantic_ai.json", "pydantic_ai")


@pytest.mark.parametrize("name", ["vercel_ai_ui.json", "vercel_ai_model.json"])
def test_vercels_chats(name: str) -> None:
    """39b3a1de: task '', two messages with content None, `steps` 1, no call and no result."""
    (found,) = read(SAMPLES / name)
    failed = "An error occurred." if "ui" in name else "no item has the number A7"  # what a user's browser is told
    assert rows(found) == [
        ("user", "How many of item A-7 are left?", "", []),
        ("assistant", "The stock must be looked up.", "", [("stock", "A7", "t1")]),
        ("tool", failed, "t1 failed", []),
        ("assistant", "The number has a dash.", "", [("stock", "A-7", "t2"), ("notify", "the warehouse", "t3")]),
        ("tool", '{"sku": "A-7", "left": 3}', "t2", []),
        ("tool", "they were told", "t3", []),
        ("assistant", "Three of item A-7 are left.", "", []),
    ]
    assert "left_behind" not in found.meta


def test_smolagents_failed_call_stands_in_the_models_message_alone() -> None:
    """39b3a1de: no known transcript format."""
    (tools,), (code,) = read(SAMPLES / "smolagents_tools.json"), read(SAMPLES / "smolagents_code.json")
    said = rows(tools)
    assert [r[0] for r in said] == ["user", *["assistant", "tool"] * 3] and said[1][3] == [("width", "gate", "c1")]
    assert said[2][2] == "c1 failed" and "no gate is known" in said[2][1] and said[4][1] == "the gateway is 7 feet wide"
    assert tools.messages[0].content == "You measure things." and tools.meta["usage"] == {
        "input_tokens": 60,
        "output_tokens": 15,
    }
    assert (
        code.task == "How wide is the gateway?"
        and [c.name for m in code.messages for c in m.tool_calls or []] == ["python_interpreter"] * 3
    )
    assert (
        "Code execution failed" in code.messages[3].text() and code.meta["state"] == "success" and code.outcome is None
    )
    assert "left_behind" not in tools.meta and "left_behind" not in code.meta


CONVERSE: dict[str, Any] = {
    "system": [{"text": "You measure things."}],
    "messages": [
        {"role": "user", "content": [{"text": WIDER[0][1]}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Both widths are needed.", "signature": "s"}}},
                {"toolUse": {"toolUseId": "c1", "name": "width", "input": {"of": "door"}}},
                {"toolUse": {"toolUseId": "c2", "name": "width", "input": {"of": "gate"}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "c1", "content": [{"text": "the door is 4 feet wide"}]}},
                {"toolResult": {"toolUseId": "c2", "status": "error", "content": [{"text": WIDER[3][1]}]}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"text": WIDER[4][1]},
                {"toolUse": {"toolUseId": "c3", "name": "width", "input": {"of": "gateway"}}},
            ],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c3", "content": [{"text": WIDER[5][1]}]}}]},
    ],
    "toolConfig": {"tools": [{"toolSpec": {"name": "width", "inputSchema": {"json": {"type": "object"}}}}]},
}
REPLY = {"output": {"message": {"role": "assistant", "content": [{"text": WIDER[6][1]}]}}, "usage": {"totalTokens": 9}}


def test_bedrocks_converse() -> None:
    """39b3a1de: read as `anthropic`, each call and result one `[part]`, no tool message."""
    made = json.loads((SAMPLES / "bedrock.json").read_text())
    for value in (CONVERSE | REPLY, {"request": CONVERSE, "response": REPLY}, made):
        found = one(value)
        assert rows(found) == WIDER and found.messages[0].content == "You measure things."
        assert found.tools and found.tools[0]["function"]["name"] == "width" and "left_behind" not in found.meta
    logged = {"operation": "Converse", "input": {"inputBodyJson": CONVERSE}, "output": {"outputBodyJson": REPLY}}
    assert rows(one(logged)) == WIDER
    assert rows(one([*CONVERSE["messages"], REPLY["output"]["message"]])) == WIDER


def test_a_langfuse_trace_whose_agent_shortens_its_history() -> None:
    """39b3a1de: user and last answer only: both calls, both results and the system message were gone."""
    file = CASES / "formats" / "langfuse_traces.jsonl"
    if not file.exists():
        pytest.skip("the cases are not there")
    (found,) = read(file)
    assert rows(found) == [
        ("user", "Please cancel booking K9.", "", []),
        ("assistant", "", "", [("get_booking", "K9", "c1")]),
        ("tool", '{"id":"K9","status":"confirmed"}', "c1", []),
        ("assistant", "", "", [("cancel_booking", "K9", "c2")]),
        ("tool", '{"ok":true}', "c2 failed", []),
        ("assistant", "Booking K9 is cancelled.", "", []),
    ]
    assert found.meta["errors"] == ["slow backend"] and found.meta["outcome_fields"] == ["scores[0].value"]
    assert "other_conversations" not in found.meta and "left_behind" not in found.meta


def test_langfuses_observations_a_line_each_with_an_agent_below(tmp_path: Path) -> None:
    def of(id: str, kind: str, start: int, parent: str | None = None, **more: Any) -> dict[str, Any]:
        return {
            "id": id,
            "trace_id": "t",
            "type": kind,
            "start_time": f"2026-01-01T00:00:0{start}Z",
            "parent_observation_id": parent,
            **more,
        }

    asked, told = {"role": "user", "content": "Plan a trip."}, {"role": "assistant", "content": "I ask the scout."}
    main, below = lines(
        tmp_path,
        [
            of("a", "AGENT", 0, name="boss"),
            of("b", "GENERATION", 1, "a", input=json.dumps([asked]), output=json.dumps(told)),
            of("c", "AGENT", 2, "a", name="scout"),
            of(
                "d",
                "GENERATION",
                3,
                "c",
                input=[{"role": "user", "content": w} for w in ("x", "y", "z", "v")],
                output="The Grand.",
            ),
            of(
                "e",
                "GENERATION",
                4,
                "a",
                input=[asked, told, {"role": "user", "content": "It is full."}],
                output="Stay at home.",
            ),
        ],
    )
    assert [m.content for m in main.messages] == ["Plan a trip.", "I ask the scout.", "It is full.", "Stay at home."]
    assert below.id == "t/scout" and below.meta["parent"] == {"trace_id": "t"} and main.meta["subagents"] == ["scout"]


def test_the_run_is_the_root_agents_and_the_reading_says_how_many_are_below(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """39b3a1de: the run was the sub-agent's, for it is longer; the root agent's conversation stood in the meta."""

    def span(id: str, parent: str | None, start: int, kind: str = "chat", **said: Any) -> dict[str, Any]:
        values = {"gen_ai.operation.name": kind} | {
            f"gen_ai.{k}": v if isinstance(v, str) else json.dumps(v) for k, v in said.items()
        }
        listed = [{"key": k, "value": {"stringValue": v}} for k, v in values.items()]
        return {
            "traceId": "t",
            "spanId": id,
            "parentSpanId": parent,
            "name": kind,
            "startTimeUnixNano": start,
            "attributes": listed,
        }

    def chat(*texts: str) -> dict[str, Any]:
        said = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(texts)]
        return {"input.messages": said[:-1], "output.messages": said[-1:]}

    boss = span("a", None, 0, "invoke_agent", **{"agent.name": "boss"})
    scout = span("c", "a", 2, "invoke_agent", **{"agent.name": "scout"})
    first, last = (
        span("b", "a", 1, **chat("Plan it.", "Ask.")),
        span("e", "a", 5, **chat("Plan it.", "Ask.", "Full.", "Stay.")),
    )
    inner = span("d", "c", 3, **chat("Find one.", "Where?", "Here.", "Which?", "Any.", "The Grand."))
    with caplog.at_level(logging.WARNING):
        main, below = lines(tmp_path, [boss, first, scout, inner, last])
    assert [m.content for m in main.messages] == ["Plan it.", "Ask.", "Full.", "Stay."] and main.meta["subagents"] == [
        "scout"
    ]
    assert below.id == "t/scout" and len(below.messages) == 6 and below.meta["parent"] == {"trace_id": "t"}
    assert "1 runs are sub-agents'" in caplog.text and "left_behind" not in main.meta | below.meta


def session(kind: str, *blocks: Any, reply: str | None = None, **more: Any) -> dict[str, Any]:
    """A line of a Claude Code session."""
    message = {"role": kind, "content": list(blocks)} | (
        {"id": reply, "usage": {"output_tokens": len(blocks)}} if reply else {}
    )
    return {"type": kind, "uuid": "u", "sessionId": "s", "message": message, **more}


def use(id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": given}


def gave(id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def test_a_reply_of_claude_code_is_one_message_id_wherever_its_blocks_stand(tmp_path: Path) -> None:
    """39b3a1de: two steps of one call each; written again 'I count.\\nI count.' and two calls t1; growing 'I cou\\nI count.\\nI count.'."""
    said = {"type": "text", "text": "I count."}
    again = [said, use("t1", p=1)]
    (found,) = lines(
        tmp_path,
        [
            session("user", {"type": "text", "text": "Read both."}),
            session("assistant", {"type": "text", "text": "I cou"}, reply="m1"),
            session("assistant", said, reply="m1"),
            session("assistant", *again, reply="m1"),
            session("user", gave("t1", "one")),
            session("assistant", use("t2", p=2), reply="m1"),
            session("user", gave("t2", "two")),
            session("assistant", *again, reply="m1"),
            session("assistant", {"type": "text", "text": "Both are read."}, reply="m2"),
        ],
    )
    assert rows(found) == [
        ("user", "Read both.", "", []),
        ("assistant", "I count.", "", [("Read", 1, "t1"), ("Read", 2, "t2")]),
        ("tool", "one", "t1", []),
        ("tool", "two", "t2", []),
        ("assistant", "Both are read.", "", []),
    ]
    assert found.messages[1].model_dump()["id"] == "m1" and "left_behind" not in found.meta


def test_what_claude_code_prints(tmp_path: Path) -> None:
    """39b3a1de: no known transcript format."""

    def line(kind: str, *blocks: Any, under: str | None = None, reply: str | None = None) -> dict[str, Any]:
        held = session(kind, *blocks, reply=reply)
        return {"type": kind, "session_id": "s", "message": held["message"], "parent_tool_use_id": under}

    main, below = lines(
        tmp_path,
        [
            {"type": "system", "subtype": "init", "session_id": "s", "model": "m", "tools": ["Read", "Task"]},
            line("assistant", {"type": "thinking", "thinking": "Look."}, reply="m1"),
            line("assistant", use("t1", p=1), reply="m1"),
            line("assistant", {"type": "text", "text": "I look inside."}, under="t1", reply="m2"),
            line("user", gave("t1", "one")),
            {"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": 0.5, "num_turns": 1},
        ],
    )
    assert rows(main) == [("assistant", "Look.", "", [("Read", 1, "t1")]), ("tool", "one", "t1", [])]
    assert main.meta["results"] == [{"subtype": "success", "total_cost_usd": 0.5, "num_turns": 1}] and main.tools
    assert main.question_id == "s" and below.id == "s/t1" and below.meta["parent"] == {"session_id": "s"}


def test_codexs_sessions_and_what_it_prints(tmp_path: Path) -> None:
    """39b3a1de: no known transcript format."""

    def at(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}

    def call(id: str, of: str) -> dict[str, Any]:
        return at("response_item", type="function_call", name="width", arguments=json.dumps({"of": of}), call_id=id)

    def output(id: str, text: str, code: int) -> dict[str, Any]:
        held = json.dumps({"output": text, "metadata": {"exit_code": code, "duration_seconds": 0.5}})
        return at("response_item", type="function_call_output", call_id=id, output=held)

    def message(role: str, text: str) -> dict[str, Any]:
        return at("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])

    head = at("session_meta", id="one", cwd="/w")
    stored = [
        head,
        message("user", "<environment_context>a folder</environment_context>"),
        message("user", WIDER[0][1]),
        at(
            "response_item",
            type="reasoning",
            summary=[{"type": "summary_text", "text": WIDER[1][1]}],
            encrypted_content="g",
        ),
        *(call("c1", "door"), call("c2", "gate")),
        *(output("c1", WIDER[2][1], 0), output("c2", WIDER[3][1], 1)),
        *(message("assistant", WIDER[4][1]), call("c3", "gateway")),
        at("response_item", type="function_call_output", call_id="c3", output=WIDER[5][1]),
        message("assistant", WIDER[6][1]),
        at("event_msg", type="token_count", info={"total_token_usage": {"input_tokens": 9}}),
        at("session_meta", id="two", forked_from_id="one"),
        message("user", "Once more."),
    ]
    first = lines(tmp_path, stored[:-2])[0]
    assert rows(first)[1:] == WIDER and first.task == WIDER[0][1] and first.id == "one"
    assert first.meta["usage"] == {"input_tokens": 9} and first.messages[4].duration_s == 0.5
    other = [at("session_meta", id="other"), message("user", "Another.")]
    assert [t.id for t in lines(tmp_path, [*stored[:-2], *other])] == ["one", "other"]
    assert [t.id for t in lines(tmp_path, stored)] == ["one"], "a session that goes on from another repeats its head"

    def item(**fields: Any) -> dict[str, Any]:
        return {"type": "item.completed", "item": fields}

    printed = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.started"},
        item(id="i0", type="reasoning", text="Look."),
        {"type": "item.started", "item": {"id": "i1", "type": "command_execution", "command": "ls"}},
        item(id="i1", type="command_execution", command="ls", aggregated_output="a.txt", exit_code=2, status="failed"),
        item(
            id="i2",
            type="mcp_tool_call",
            server="s",
            tool="f",
            arguments={"x": 1},
            result={"content": [{"type": "text", "text": "r"}]},
        ),
        {"type": "item.started", "item": {"id": "i3", "type": "web_search", "query": "q"}},
        item(id="i4", type="agent_message", text="Done."),
        {"type": "turn.completed", "usage": {"input_tokens": 9}},
        {"type": "turn.failed", "error": {"message": "the stream broke"}},
    ]
    (found,) = lines(tmp_path, printed)
    assert rows(found) == [
        ("assistant", "Look.", "", [("shell", "ls", "i1")]),
        ("tool", "a.txt", "i1 failed", []),
        ("assistant", "", "", [("s.f", 1, "i2")]),
        ("tool", "r", "i2", []),
        ("assistant", "Done.", "", []),
        ("assistant", "", "", [("web_search", "q", "i3")]),
    ]
    assert found.meta["usage"] == {"input_tokens": 9} and found.meta["trouble"] == [
        {"error": {"message": "the stream broke"}}
    ]


def gemini(id: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": "2026-01-01T00:00:00Z", "type": kind, "content": content, **more}


def test_geminis_sessions_in_both_forms_and_its_api(tmp_path: Path) -> None:
    """39b3a1de: no known transcript format."""

    def call(id: str, of: str, text: str, **more: Any) -> dict[str, Any]:
        answer = {"functionResponse": {"id": id, "name": "width", "response": {"output": text}}}
        return {"id": id, "name": "width", "args": {"of": of}, "result": [answer], "status": "success", **more}

    both = [call("c1", "door", WIDER[2][1]), call("c2", "gate", WIDER[3][1], status="error")]
    thoughts = [{"description": WIDER[1][1]}]
    messages = [
        gemini("1", "user", [{"text": WIDER[0][1]}]),
        gemini("2", "gemini", "", thoughts=thoughts, toolCalls=both, tokens={"input": 9}, model="m"),
        gemini("3", "gemini", WIDER[4][1], toolCalls=[call("c3", "gateway", WIDER[5][1])]),
        gemini("4", "info", "The file was saved."),
        gemini("5", "gemini", WIDER[6][1]),
    ]
    head = {"sessionId": "s", "projectHash": "p"}
    whole = one({**head, "messages": messages})
    assert rows(whole) == WIDER and whole.id == "s" and whole.meta["notes"][0]["content"] == "The file was saved."
    wrong = gemini("9", "user", "Never mind that.")
    (told,) = lines(
        tmp_path, [head, messages[0], gemini("2", "gemini", ""), *messages[1:4], wrong, {"$rewindTo": "9"}, messages[4]]
    )
    assert rows(told) == WIDER and told.meta["usage"] == {"input": 9} and told.meta["lines"] == 9

    def part(id: str, of: str) -> dict[str, Any]:
        return {"functionCall": {"id": id, "name": "width", "args": {"of": of}}}

    def answer(id: str, text: str, key: str = "result") -> dict[str, Any]:
        return {"functionResponse": {"id": id, "name": "width", "response": {key: text}}}

    contents = [
        {"role": "user", "parts": [{"text": WIDER[0][1]}]},
        {"role": "model", "parts": [{"text": WIDER[1][1], "thought": True}, part("c1", "door"), part("c2", "gate")]},
        {"role": "user", "parts": [answer("c1", WIDER[2][1]), answer("c2", WIDER[3][1], "error")]},
        {"role": "model", "parts": [{"text": WIDER[4][1]}, part("c3", "gateway")]},
        {"role": "user", "parts": [answer("c3", WIDER[5][1])]},
        {"role": "model", "parts": [{"text": WIDER[6][1]}]},
    ]
    assert rows(one({"contents": contents})) == WIDER and rows(one(contents)) == WIDER
    events = [{"author": ("user", "boss")[c["role"] == "model"], "invocationId": "i", "content": c} for c in contents]
    adk = one({"id": "s", "appName": "a", "events": [*events, {**events[-1], "partial": True}], "state": {"k": 1}})
    assert rows(adk) == WIDER and adk.meta["partial_events"] == 1 and adk.messages[-1].name == "boss"


def test_crews() -> None:
    """39b3a1de: no known transcript format."""
    asked = [{"role": "system", "content": "You measure."}, {"role": "user", "content": "Measure the door."}]
    done = {"role": "assistant", "content": "Thought: I know.\nFinal Answer: four feet"}
    tasks = [
        {
            "description": "Measure the door.",
            "expected_output": "feet",
            "raw": "four feet",
            "agent": "measurer",
            "messages": [*asked, done],
        },
        {
            "description": "Write it down.",
            "expected_output": "a line",
            "raw": "The door: four feet.",
            "agent": "writer",
        },
    ]
    found = one({"raw": "The door: four feet.", "tasks_output": tasks, "token_usage": {"total_tokens": 9}})
    assert [(m.role, m.name) for m in found.messages if m.role == "assistant"] == [
        ("assistant", "measurer"),
        ("assistant", "writer"),
    ]
    assert found.messages[-1].content == "The door: four feet." and found.meta["tasks_without_messages"] == 1


def test_an_error_beside_a_reward_of_zero_is_no_outcome(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """39b3a1de: outcome 0.0, a failure of the agent."""
    run = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    with caplog.at_level(logging.WARNING):
        broke, failed, won = lines(
            tmp_path,
            [
                {**run, "reward": 0.0, "error": "no sandbox"},
                {**run, "reward": 0.0, "error": None},
                {**run, "reward": 1.0, "error": "late"},
            ],
        )
    assert (broke.outcome, failed.outcome, won.outcome) == (None, 0.0, 1.0) and "1 runs record an error" in caplog.text


def test_what_stays_behind_is_counted_and_messages_that_come_out_empty_are_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """39b3a1de: not a word of either."""
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    snapshot = {
        "type": "attachment",
        "uuid": "u",
        "sessionId": "s",
        "attachment": {"note": "the plan of the whole house"},
    }
    with caplog.at_level(logging.WARNING):
        (found,) = lines(tmp_path, [session("user", {"type": "text", "text": "Go."}), snapshot])
    assert found.meta["left_behind"] == {"texts": 1, "characters": 27, "at": ["[].attachment.note"]}
    assert "format claude_code: 1 texts (27 characters) of 1 runs" in caplog.text
    assert "left_behind" not in one({"messages": chat, "notes": "kept in the meta as they are"}).meta
    (error,) = read_value(
        {"turns": [{"role": "user", "words": "how wide is it"}], "messages": [{"role": "user", "content": ""}]},
        "x",
        format="openai",
    )
    assert isinstance(error, Trajectory), "what is in the meta is not lost"
    empty = {
        "type": "user",
        "uuid": "u",
        "sessionId": "s",
        "message": {"role": "user", "content": "", "words": "how wide is it"},
    }
    (error,) = read_value(empty, "x")
    assert isinstance(error, ReadError) and "come out empty" in error.reason


@pytest.mark.parametrize("suffix", [".json", ".eval"])
def test_a_sample_and_its_retry_are_one_attempt_the_last(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """39b3a1de: three attempts, the sample that was done before twice and the one that broke beside its retry."""

    def write(name: str, created: str, task: str, samples: dict[str, str]) -> None:
        about = {
            "version": 2,
            "status": "success",
            "eval": {"task": "t", "task_id": task, "created": created},
            "plan": {},
        }
        held = [
            {
                "id": id,
                "epoch": 1,
                "input": id,
                "target": "",
                "messages": [{"role": "user", "content": id}, {"role": "assistant", "content": said}],
            }
            for id, said in samples.items()
        ]
        if suffix == ".json":
            (tmp_path / f"{name}.json").write_text(json.dumps(about | {"samples": held}))
            return
        with zipfile.ZipFile(tmp_path / f"{name}.eval", "w") as log:
            log.writestr("header.json", json.dumps(about))
            for sample in held:
                log.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))

    write("a_retry", "2026-01-02T00:00:00", "one", {"p": "first", "q": "again"})
    write("b_begun", "2026-01-01T00:00:00", "one", {"p": "first", "q": "broken", "r": "left"})
    write("c_other", "2026-01-03T00:00:00", "two", {"q": "other"})
    with caplog.at_level(logging.WARNING):
        found = list(read(tmp_path))
    assert [t.messages[-1].content for t in found] == ["first", "again", "left", "other"]
    assert "2 samples stand again in a later log" in caplog.text
