"""Logs of agents' frameworks: what their own packages wrote (`samples/make_*`) and what their documentation shows comes back whole."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import pytest
from log_rows import SAMPLES, WIDER, lines, one, rows

from rrm.errors import ReadError
from rrm.readers import read, read_value

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"


def whole(name: str, format: str) -> None:
    """A sample holds the task of `WIDER`, and nothing of it is left behind."""
    (found,) = read(SAMPLES / name)
    wanted = list(WIDER)
    if format == "autogen":  # a model's words beside its calls are no part of its first message there
        wanted[1] = ("assistant", "", "", wanted[1][3])
    if name == "llama_index_messages.json":  # which does not hold that a call failed
        wanted[3] = (*WIDER[3][:2], "c2", [])
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
    prompts = [place.rpartition("model_input")[2] for t in (tools, code) for place in t.meta["left_behind"]["at"]]
    assert prompts == ["_messages[].content[].text"] * 2, "only the framework's own words around what the steps hold"


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


def test_a_call_that_read_the_end_of_a_conversation_goes_on_from_it() -> None:
    """39b3a1de: the first two calls were the run, the last one another conversation in the meta."""
    asked, first, second = [
        {"role": role, "content": text} for role, text in (("user", "q"), ("assistant", "one"), ("assistant", "two"))
    ]
    system, more, yet = (
        {"role": "system", "content": "s"},
        {"role": "user", "content": "more"},
        {"role": "user", "content": "yet"},
    )
    history = [([system, asked], first), ([system, asked, first, more], second), ([asked, second, yet], first)]
    calls = [
        {"id": f"g{k}", "type": "GENERATION", "startTime": f"2026-01-01T00:00:0{k}Z", "input": read, "output": wrote}
        for k, (read, wrote) in enumerate(history)
    ]
    found = one({"id": "t", "observations": calls})
    assert [m.content for m in found.messages] == ["s", "q", "one", "more", "two", "yet", "one"]
    other = {**calls[2], "input": [{"role": "user", "content": "another question"}, second, yet]}
    apart = one({"id": "t", "observations": [*calls[:2], other]})
    assert [m.content for m in apart.messages] == ["s", "q", "one", "more", "two"] and len(
        apart.meta["other_conversations"]
    ) == 1


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


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (None, True),
        ({"type": None, "message": None}, True),
        ("max steps exceeded", True),
        ("late", True),
        ("verifier: 3 tests failed", True),
        ("failed: score 0.2, grading: runtime error in the solution", True),
        ("no sandbox", False),
        ({"type": "GraderError", "message": "timed out"}, False),
        ([{"message": "could not score the run"}], False),
        ("Error code: 503", False),
    ],
)
def test_a_reward_counts_unless_its_grader_or_the_surroundings_broke(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Any, counts: bool
) -> None:
    """39b3a1de: outcome 0.0 of a run without a sandbox, a failure of the agent. Later: any error made a 0 none and left a 1 as it was,
    also the agent's own and an object that says nothing."""
    run = {"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}
    found = lines(tmp_path, [{**run, "reward": value, "error": error} for value in (0.0, 0.5, 1.0)])
    assert [t.outcome for t in found] == ([0.0, 0.5, 1.0] if counts else [None] * 3)
    assert [t.meta.get("unscored") for t in found] == ([None] if counts else ["reward"]) * 3
    assert counts == ("3 runs record that a grader or their surroundings broke" not in caplog.text)


def test_what_stays_behind_is_counted_and_messages_that_come_out_empty_are_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """39b3a1de: not a word of either."""
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    asked = {"type": "user", "uuid": "u", "sessionId": "s", "message": chat[0]}
    snapshot = {
        "type": "attachment",
        "uuid": "u",
        "sessionId": "s",
        "attachment": {"note": "the plan of the whole house"},
    }
    with caplog.at_level(logging.WARNING):
        (found,) = lines(tmp_path, [asked, snapshot])
    assert found.meta["left_behind"] == {"texts": 1, "characters": 27, "at": ["[].attachment.note"]}
    assert "format claude_code: 1 texts (27 characters) of 1 runs" in caplog.text
    snapshot["attachment"] = {"note\ud800\x1b[2J": "the plan of the whole house"}
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        lines(tmp_path, [asked, snapshot])
    assert r".note\ud800\x1b[2J" in caplog.text and caplog.text.encode("utf-8")
    assert "left_behind" not in one({"messages": chat, "notes": "kept in the meta as they are"}).meta
    silent = {"role": "assistant", "content": None, "output": "four feet wide"}
    for messages in ([chat[0], silent], [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]):
        (error,) = read_value({"messages": messages}, "x")
        assert isinstance(error, ReadError) and "come out empty" in error.reason
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
    """39b3a1de: three attempts, the sample that was done before twice and the one that broke beside its retry.
    Later: times of two zones were compared as texts, so that the attempt that broke took the place of its retry."""

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

    write("a_retry", "2026-01-01T23:30:00-05:00", "one", {"p": "first", "q": "again"})
    write("b_begun", "2026-01-02T01:00:00+00:00", "one", {"p": "first", "q": "broken", "r": "left"})
    write("c_other", "2026-01-03T00:00:00", "two", {"q": "other"})
    with caplog.at_level(logging.WARNING):
        found = list(read(tmp_path))
    assert [t.messages[-1].content for t in found] == ["first", "again", "left", "other"]
    assert "2 samples stand again in a later log" in caplog.text
