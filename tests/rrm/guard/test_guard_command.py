"""`rrm guard`: as a hook of Claude Code over a growing session file, and over finished runs."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from guarded import Reads, run
from hooking import Claude
from openai_server import answering

from rrm.cli.guard_cmd import command
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.errors import ConfigError
from rrm.guard import Guard, GuardPolicy, read_audit
from rrm.guard.claude_code import answer, completed, session_of, step_is_over
from rrm.judge.agent_rrm import AgentRRM


@pytest.fixture(scope="module")
def folder(slot_judge: Callable[..., AgentRRM], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The judge's directory."""
    return slot_judge().save_pretrained(tmp_path_factory.mktemp("judge") / "judge")


def test_a_session_is_halted_and_goes_on_once_a_person_spoke(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path, "--set", "halt_below=1", "--set", "patience=2")
    assert claude.hook("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="toolu_1") == (
        0,
        {"suppressOutput": True},
    )
    assert not claude.audit.exists()  # nothing was judged, and no judge loaded
    assert claude.call() == (0, {"suppressOutput": True})
    code, reply = claude.call()
    assert code == 0 and reply["continue"] is False and "guard: halt (score" in reply["stopReason"]
    code, reply = claude.hook("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="toolu_3")
    assert reply["hookSpecificOutput"]["permissionDecision"] == "deny" and reply["continue"] is False
    assert claude.hook("UserPromptSubmit", prompt="go on") == (0, {"suppressOutput": True})
    assert claude.call() == (0, {"suppressOutput": True})
    rows = list(read_audit(claude.audit, "s1"))
    assert [r.verdict for r in rows] == ["continue", "halt", "continue", "continue"] and rows[2].resumed
    assert [r.calls[0].name for r in rows if r.calls] == ["Bash"] * 3 and len({r.began for r in rows}) == 1


def test_asking_is_left_to_the_next_call(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path, "--set", "halt_below=null", "--set", "ask_below=1", "--set", "patience=1")
    assert "guard: ask" in claude.call()[1]["systemMessage"]
    _, reply = claude.hook("PreToolUse", tool_name="Bash", tool_input={}, tool_use_id="toolu_2")
    assert reply["hookSpecificOutput"]["permissionDecision"] == "ask" and "continue" not in reply
    assert claude.hook("Stop") == (0, {"suppressOutput": True})  # judged; it has stopped anyway
    assert len(list(read_audit(claude.audit))) == 2


def test_what_is_said_without_a_score_stands_at_the_next_call(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path, "--set", "halt_below=null", "--set", "max_checks=1", "--set", "on_exhausted=halt")
    assert claude.call()[1] == {"suppressOutput": True} and claude.call()[1]["continue"] is False
    next_call = {"tool_name": "Bash", "tool_input": {}, "tool_use_id": "toolu_3"}
    _, reply = claude.hook("PreToolUse", **next_call)
    assert reply["continue"] is False and "the budget is used up" in reply["stopReason"]
    assert reply["hookSpecificOutput"]["permissionDecision"] == "deny"
    claude.hook("UserPromptSubmit", prompt="go on")
    assert claude.hook("PreToolUse", **next_call) == (0, {"suppressOutput": True})
    # a judge that fails
    with Guard(Reads(), GuardPolicy(on_failure="ask"), audit=claude.audit).session(run="s1", resume=True) as session:
        for message in run(1):
            session.observe(message)
    _, reply = claude.hook("PreToolUse", **next_call)
    assert reply["hookSpecificOutput"]["permissionDecision"] == "ask"
    assert "no number" in reply["hookSpecificOutput"]["permissionDecisionReason"]


@pytest.mark.parametrize("action", ["continue", "ask", "halt"])
def test_a_judge_that_cannot_be_had_is_a_failed_judgement(
    tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server, or no folder: the audit says that nobody watched, the policy what to do."""
    monkeypatch.setattr("rrm.cli.guard_cmd.HOOK_PATIENCE_S", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nothing answers there
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for number, judge in enumerate((server, str(tmp_path / "none"))):
            where = tmp_path / f"{number}"
            where.mkdir()
            claude = Claude(Path(judge), where, "--set", f"on_failure={action}", "--set", "signal=p_good")
            claude.arguments[claude.arguments.index("--model") + 1] = judge
            code, reply = claude.call()
            assert code == 0
            assert ("stopReason" in reply, "guard: ask" in reply.get("systemMessage", "")) == (
                action == "halt",
                action == "ask",
            )
            (row,) = read_audit(claude.audit)
            assert (row.verdict, row.status, row.score, row.judge) == (action, "judge_error", None, judge)
            assert "no judge: " in (row.reason or "")


@pytest.mark.parametrize(
    ("judge", "wrong"),
    [
        ("http://127.0.0.1:9", ["--context", "100"]),
        ("http://127.0.0.1:9", ["--header", "X-Key"]),
        ("http://user:word@127.0.0.1:9", []),
        ("lab", ["--header", "X-Key"]),
        ("lab", ["--concurrency", "2"]),
        ("lab", ["--device", "cpu", "--dtype", "float3"]),
    ],
)
def test_a_wrong_option_is_a_mistake_of_the_command(tmp_path: Path, judge: str, wrong: list[str]) -> None:
    """Nobody would look for it in the audit."""
    claude = Claude(Path("-"), tmp_path, *wrong, "--set", "on_failure=halt")
    claude.arguments[claude.arguments.index("--model") + 1] = judge
    assert claude.call() == (1, None) and not claude.audit.exists()


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_the_key_is_a_failed_judgement(tmp_path: Path, status: int) -> None:
    with answering({"/v1/judge": (status, {})}) as (url, _):
        claude = Claude(Path("-"), tmp_path, "--set", "on_failure=halt")
        claude.arguments[claude.arguments.index("--model") + 1] = url
        code, reply = claude.call()
    (row,) = read_audit(claude.audit)
    assert code == 0 and reply["continue"] is False and row.status == "judge_error"
    assert "key" in (row.reason or "") and str(status) in (row.reason or "")


def test_a_half_written_row_does_not_turn_the_guard_off(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path, "--set", "halt_below=1", "--set", "patience=2")
    claude.call()
    with open(claude.audit, "ab") as file:
        file.write(b'{"version": 1, "run": "s1", "beg')  # a full disk, a lost power
    assert claude.call()[1]["continue"] is False
    assert [r.verdict for r in read_audit(claude.audit)] == ["continue", "halt"]


def test_what_the_file_does_not_have_yet_is_taken_from_the_hook(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path, "--set", "halt_below=0")
    assert claude.call(late=True)[0] == 0
    with open(claude.path, "a", encoding="utf-8") as file:
        file.write('{"type": "assistant", "sessionId": "s1", "mess')  # half a line, as it is being written
    assert claude.call(late=True)[0] == 0
    assert [(r.step, r.calls[0].arguments) for r in read_audit(claude.audit)] == [
        (1, '{"command": "ls 1"}'),
        (1, '{"command": "ls 2"}'),
    ]


def test_calls_made_at_once_are_judged_together(tmp_path: Path) -> None:
    calls = [{"id": id, "name": "Bash", "arguments": {}} for id in ("a", "b")]
    messages = [Message(role="user", content="x"), Message.model_validate({"role": "assistant", "tool_calls": calls})]
    hook = {"tool_name": "Bash", "tool_use_id": "a", "tool_input": {}, "tool_response": "done"}
    session = completed(Trajectory(id="s1", messages=messages), hook)
    assert not step_is_over(session) and len(session.steps) == 1
    assert step_is_over(completed(session, {**hook, "tool_use_id": "b", "tool_response": ["x"]}))
    assert answer("SessionEnd", "halt", None) == {"suppressOutput": True}


def test_sub_agents_and_other_events_are_left_alone(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path)
    for event, more in (
        ("PostToolUse", {"agent_id": "a1", "tool_name": "Bash"}),
        ("Notification", {}),
        ("SessionEnd", {}),
    ):
        assert claude.hook(event, **more) == (0, {"suppressOutput": True})
    assert not claude.audit.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"hook_event_name": "Stop", "session_id": 3}', "[" * 9999])
def test_no_hook_s_json_never_blocks(folder: Path, tmp_path: Path, text: str) -> None:
    """Exit code 2 would block the agent's call."""
    assert Claude(folder, tmp_path).invoke(text)[0] == 1


def test_troubles_of_the_guard_let_the_agent_go_on(folder: Path, tmp_path: Path) -> None:
    claude = Claude(folder, tmp_path)
    assert claude.hook("Stop", transcript_path=str(tmp_path / "gone.jsonl"))[0] == 1
    claude.path.write_text("nothing\n")
    assert claude.hook("Stop")[0] == 1
    misspelt = Claude(folder, tmp_path, "--set", "patiense=2")
    assert misspelt.call()[0] == 1
    claude.audit.write_text("no audit\n")
    assert claude.call()[0] == 1


def test_the_session_asked_for_is_read(tmp_path: Path) -> None:
    lines = [
        {"type": "user", "sessionId": s, "uuid": s, "message": {"role": "user", "content": f"task of {s}"}}
        for s in ("old", "new")
    ]
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    hook = {"transcript_path": str(path), "session_id": "old"}
    assert session_of(hook).task == "task of old" and session_of({**hook, "session_id": "x"}).task == "task of new"


def test_replay_says_what_would_have_been_saved(
    folder: Path, tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    runs = [
        Trajectory(id=name, task="find it", outcome=outcome, messages=[Message.model_validate(m) for m in run(steps)])
        for name, outcome, steps in (("a", 1.0, 2), ("b", 0.0, 4), ("c", None, 3), ("d", 0.0, 1))
    ]
    logs, audit, rules = tmp_path / "runs.jsonl", tmp_path / "audit.jsonl", tmp_path / "policy.yaml"
    write_jsonl(logs, runs)
    rules.write_text("halt_below: 1\npatience: 3\n")
    options = [logs, "--audit", audit, "--model", folder, "--policy", rules]
    code, reply = invoke(command, *options, "--set", "patience=1")
    assert code == 0 and (reply["runs"], reply["halted"], reply["checks"], reply["failed_checks"]) == (4, 3, 4, 0)
    assert reply["good"] == {"runs": 1, "halted": 1, "steps_saved": 0.5}
    assert reply["failing"] == {"runs": 2, "halted": 1, "steps_saved": 0.6}
    assert [r.run for r in read_audit(audit)] == ["a", "b", "c", "d"]
    assert "holds 4 rows already" not in caplog.text
    code, reply = invoke(command, *options)
    assert "audit.jsonl holds 4 rows already: these are put behind them" in caplog.text
    assert (reply["halted"], reply["checks"]) == (1, 9)
    for wrong in ("patiense=1", "halt_below=2"):
        with pytest.raises(ConfigError, match=r"patience|halt_below"):
            invoke(command, *options, "--set", wrong)
    with pytest.raises(ConfigError, match="there is no such file"):
        invoke(command, logs, "--audit", audit, "--policy", tmp_path / "none.yaml")
