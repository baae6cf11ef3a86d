"""SWE-agent's and mini-swe-agent's files, field by field.

The files of mini-swe-agent are the framework's own (`samples/README.md`). SWE-agent is on no package index in a version
that writes today's format, so its records here are made by hand from its documentation
(https://swe-agent.com/latest/usage/trajectories/) and the types of its source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_rows import SAMPLES, in_file

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, sniff

SYSTEM = {"role": "system", "content": "A shell.", "agent": "main", "message_type": "system_prompt"}
ISSUE = {
    "role": "user", "content": [{"type": "text", "text": "Fix it."}], "agent": "main", "message_type": "observation",
}  # fmt: skip


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def acted(number: int, thought: str, action: str, *calls: dict[str, Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": thought, "thought": thought, "action": action, "agent": "main"}
    return said | {"message_type": "action", "tool_calls": list(calls)}


def heard(number: int, text: str) -> dict[str, Any]:
    ids = {"message_type": "observation", "tool_call_ids": [f"c{number}"]}
    return {"role": "tool", "content": text, "agent": "main", **ids}


def step(thought: str, action: str, observation: str, response: str | None = None, **more: Any) -> dict[str, Any]:
    texts = {"thought": thought, "action": action, "observation": observation}
    texts["response"] = thought if response is None else response
    query = [{"role": "user", "content": "x"}]
    return {**texts, "query": query, "state": {"cwd": "/r"}, "execution_time": 0.5, **more}


HISTORY = [SYSTEM, ISSUE, acted(1, "Look.", "ls", call(1, "bash", command="ls")), heard(1, "a.py")]
HISTORY += [acted(2, "Done.", "submit", call(2, "submit"))]
STEPS = [step("Look.", "ls", "a.py"), step("Done.", "submit", "+ fixed", execution_time=0.25)]
INFO = {"exit_status": "submitted", "submission": "+ fixed", "model_stats": {"api_calls": 2}, "score": 0.5}
RUN = {"trajectory": STEPS, "history": HISTORY, "info": INFO, "environment": "main", "replay_config": "{}"}


def one(folder: Path, record: Any, name: str = "ponds__birds-12.traj", **options: Any) -> Trajectory:
    return in_file(folder / name, record, **options)


def said(run: Trajectory, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(m.model_dump(exclude_none=True).get(k) for k in ("role", "content", *keys)) for m in run.messages]


def test_history_with_what_only_the_trajectory_holds(tmp_path: Path) -> None:
    run = one(tmp_path, RUN)
    assert said(run, "tool_call_id", "duration_s", "name") == [
        ("system", "A shell.", None, None, None), ("user", "Fix it.", None, None, None),
        ("assistant", "Look.", None, None, None), ("tool", "a.py", "c1", 0.5, None),
        ("assistant", "Done.", None, None, None), ("tool", "+ fixed", "c2", 0.25, None),  # the history ends before it
    ]  # fmt: skip
    calls = [[(c.id, c.name, c.arguments) for c in m.tool_calls] for m in run.messages if m.tool_calls]
    assert calls == [[("c1", "bash", {"command": "ls"})], [("c2", "submit", {})]]
    assert run.messages[3].model_dump()["state"] == {"cwd": "/r"}
    assert run.id == run.question_id == "ponds__birds-12" and run.task == "Fix it." and run.outcome is None
    assert run.meta == {**INFO, "environment": "main", "replay_config": "{}"}
    assert run.source and run.source.format == "swe_agent"


@pytest.mark.parametrize(("more", "outcome", "field"), [
    ({"resolved": True}, 1.0, "resolved"), ({"info": {**INFO, "resolved": False}}, 0.0, "info.resolved"),
    ({"info": INFO}, None, None),  # a score in `info` is a reviewer's
    ({"resolved": "later"}, None, None),
])  # fmt: skip
def test_resolved_is_the_outcome_where_it_is_said(tmp_path: Path, more: Any, outcome: Any, field: Any) -> None:
    run = one(tmp_path, {**RUN, **more})
    assert run.source and (run.outcome, run.source.outcome_field) == (outcome, field)


def test_steps_alone_in_the_older_form(tmp_path: Path) -> None:
    steps = [
        step("I list.", "ls\n", "a.py", "I list.\n```\nls\n```"),
        step("", "exit_cost", "", ""),
        step("The limit was reached.", "", "Exited (autosubmitted)", ""),
    ]
    steps[0]["messages"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Fix it."}]
    del steps[0]["query"]
    run = one(tmp_path, {"trajectory": steps, "info": {}}, "42.json")
    assert said(run, "name") == [
        ("system", "s", None), ("user", "Fix it.", None), ("assistant", "I list.\n```\nls\n```", None),
        ("tool", "a.py", "environment"), ("assistant", None, None),
        ("tool", "The limit was reached.\nExited (autosubmitted)", "environment"),
    ]  # fmt: skip
    (act,) = run.messages[4].tool_calls or []
    assert (act.name, act.arguments, act.id) == ("bash", {"command": "exit_cost"}, "step_2")
    assert run.id == "42:1" and run.question_id not in (None, "42:1")


def test_a_history_that_is_not_whole_or_another_runs_gives_way(tmp_path: Path) -> None:
    other = [SYSTEM, ISSUE, acted(1, "Sleep.", "sleep 1", call(1, "bash")), heard(1, "zzz")]
    for history in (HISTORY[:4], other):  # the second step follows from the trajectory
        run = one(tmp_path, {**RUN, "history": history})
        assert [c for _, c in said(run)] == ["A shell.", "Fix it.", "Look.", "a.py", "Done.", "+ fixed"]
    again = [*HISTORY[:2], acted(0, "ls", "ls ls", call(0, "bash")), heard(0, "no such command"), *HISTORY[2:]]
    longer = one(tmp_path, {**RUN, "history": again})  # a reply that was refused stands in the history alone
    assert [c for _, c in said(longer)][2:5] == ["ls", "no such command", "Look."]


def test_demonstrations_are_the_users_and_no_steps(tmp_path: Path) -> None:
    demo = [
        {"role": "user", "content": "See how.", "is_demo": True, "agent": "main"},
        {**acted(9, "I list.", "ls", call(9, "bash", command="ls")), "is_demo": True},
        {**heard(9, "b.py"), "is_demo": True},
    ]
    run = one(tmp_path, {**RUN, "history": [SYSTEM, *demo, *HISTORY[1:]]})
    assert run.messages[1].text() == 'See how.\n[assistant] I list.\nbash {"command": "ls"}\n[tool] b.py'
    assert run.task == "Fix it." and len(run.steps) == 2


def test_thinking_and_the_observations_of_text_agents(tmp_path: Path) -> None:
    thought = [{"type": "thinking", "thinking": "Hm."}, {"type": "redacted_thinking", "data": "x"}]
    entries = [
        SYSTEM,
        {**ISSUE, "content": "Fix it."},
        {"role": "assistant", "content": "```\nls\n```", "agent": "main", "action": "ls", "thinking_blocks": thought},
        {"role": "user", "content": "a.py", "agent": "main"},
    ]
    run = one(tmp_path, {"history": entries, "trajectory": [], "info": {}})
    assert said(run, "reasoning_content", "name")[2:] == [
        ("assistant", "```\nls\n```", "Hm.\n[redacted thinking]", None),
        ("tool", "a.py", None, "environment"),
    ]


def test_every_attempt_of_a_retrying_agent_is_a_run(tmp_path: Path) -> None:
    path = tmp_path / "ponds__birds-12.traj"
    best = {k: RUN[k] for k in ("trajectory", "history")}
    other = {**RUN, "trajectory": STEPS[:1], "history": HISTORY[:4], "info": {"exit_status": "exit_cost"}}
    path.write_text(json.dumps({"attempts": [other, RUN], **best, "info": {"best_attempt_idx": 1}}))
    first, second = read(path)
    assert (first.id, second.id) == ("ponds__birds-12:attempt1", "ponds__birds-12:attempt2")
    assert first.question_id == second.question_id == "ponds__birds-12"
    assert first.meta["exit_status"] == "exit_cost" and second.meta["submission"] == "+ fixed"
    assert first.meta["attempts_of"] == {"info": {"best_attempt_idx": 1}}
    assert (len(first.steps), len(second.steps)) == (1, 2)


def test_a_run_that_never_began_says_why(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"no messages \(exit status 'exit_environment_error'\) \(format swe_agent\)"):
        one(tmp_path, {"trajectory": [], "history": [], "info": {"exit_status": "exit_environment_error"}})
    with pytest.raises(ReadError, match=r"trajectory\[1\] must be an object"):
        one(tmp_path, {**RUN, "trajectory": [STEPS[0], "x"]})
    with pytest.raises(ReadError, match=r"no messages \(exit status 'None'\) \(format swe_agent\)"):
        one(tmp_path, {"attempts": [{"trajectory": [], "history": [], "info": {}}]})


def test_tools_of_mini_swe_agent() -> None:
    (run,) = read(SAMPLES / "mini_tools.traj.json")
    assert said(run, "tool_call_id", "name") == [
        ("system", "You use a shell.", None, None),
        ("user", "Write the word heron into bird.txt and submit.", None, None),
        ("assistant", "Two things at once.", None, None),
        ("tool", "<returncode>0</returncode>\n<output>\n</output>", "call_1", None),
        (
            "tool", "<returncode>1</returncode>\n<output>\ncat: nothing.txt: No such file or directory\n</output>",
            "call_2", None,
        ),
        ("assistant", None, None, None), ("tool", "heron\n", None, "exit"),
    ]  # fmt: skip
    calls = [[(c.id, c.name, c.arguments) for c in m.tool_calls] for m in run.messages if m.tool_calls]
    submit = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat bird.txt"}
    first = [("call_1", "bash", {"command": "echo heron > bird.txt"})]
    assert calls == [[*first, ("call_2", "bash", {"command": "cat nothing.txt"})], [("call_3", "bash", submit)]]
    assert run.messages[4].model_dump()["extra"] == {"returncode": 1, "exception_info": ""}
    assert isinstance(run.messages[2].timestamp, float)
    assert run.id == run.question_id == "birds__pond-7" and run.outcome is None
    assert run.meta["exit_status"] == "Submitted" and run.meta["submission"] == "heron\n"
    assert run.meta["mini_version"] == "2.4.6" and run.meta["trajectory_format"] == "mini-swe-agent-1.1"
    assert run.meta["model_stats"] == {"instance_cost": 2.0, "api_calls": 2}


def test_commands_in_the_text_and_the_responses_api() -> None:
    (text,) = read(SAMPLES / "mini_text.traj.json")
    assert said(text, "name")[2:] == [
        ("assistant", "I think for a while.", None), ("tool", "No command was found.", "environment"),
        ("assistant", "```mswea_bash_command\necho heron > bird.txt\n```", None),
        ("tool", "<returncode>0</returncode>\n<output>\n</output>", "environment"), ("tool", "LimitsExceeded", "exit"),
    ]  # fmt: skip
    (items,) = read(SAMPLES / "mini_responses.traj.json")
    assert said(items, "tool_call_id", "name") == [
        ("system", "You use a shell.", None, None),
        ("user", "Write the word heron into bird.txt and submit.", None, None),
        ("assistant", "First the file.", None, None),
        ("tool", "<returncode>0</returncode>\n<output>\n</output>", "call_1", None),
        ("assistant", None, None, None),
        ("tool", "heron\n", None, "exit"),
    ]
    assert [[c.id for c in m.tool_calls] for m in items.messages if m.tool_calls] == [["call_1"], ["call_2"]]


def test_the_first_version_and_an_answer_that_holds_the_models_reply(tmp_path: Path) -> None:
    reply = {"id": "r", "model": "m", "usage": {"total_tokens": 3}, "choices": [{"message": {"content": "ls"}}]}
    messages = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "ls", "extra": {"response": reply}},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.py</output>"},
        {"role": "user", "content": "Not that one."},
    ]
    record = {"messages": messages, "info": {}, "trajectory_format": "mini-swe-agent-1"}
    run = one(tmp_path, record, "ponds__birds-3.traj.json")
    assert [m.role for m in run.messages] == ["user", "assistant", "tool", "user"]
    assert run.messages[1].model_dump()["extra"] == {"model": "m", "usage": {"total_tokens": 3}}
    assert run.id == "ponds__birds-3"


def test_other_records_are_not_taken_for_these() -> None:
    assert sniff({"messages": [ISSUE], "trajectory_format": 3}) == "openai"
    assert sniff({"trajectory": [{"action": "a"}]}) is None and sniff({"history": [{"role": "user"}]}) is None


PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def events_of(run: Trajectory) -> list[dict[str, Any]]:
    left_out = {"timestamp", "extras"}
    return [{k: v for k, v in m.model_dump(exclude_none=True).items() if k not in left_out} for m in run.messages]


def native_call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "id": id}


def came_back(id: str, name: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": id, "name": name, **more}


def test_events_up_to_0_62() -> None:
    (run,) = read(SAMPLES / "openhands.json")
    rm = {"command": "rm", "is_input": False, "blocking": False, "is_static": False, "hidden": False}
    assert events_of(run) == [
        {"role": "system", "content": "You are handy."},
        {"role": "user", "content": [{"type": "text", "text": "Count the lines of a.txt."}, PIXEL]},
        {"role": "assistant", "content": "I list the files.", "tool_calls": [native_call(
            "c1", "execute_bash", command="ls"
        )]},
        came_back("c1", "execute_bash", "a.txt"),
        {"role": "assistant", "tool_calls": [
            native_call("c2", "execute_bash", command="wc a.txt"),
            native_call("c3", "execute_ipython_cell", code="1+1"),
        ]},
        came_back("c2", "execute_bash", "3 a.txt"), came_back("c3", "execute_ipython_cell", "2"),
        {"role": "assistant", "content": "I tidy up.", "tool_calls": [native_call("event_9", "run", **rm)]},
        came_back("event_9", "run", "rm: missing operand", is_error=True),
        {"role": "assistant", "content": "There are 3 lines."},
        {"role": "assistant", "tool_calls": [native_call("c4", "finish", message="Done.")]},
    ]  # fmt: skip
    assert [m.timestamp for m in run.messages[:2]] == ["2026-01-02T03:04:00", "2026-01-02T03:04:01"]
    assert [e["id"] for e in run.meta["other_events"]] == [2, 11, 12]
    assert run.task == "Count the lines of a.txt." and run.outcome is None
    assert run.tools and run.tools[0]["function"]["name"] == "execute_bash"


def test_the_sdks_events() -> None:
    (run,) = read(SAMPLES / "openhands_sdk.json")
    parts = [{"type": "text", "text": "How many herons?"}, PIXEL, {"type": "text", "text": "Herons are grey."}]
    assert events_of(run) == [
        {"role": "system", "content": "You watch birds."}, {"role": "user", "content": parts},
        {"role": "assistant", "content": "I think first.", "reasoning_content": "Two ways.", "tool_calls": [
            native_call("c1", "think", thought="Four, I believe."), native_call("c2", "think", thought="Or five."),
        ]},
        came_back("c1", "think", "Your thought has been logged."), came_back("c2", "think", "Action rejected: No."),
        {"role": "assistant", "content": "I fly.", "tool_calls": [native_call("c3", "fly")]},
        came_back("c3", "fly", "No tool 'fly'.", is_error=True),
        {"role": "user", "content": "It thought.", "name": "condenser"},
        {"role": "assistant", "tool_calls": [native_call("c4", "finish", message="Four.")]},
    ]  # fmt: skip
    assert [e["kind"] for e in run.meta["other_events"]] == ["PauseEvent", "Condensation"]
    assert run.tools and run.tools[0]["function"]["name"] == "think"


@pytest.mark.parametrize("name", ["openhands", "openhands_sdk"])
def test_a_file_or_a_line_an_event_is_the_same_run(name: str, tmp_path: Path) -> None:
    events = json.loads((SAMPLES / f"{name}.json").read_text())
    (whole,) = read(SAMPLES / f"{name}.json")
    folder = tmp_path / "conversation-7" / "events"
    folder.mkdir(parents=True)
    for k, event in enumerate(events):
        place = f"{k}.json" if name == "openhands" else f"event-{k:05d}-{event['id']}.json"
        (folder / place).write_text(json.dumps(event))
    (run,) = read(folder)
    assert events_of(run) == events_of(whole) and run.id == "conversation-7" and run.meta["lines"] == len(events)
    assert run.source and run.source.format == "openhands_events"
    lines = tmp_path / "log.jsonl"
    lines.write_text("".join(json.dumps(event) + "\n" for event in events))
    (run,) = read(lines)
    assert events_of(run) == events_of(whole)


def test_records_that_hold_a_history(tmp_path: Path) -> None:
    events = json.loads((SAMPLES / "openhands.json").read_text())
    path = tmp_path / "output.jsonl"
    record = {"instance_id": "django__django-1", "history": events, "test_result": {"report": {"resolved": True}}}
    path.write_text(json.dumps(record) + "\n" + json.dumps({**record, "history": [[events[1], events[13]]]}) + "\n")
    run, pairs = read(path)
    assert run.source and (run.outcome, run.source.outcome_field) == (1.0, "test_result.report.resolved")
    assert run.id == run.question_id == "django__django-1" == pairs.question_id
    assert [m.role for m in pairs.messages] == ["user", "assistant"]


def test_what_is_wrong_is_said_and_what_is_unknown_is_kept(tmp_path: Path) -> None:
    first = {"id": 0, "source": "user", "action": "message", "args": {"content": "q"}}
    odd = {"id": 1, "source": "agent", "kind": "NewEvent"}
    run = one(tmp_path, [first, first, first, odd])
    assert run.meta["other_events"] == [odd] and len(run.messages) == 3
    with pytest.raises(ReadError, match="event 3 must be an object"):
        one(tmp_path, [first, first, first, 7])
    with pytest.raises(ReadError, match="no event of OpenHands"):
        one(tmp_path, {"a": 1}, format="openhands_events")


def test_an_observation_without_a_cause_answers_no_call(tmp_path: Path) -> None:
    asked: list[Any] = [{"source": "agent", "action": "run", "args": {"command": c}} for c in ("ls", "pwd")]
    seen = {"source": "agent", "observation": "run", "content": "a.txt"}
    run = one(tmp_path, [*asked, seen, {"source": "environment", "observation": "error", "content": "boom"}])
    assert [(m.name, m.tool_call_id) for m in run.messages[2:]] == [("run", None), ("environment", None)]


def test_pages_that_repeat_the_events_are_no_runs(tmp_path: Path) -> None:
    events = json.loads((SAMPLES / "openhands.json").read_text())
    events = events if isinstance(events, list) else events["history"]
    for folder in ("events", "event_cache"):
        (tmp_path / "s-1" / folder).mkdir(parents=True)
    for k, event in enumerate(events):
        (tmp_path / "s-1" / "events" / f"{k}.json").write_text(json.dumps(event))
    (tmp_path / "s-1" / "event_cache" / "0-3.json").write_text(json.dumps(events[:3]))
    assert [t.id for t in read(tmp_path)] == ["s-1"]
    assert len(list(read(tmp_path / "s-1" / "event_cache"))) == 1  # named, it is read


@pytest.mark.parametrize("record", [
    {"id": 1, "observation": "seen", "content": "c"},
    {"id": "x", "action": "buy", "args": {}, "source": "shop", "messages": [{"role": "user", "content": "q"}]},
])  # fmt: skip
def test_records_that_only_look_like_events(record: Any) -> None:
    assert sniff(record) == ("openai" if "messages" in record else None)
