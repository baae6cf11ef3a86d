"""SWE-agent's and mini-swe-agent's files, field by field.

The files of mini-swe-agent are the framework's own (`samples/make_mini_swe_agent.py`). SWE-agent is on no package index in a version
that writes today's format, so its records here are made by hand from its documentation
(https://swe-agent.com/latest/usage/trajectories/) and the types of its source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, sniff

SAMPLES = Path(__file__).parent / "samples"
SYSTEM = {"role": "system", "content": "A shell.", "agent": "main", "message_type": "system_prompt"}
ISSUE = {
    "role": "user",
    "content": [{"type": "text", "text": "Fix it."}],
    "agent": "main",
    "message_type": "observation",
}


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def acted(number: int, thought: str, action: str, *calls: dict[str, Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": thought, "thought": thought, "action": action, "agent": "main"}
    return said | {"message_type": "action", "tool_calls": list(calls)}


def heard(number: int, text: str) -> dict[str, Any]:
    return {
        "role": "tool",
        "content": text,
        "agent": "main",
        "message_type": "observation",
        "tool_call_ids": [f"c{number}"],
    }


def step(thought: str, action: str, observation: str, response: str | None = None, **more: Any) -> dict[str, Any]:
    said = {
        "thought": thought,
        "action": action,
        "observation": observation,
        "query": [{"role": "user", "content": "x"}],
    }
    return {
        **said,
        "response": thought if response is None else response,
        "state": {"cwd": "/r"},
        "execution_time": 0.5,
        **more,
    }


HISTORY = [SYSTEM, ISSUE, acted(1, "Look.", "ls", call(1, "bash", command="ls")), heard(1, "a.py")]
HISTORY += [acted(2, "Done.", "submit", call(2, "submit"))]
STEPS = [step("Look.", "ls", "a.py"), step("Done.", "submit", "+ fixed", execution_time=0.25)]
INFO = {"exit_status": "submitted", "submission": "+ fixed", "model_stats": {"api_calls": 2}, "score": 0.5}
RUN = {"trajectory": STEPS, "history": HISTORY, "info": INFO, "environment": "main", "replay_config": "{}"}


def one(folder: Path, record: Any, name: str = "ponds__birds-12.traj", **options: Any) -> Trajectory:
    path = folder / name
    path.write_text(json.dumps(record))
    (found,) = read(path, **options)
    assert Trajectory.from_json(found.to_json()) == found
    return found


def said(run: Trajectory, *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(m.model_dump(exclude_none=True).get(k) for k in ("role", "content", *keys)) for m in run.messages]


def test_history_with_what_only_the_trajectory_holds(tmp_path: Path) -> None:
    run = one(tmp_path, RUN)
    assert said(run, "tool_call_id", "duration_s", "name") == [
        ("system", "A shell.", None, None, None),
        ("user", "Fix it.", None, None, None),
        ("assistant", "Look.", None, None, None),
        ("tool", "a.py", "c1", 0.5, None),
        ("assistant", "Done.", None, None, None),
        ("tool", "+ fixed", "c2", 0.25, None),  # the history ends before it
    ]
    calls = [[(c.id, c.name, c.arguments) for c in m.tool_calls] for m in run.messages if m.tool_calls]
    assert calls == [[("c1", "bash", {"command": "ls"})], [("c2", "submit", {})]]
    assert run.messages[3].model_dump()["state"] == {"cwd": "/r"}
    assert run.id == run.question_id == "ponds__birds-12" and run.task == "Fix it." and run.outcome is None
    assert run.meta == {**INFO, "environment": "main", "replay_config": "{}"}
    assert run.source and run.source.format == "swe_agent"


@pytest.mark.parametrize(
    ("more", "outcome", "field"),
    [
        ({"resolved": True}, 1.0, "resolved"),
        ({"info": {**INFO, "resolved": False}}, 0.0, "info.resolved"),
        ({"info": INFO}, None, None),  # a score in `info` is a reviewer's
        ({"resolved": "later"}, None, None),
    ],
)
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
        ("system", "s", None),
        ("user", "Fix it.", None),
        ("assistant", "I list.\n```\nls\n```", None),
        ("tool", "a.py", "environment"),
        ("assistant", None, None),
        ("tool", "The limit was reached.\nExited (autosubmitted)", "environment"),
    ]
    (act,) = run.messages[4].tool_calls or []
    assert (act.name, act.arguments, act.id) == ("bash", {"command": "exit_cost"}, "step_2")
    assert run.id == "42:1" and run.question_id not in (None, "42:1")


def test_a_history_that_is_not_whole_or_another_runs_gives_way(tmp_path: Path) -> None:
    short = one(tmp_path, {**RUN, "history": HISTORY[:4]})  # the second step follows from the trajectory
    assert [c for _, c in said(short)] == ["A shell.", "Fix it.", "Look.", "a.py", "Done.", "+ fixed"]
    other = [SYSTEM, ISSUE, acted(1, "Sleep.", "sleep 1", call(1, "bash")), heard(1, "zzz")]
    swapped = one(tmp_path, {**RUN, "history": other})
    assert [c for _, c in said(swapped)] == ["A shell.", "Fix it.", "Look.", "a.py", "Done.", "+ fixed"]
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
    assert (
        first.meta["attempts_of"] == {"info": {"best_attempt_idx": 1}}
        and len(first.steps) == 1
        and len(second.steps) == 2
    )


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
            "tool",
            "<returncode>1</returncode>\n<output>\ncat: nothing.txt: No such file or directory\n</output>",
            "call_2",
            None,
        ),
        ("assistant", None, None, None),
        ("tool", "heron\n", None, "exit"),
    ]
    calls = [[(c.id, c.name, c.arguments) for c in m.tool_calls] for m in run.messages if m.tool_calls]
    submit = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat bird.txt"}
    assert calls[0] == [
        ("call_1", "bash", {"command": "echo heron > bird.txt"}),
        ("call_2", "bash", {"command": "cat nothing.txt"}),
    ]
    assert calls[1] == [("call_3", "bash", submit)]
    assert run.messages[4].model_dump()["extra"] == {"returncode": 1, "exception_info": ""}
    assert isinstance(run.messages[2].timestamp, float)
    assert run.id == run.question_id == "birds__pond-7" and run.outcome is None
    assert run.meta["exit_status"] == "Submitted" and run.meta["submission"] == "heron\n"
    assert run.meta["mini_version"] == "2.4.6" and run.meta["trajectory_format"] == "mini-swe-agent-1.1"
    assert run.meta["model_stats"] == {"instance_cost": 2.0, "api_calls": 2}


def test_commands_in_the_text_and_the_responses_api() -> None:
    (text,) = read(SAMPLES / "mini_text.traj.json")
    assert said(text, "name")[2:] == [
        ("assistant", "I think for a while.", None),
        ("tool", "No command was found.", "environment"),
        ("assistant", "```mswea_bash_command\necho heron > bird.txt\n```", None),
        ("tool", "<returncode>0</returncode>\n<output>\n</output>", "environment"),
        ("tool", "LimitsExceeded", "exit"),
    ]
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
    run = one(
        tmp_path,
        {"messages": messages, "info": {}, "trajectory_format": "mini-swe-agent-1"},
        "ponds__birds-3.traj.json",
    )
    assert [m.role for m in run.messages] == ["user", "assistant", "tool", "user"]
    assert run.messages[1].model_dump()["extra"] == {"model": "m", "usage": {"total_tokens": 3}}
    assert run.id == "ponds__birds-3"


def test_other_records_are_not_taken_for_these() -> None:
    assert sniff({"messages": [ISSUE], "trajectory_format": 3}) == "openai"
    assert sniff({"trajectory": [{"action": "a"}]}) is None and sniff({"history": [{"role": "user"}]}) is None
