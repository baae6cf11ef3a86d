"""Logs of agents' frameworks: what their own packages wrote (`samples/README.md`) and what their documentation shows comes back whole."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from log_rows import SAMPLES, WIDER, lines, one, rows, talk

from rrm.errors import ReadError
from rrm.readers import read, read_value

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases"


def whole(name: str, format: str) -> None:
    """A sample holds the task of `WIDER`, and nothing of it is left behind."""
    (run,) = read(SAMPLES / name)
    expected = list(WIDER)
    if format == "autogen":  # a model's words beside its calls are no part of its first message there
        expected[1] = ("assistant", "", "", WIDER[1][3])
    if name == "llama_index_messages.json":  # which does not hold that a call failed
        expected[3] = (*WIDER[3][:2], "c2", [])
    error = WIDER[3][1]
    assert [(r, error if error in t else t, *more) for r, t, *more in rows(run)] == expected
    assert run.source and run.source.format == format and run.task == WIDER[0][1]
    assert "left_behind" not in run.meta and run.outcome is None


@pytest.mark.parametrize("spelling", ["camel", "snake"])
def test_adks_sessions(spelling: str) -> None:
    whole(f"adk_{spelling}.json", "adk")


@pytest.mark.parametrize("kind", ["state", "task"])
def test_autogens_messages(kind: str) -> None:
    whole(f"autogen_{kind}.json", "autogen")


@pytest.mark.parametrize("kind", ["events", "updates"])
def test_langgraphs_streams(kind: str) -> None:
    whole(f"langgraph_{kind}.jsonl", "langgraph")


@pytest.mark.parametrize("name", ["llama_index_events.jsonl", "llama_index_messages.json"])
def test_llama_indexs_messages_and_events(name: str) -> None:
    whole(name, "llama_index")


def test_pydantic_ais_messages() -> None:
    whole("pydantic_ai.json", "pydantic_ai")


@pytest.mark.parametrize("name", ["vercel_ai_ui.json", "vercel_ai_model.json"])
def test_vercels_chats(name: str) -> None:
    (found,) = read(SAMPLES / name)
    failed = "An error occurred." if "ui" in name else "no item has the number A7"  # what a user's browser is told
    assert rows(found) == [
        ("user", "How many of item A-7 are left?", "", []),
        ("assistant", "The stock must be looked up.", "", [("stock", "A7", "t1")]), ("tool", failed, "t1 failed", []),
        ("assistant", "The number has a dash.", "", [("stock", "A-7", "t2"), ("notify", "the warehouse", "t3")]),
        ("tool", '{"sku": "A-7", "left": 3}', "t2", []), ("tool", "they were told", "t3", []),
        ("assistant", "Three of item A-7 are left.", "", []),
    ]  # fmt: skip
    assert "left_behind" not in found.meta


def test_smolagents_failed_call_stands_in_the_models_message_alone() -> None:
    (tools,), (code,) = read(SAMPLES / "smolagents_tools.json"), read(SAMPLES / "smolagents_code.json")
    _, asked, failed, _, result, *_ = rows(tools)
    assert [r[0] for r in rows(tools)] == ["user", *["assistant", "tool"] * 3]
    assert asked[3] == [("width", "gate", "c1")] and failed[2] == "c1 failed" and "no gate is known" in failed[1]
    assert result[1] == "the gateway is 7 feet wide" and tools.messages[0].content == "You measure things."
    assert tools.meta["usage"] == {"input_tokens": 60, "output_tokens": 15}
    assert [c.name for m in code.messages for c in m.tool_calls or []] == ["python_interpreter"] * 3
    assert code.task == "How wide is the gateway?" and "Code execution failed" in code.messages[3].text()
    assert code.meta["state"] == "success" and code.outcome is None
    prompts = [place.rpartition("model_input")[2] for t in (tools, code) for place in t.meta["left_behind"]["at"]]
    assert prompts == ["_messages[].content[].text"] * 2, "only the framework's own words around what the steps hold"


def tool_use(id: str, of: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": "width", "input": {"of": of}}}


def tool_result(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": [{"text": text}], **more}}


THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Both widths are needed.", "signature": "s"}}}
CONTENTS = [
    [{"text": WIDER[0][1]}], [THOUGHT, tool_use("c1", "door"), tool_use("c2", "gate")],
    [tool_result("c1", "the door is 4 feet wide"), tool_result("c2", WIDER[3][1], status="error")],
    [{"text": WIDER[4][1]}, tool_use("c3", "gateway")], [tool_result("c3", WIDER[5][1])],
]  # fmt: skip
CONVERSE: dict[str, Any] = {"system": [{"text": "You measure things."}], "messages": talk(*CONTENTS), "toolConfig": {
    "tools": [{"toolSpec": {"name": "width", "inputSchema": {"json": {"type": "object"}}}}]
}}  # fmt: skip
REPLY = {"output": {"message": {"role": "assistant", "content": [{"text": WIDER[6][1]}]}}, "usage": {"totalTokens": 9}}


def test_bedrocks_converse() -> None:
    made = json.loads((SAMPLES / "bedrock.json").read_text())
    for value in (CONVERSE | REPLY, {"request": CONVERSE, "response": REPLY}, made):
        found = one(value)
        assert rows(found) == WIDER and found.messages[0].content == "You measure things."
        assert found.tools and found.tools[0]["function"]["name"] == "width" and "left_behind" not in found.meta
    logged = {"operation": "Converse", "input": {"inputBodyJson": CONVERSE}, "output": {"outputBodyJson": REPLY}}
    assert rows(one(logged)) == WIDER
    assert rows(one([*CONVERSE["messages"], REPLY["output"]["message"]])) == WIDER


def test_a_langfuse_trace_whose_agent_shortens_its_history() -> None:
    file = CASES / "formats" / "langfuse_traces.jsonl"
    if not file.exists():
        pytest.skip("the cases are not there")
    (found,) = read(file)
    assert rows(found) == [
        ("user", "Please cancel booking K9.", "", []), ("assistant", "", "", [("get_booking", "K9", "c1")]),
        ("tool", '{"id":"K9","status":"confirmed"}', "c1", []), ("assistant", "", "", [("cancel_booking", "K9", "c2")]),
        ("tool", '{"ok":true}', "c2 failed", []), ("assistant", "Booking K9 is cancelled.", "", []),
    ]  # fmt: skip
    assert found.meta["errors"] == ["slow backend"] and found.meta["outcome_fields"] == ["scores[0].value"]
    assert "other_conversations" not in found.meta and "left_behind" not in found.meta


def test_langfuses_observations_a_line_each_with_an_agent_below(tmp_path: Path) -> None:
    def of(id: str, kind: str, start: int, parent: str | None = None, **more: Any) -> dict[str, Any]:
        time = f"2026-01-01T00:00:0{start}Z"
        return {"id": id, "trace_id": "t", "type": kind, "start_time": time, "parent_observation_id": parent, **more}

    asked, told, full = talk("Plan a trip.", "I ask the scout.", "It is full.")
    inner = [{"role": "user", "content": text} for text in "xyzv"]
    main, below = lines(tmp_path, [
        of("a", "AGENT", 0, name="boss"),
        of("b", "GENERATION", 1, "a", input=json.dumps([asked]), output=json.dumps(told)),
        of("c", "AGENT", 2, "a", name="scout"), of("d", "GENERATION", 3, "c", input=inner, output="The Grand."),
        of("e", "GENERATION", 4, "a", input=[asked, told, full], output="Stay at home."),
    ])  # fmt: skip
    assert [m.content for m in main.messages] == ["Plan a trip.", "I ask the scout.", "It is full.", "Stay at home."]
    assert below.id == "t/scout" and below.meta["parent"] == {"trace_id": "t"} and main.meta["subagents"] == ["scout"]


def test_a_call_that_read_the_end_of_a_conversation_goes_on_from_it() -> None:
    asked, first, more, second, yet = talk("q", "one", "more", "two", "yet")
    system = {"role": "system", "content": "s"}
    history = [([system, asked], first), ([system, asked, first, more], second), ([asked, second, yet], first)]
    calls = [
        {"id": f"g{k}", "type": "GENERATION", "startTime": f"2026-01-01T00:00:0{k}Z", "input": read, "output": wrote}
        for k, (read, wrote) in enumerate(history)
    ]
    run = one({"id": "t", "observations": calls})
    assert [m.content for m in run.messages] == ["s", "q", "one", "more", "two", "yet", "one"]
    other = {**calls[2], "input": [{"role": "user", "content": "another question"}, second, yet]}
    apart = one({"id": "t", "observations": [*calls[:2], other]})
    assert [m.content for m in apart.messages] == ["s", "q", "one", "more", "two"]
    assert len(apart.meta["other_conversations"]) == 1


def test_the_run_is_the_root_agents_and_the_reading_says_how_many_are_below(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def span(id: str, parent: str | None, start: int, kind: str = "chat", **fields: Any) -> dict[str, Any]:
        values = {"operation.name": kind, **fields}
        texts = {f"gen_ai.{k}": v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
        attributes = [{"key": k, "value": {"stringValue": v}} for k, v in texts.items()]
        ids = {"traceId": "t", "spanId": id, "parentSpanId": parent, "name": kind}
        return {**ids, "startTimeUnixNano": start, "attributes": attributes}

    def chat(*texts: str) -> dict[str, Any]:
        messages = talk(*texts)
        return {"input.messages": messages[:-1], "output.messages": messages[-1:]}

    boss = span("a", None, 0, "invoke_agent", **{"agent.name": "boss"})
    scout = span("c", "a", 2, "invoke_agent", **{"agent.name": "scout"})
    first = span("b", "a", 1, **chat("Plan it.", "Ask."))
    last = span("e", "a", 5, **chat("Plan it.", "Ask.", "Full.", "Stay."))
    inner = span("d", "c", 3, **chat("Find one.", "Where?", "Here.", "Which?", "Any.", "The Grand."))
    main, below = lines(tmp_path, [boss, first, scout, inner, last])
    assert [m.content for m in main.messages] == ["Plan it.", "Ask.", "Full.", "Stay."]
    assert main.meta["subagents"] == ["scout"]
    assert below.id == "t/scout" and len(below.messages) == 6 and below.meta["parent"] == {"trace_id": "t"}
    assert "1 runs are sub-agents'" in caplog.text and "left_behind" not in main.meta | below.meta


def test_crews() -> None:
    def task(description: str, output: str, raw: str, agent: str, **more: Any) -> dict[str, Any]:
        return {"description": description, "expected_output": output, "raw": raw, "agent": agent, **more}

    system = {"role": "system", "content": "You measure."}
    messages = [system, *talk("Measure the door.", "Thought: I know.\nFinal Answer: four feet")]
    tasks = [
        task("Measure the door.", "feet", "four feet", "measurer", messages=messages),
        task("Write it down.", "a line", "The door: four feet.", "writer"),
    ]
    run = one({"raw": "The door: four feet.", "tasks_output": tasks, "token_usage": {"total_tokens": 9}})
    assert [m.name for m in run.messages if m.role == "assistant"] == ["measurer", "writer"]
    assert run.messages[-1].content == "The door: four feet." and run.meta["tasks_without_messages"] == 1


@pytest.mark.parametrize(("error", "counts"), [
    (None, True), ({"type": None, "message": None}, True), ("max steps exceeded", True), ("late", True),
    ("verifier: 3 tests failed", True), ("failed: score 0.2, grading: runtime error in the solution", True),
    ("no sandbox", False), ({"type": "GraderError", "message": "timed out"}, False),
    ([{"message": "could not score the run"}], False), ("Error code: 503", False),
])  # fmt: skip
def test_a_reward_counts_unless_its_grader_or_the_surroundings_broke(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Any, counts: bool
) -> None:
    prompt, completion = talk("q", "a")
    row = {"prompt": [prompt], "completion": [completion], "error": error}
    runs = lines(tmp_path, [{**row, "reward": value} for value in (0.0, 0.5, 1.0)])
    assert [t.outcome for t in runs] == ([0.0, 0.5, 1.0] if counts else [None] * 3)
    assert [t.meta.get("unscored") for t in runs] == ([None] if counts else ["reward"]) * 3
    assert counts == ("3 runs record that a grader or their surroundings broke" not in caplog.text)


def test_what_stays_behind_is_counted_and_messages_that_come_out_empty_are_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = talk("q", "a")
    asked = {"type": "user", "uuid": "u", "sessionId": "s", "message": messages[0]}
    snapshot = {**asked, "type": "attachment", "attachment": {"note": "the plan of the whole house"}}
    del snapshot["message"]
    (run,) = lines(tmp_path, [asked, snapshot])
    assert run.meta["left_behind"] == {"texts": 1, "characters": 27, "at": ["[].attachment.note"]}
    assert "format claude_code: 1 texts (27 characters) of 1 runs" in caplog.text
    snapshot["attachment"] = {"note\ud800\x1b[2J": "the plan of the whole house"}
    caplog.clear()
    lines(tmp_path, [asked, snapshot])
    assert r".note\ud800\x1b[2J" in caplog.text and caplog.text.encode("utf-8")
    assert "left_behind" not in one({"messages": messages, "notes": "kept in the meta as they are"}).meta
    silent = {"role": "assistant", "content": None, "output": "four feet wide"}
    for empty in ([messages[0], silent], talk("", "")):
        (error,) = read_value({"messages": empty}, "x")
        assert isinstance(error, ReadError) and "come out empty" in error.reason
    (error,) = read_value({**asked, "message": {"role": "user", "content": "", "words": "how wide is it"}}, "x")
    assert isinstance(error, ReadError) and "come out empty" in error.reason


@pytest.mark.parametrize("suffix", [".json", ".eval"])
def test_a_sample_and_its_retry_are_one_attempt_the_last(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    def write(name: str, created: str, task: str, answers: dict[str, str]) -> None:
        evaluation = {"task": "t", "task_id": task, "created": created}
        header = {"version": 2, "status": "success", "eval": evaluation, "plan": {}}
        sample = {"epoch": 1, "target": ""}
        samples = [sample | {"id": id, "input": id, "messages": talk(id, answer)} for id, answer in answers.items()]
        if suffix == ".json":
            (tmp_path / f"{name}.json").write_text(json.dumps(header | {"samples": samples}))
            return
        with zipfile.ZipFile(tmp_path / f"{name}.eval", "w") as log:
            log.writestr("header.json", json.dumps(header))
            for sample in samples:
                log.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))

    write("a_retry", "2026-01-01T23:30:00-05:00", "one", {"p": "first", "q": "again"})
    write("b_begun", "2026-01-02T01:00:00+00:00", "one", {"p": "first", "q": "broken", "r": "left"})
    write("c_other", "2026-01-03T00:00:00", "two", {"q": "other"})
    assert [t.messages[-1].content for t in read(tmp_path)] == ["first", "again", "left", "other"]
    assert "2 samples stand again in a later log" in caplog.text


LISTED = {"type": "tool-ls", "toolCallId": "c", "state": "output-available"}
FILES = [{"type": "file", "path": "secret.py", "size": 12}, {"type": "dir", "path": "src"}]
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize("run", [
    [{"role": "user", "parts": [{"type": "text", "text": "list"}]}, {"role": "assistant", "parts": [{
        **LISTED, "input": {}, "output": FILES
    }]}],
    [
        {"role": "user", "parts": [{"text": "list"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"result": FILES}}}]},
    ],
    {"messages": [{"role": "user", "content": "list"}, {"role": "tool", "name": "ls", "content": FILES}]},
])  # fmt: skip
def test_a_tools_list_of_typed_objects_is_its_result(run: Any) -> None:
    (result,) = [m for m in one(run).messages if m.role == "tool"]
    assert json.loads(result.text()) == FILES


def test_what_a_validator_said_of_a_call_is_its_result() -> None:
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
    def rollout(id: str, parent: str | None, *texts: str) -> list[dict[str, Any]]:
        heads = [{"id": id, "forked_from_id": parent}, {"id": parent}] if parent else [{"id": id}]
        messages = talk(*([{"type": "input_text", "text": text}] for text in texts))
        kinds = [("session_meta", head) for head in heads]
        kinds += [("response_item", {"type": "message", **message}) for message in messages]
        return [{"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload} for kind, payload in kinds]

    runs = lines(tmp_path, [*rollout("a", None, "q", "one"), *rollout("b", "a", "q", "one", "more", "two")])
    read_back = {t.id: [m.text() for m in t.messages] for t in runs}
    assert read_back == {"a": ["q", "one"], "b": ["q", "one", "more", "two"]}


def entry(task: str, output: str | None = None) -> dict[str, Any]:
    """A line of a crew's log."""
    status = {"status": "completed", "output": output} if output else {"status": "started"}
    return {"timestamp": "t", "task_name": task, "task": f"{task} it", "agent": "R", **status}


@pytest.mark.parametrize("whole", [False, True])
def test_a_crews_second_kick_off_is_a_run_of_its_own(tmp_path: Path, whole: bool) -> None:
    answers = (("a door", "A door."), ("a gate", "A gate."))
    log = [e for a, b in answers for e in (entry("find"), entry("find", a), entry("tell"), entry("tell", b))]
    (tmp_path / "log.json").write_text(json.dumps(log))
    runs = list(read(tmp_path / "log.json")) if whole else lines(tmp_path, log)
    assert [[m.text() for m in t.messages] for t in runs] == [["find it", a, "tell it", b] for a, b in answers]


@pytest.mark.parametrize(("name", "shows"), [("user_proxy", False), ("Customer", True)])
def test_what_autogens_user_proxy_says_is_the_users(name: str, shows: bool) -> None:
    def message(source: str, text: str, kind: str = "TextMessage") -> dict[str, Any]:
        return {"type": kind, "source": source, "content": text, "models_usage": None}

    request = [message(name, "", "UserInputRequestedEvent")] if shows else []
    texts = ("Book a flight.", "When?", "Today.", "Booked.")
    messages = [message(source, text) for source, text in zip(("user", "helper", name, "helper"), texts, strict=True)]
    run = one({"messages": [*messages[:2], *request, *messages[2:]], "stop_reason": "done"})
    assert [(m.role, m.text()) for m in run.messages] == [(m["role"], m["content"]) for m in talk(*texts)]
    assert [m["type"] for m in run.meta.get("other_messages", [])] == [m["type"] for m in request]


@pytest.mark.parametrize(("output", "observed", "is_there"), [
    ("Now I know the count.", "1423 things, of 42.5 kg", False), ("There are 42.", None, True),
    ("I count.", "Last output: 42", True),
])  # fmt: skip
def test_a_short_answer_of_smolagents_is_not_taken_for_said(output: str, observed: str | None, is_there: bool) -> None:
    step = {"step_number": 1, "timing": {"end_time": 1700000042.5}, "model_output": output, "observations": observed}
    step["token_usage"] = {"input_tokens": 142, "output_tokens": 42}
    found = one({"output": 42, "state": "success", "steps": [{"task": "How many?"}, step]})
    assert (found.messages[-1].text() != "42") == is_there


def test_an_answer_of_smolagents_in_its_call_is_said_once() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "final_answer", "arguments": {"answer": "a\n“b”"}}}]
    step = {"step_number": 1, "timing": {}, "model_output": None, "observations": None, "tool_calls": calls}
    found = one({"output": "a\n“b”", "steps": [{"task": "How many?"}, step]})
    assert [m.role for m in found.messages] == ["user", "assistant"]


def test_what_a_tool_of_codex_quotes_is_not_how_it_ended(tmp_path: Path) -> None:
    for text, failed in (("job build: Exit code: 1", False), ("Exit code: 1\nWall time: 1 s\nOutput:\n", True)):
        output = {"type": "function_call_output", "call_id": "c", "output": text}
        head = {"type": "session_meta", "payload": {"id": "a"}}
        (found,) = lines(tmp_path, [head, {"type": "response_item", "payload": output}])
        assert found.messages[0].model_dump().get("is_error", False) == failed
