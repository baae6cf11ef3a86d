"""The guard in a plain loop: hysteresis, patience, budget, failures, and what the audit keeps."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from guarded import Reads, SaysSo, run, step
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rrm.data.jsonl import append_line
from rrm.errors import ConfigError, EngineError, ReadError, RRMError
from rrm.guard import Guard, GuardPolicy, GuardSession, read_audit
from rrm.guard.audit import BEGINS, MOST
from rrm.guard.policy import GuardSignals


def told(session: GuardSession, messages: list[dict[str, Any]]) -> list[str]:
    """The guard's actions after each message."""
    return [session.observe(message).action for message in messages]


def after_steps(policy: GuardPolicy, *scores: float | str | Exception) -> list[str]:
    session = Guard(SaysSo(*scores), policy).session()
    return told(session, run(len(scores)))[2::2]


def test_a_step_is_judged_once_its_calls_are_answered() -> None:
    judge = SaysSo(0.9, 0.9, 0.9)
    session = Guard(judge).session()
    two = step(1)
    two[0]["tool_calls"].append({"id": "other", "function": {"name": "read", "arguments": "{"}})
    session.observe({"role": "user", "content": "find it"})
    assert session.trajectory.task == "find it"
    assert [session.observe(m).checked for m in two] == [False, False]
    assert session.observe({"role": "tool", "tool_call_id": "other", "content": "no JSON"}).checked
    assert session.observe({"role": "assistant", "content": "it is there"}).checked
    assert session.observe({"role": "user", "content": "sure?"}).checked and judge.asked == [1, 2, 2]
    assert session.observe(step(3)[0], check=True).checked and not session.observe(step(3)[1], check=False).checked


def test_halts_after_patience_and_recovers_only_above_the_higher_bound() -> None:
    policy = GuardPolicy(halt_below=0.3, recovers_at=0.6, patience=2)
    assert after_steps(policy, 0.2, 0.2, 0.5, 0.7, 0.2) == ["continue", "halt", "halt", "continue", "continue"]
    # in between nothing changes: a step at the edge neither counts nor forgives
    assert after_steps(policy, 0.2, 0.4, 0.2) == ["continue", "continue", "halt"]
    assert after_steps(policy, 0.2, 0.6, 0.2) == ["continue"] * 3


def test_asks_before_it_halts() -> None:
    policy = GuardPolicy(halt_below=0.2, ask_below=0.5, patience=1)
    assert after_steps(policy, 0.4, 0.1, 0.55, 0.6, 0.4) == ["ask", "halt", "halt", "continue", "ask"]


def test_a_person_may_let_it_go_on() -> None:
    session = Guard(SaysSo(0.1, 0.1, 0.1), GuardPolicy(halt_below=None, ask_below=0.3)).session()
    assert told(session, run(2))[-1] == "ask"
    session.resume()
    assert session.standing().goes_on and told(session, step(3))[-1] == "continue"


def test_a_judgement_of_the_same_step_takes_the_earlier_ones_place() -> None:
    session = Guard(SaysSo(0.1), GuardPolicy(patience=2)).session(messages=run(0))
    assert session.observe(step(1)[0], check=True).action == "continue"
    assert session.observe(step(1)[1]).action == "continue"  # one step below, however often it was looked at


@pytest.mark.parametrize("bad", ["server is down", EngineError("gone"), ZeroDivisionError("a bug")])
def test_a_failed_judgement_is_no_number(bad: Any, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    for action in ("continue", "ask", "halt"):
        guard = Guard(SaysSo(0.9, bad, 0.9), GuardPolicy(on_failure=action), audit=audit)
        session = guard.session(run=action)
        assert told(session, run(3))[2::2] == ["continue", action, "continue"]
        row = list(read_audit(audit, action))[1]
        assert (row.status, row.score, row.p_good, row.verdict) == ("judge_error", None, None, action)
        assert row.reason and str(bad) in row.reason


def test_what_stands_is_not_taken_back_by_a_failure() -> None:
    assert after_steps(GuardPolicy(patience=1), 0.0, "down", 0.9) == ["halt", "halt", "continue"]


def test_what_is_said_of_a_failure_stands_until_a_score_or_a_person_takes_it_back(tmp_path: Path) -> None:
    for action in ("ask", "halt"):
        guard = Guard(Reads(), GuardPolicy(on_failure=action), audit=tmp_path / "audit.jsonl")
        session = guard.session(run=action)
        told(session, [*run(0), *step(1, "nothing")])
        standing = session.standing()
        assert (standing.action, standing.reason, standing.checked) == (action, "no number", False)
        assert session.observe({"role": "user", "content": "well?"}, check=False).action == action
        again = guard.session(run=action, resume=True, messages=[*run(0), *step(1, "nothing")])
        assert (again.standing().action, again.standing().reason) == (action, "no number")
        again.resume()
        assert again.standing().goes_on and guard.session(run=action, resume=True).standing().goes_on
        assert told(session, step(2, "it is 0.9"))[-1] == "continue" and session.standing().reason is None


def test_what_is_said_of_a_used_up_budget_stands(tmp_path: Path) -> None:
    guard = Guard(Reads(), GuardPolicy(on_exhausted="halt", max_checks=1), audit=tmp_path / "audit.jsonl")
    session = guard.session(run="r")
    assert told(session, [*run(0), *step(1, "it is 0.9"), *step(2, "it is 0.9")])[2::2] == ["continue", "halt"]
    for resumed in (session, guard.session(run="r", resume=True)):
        assert (
            resumed.standing().action == "halt" and resumed.standing().reason == "the budget is used up: 1 checks of 1"
        )
    # a step that is left out takes nothing back either
    rare = Guard(Reads(), GuardPolicy(on_failure="ask", every=2)).session()
    assert told(rare, [*run(0), *step(1), *step(2, "0.9"), *step(3, "it is 0.9")])[2::2] == ["ask", "ask", "continue"]


def test_a_reason_is_that_of_the_verdict(tmp_path: Path) -> None:
    low = "score 0.01; 2 steps below 0.1 since the run last stood at 0.2 or more"
    used_up = "the budget is used up: 2 checks of 2"
    guard = Guard(Reads(), GuardPolicy(max_checks=2), audit=tmp_path / "audit.jsonl")
    session = guard.session(run="r")
    told(session, [*run(0), *(m for k in range(1, 4) for m in step(k, "it is 0.01"))])
    assert [v.reason for v in session.verdicts] == [None, low, f"{low}; now: {used_up}"]
    for k in (4, 5):  # in processes of their own: nothing is said twice
        session = guard.session(run="r", resume=True, messages=run(k - 1))
        assert told(session, step(k))[-1] == "halt" and session.standing().reason == low
    assert [r.reason for r in read_audit(tmp_path / "audit.jsonl")][2:] == [f"{low}; now: {used_up}"] * 3


def test_budget(tmp_path: Path) -> None:
    for limit in ({"max_checks": 2}, {"max_tokens": 1}, {"max_seconds": 1e-12}):
        judge = SaysSo(0.9, 0.9, 0.9, 0.9)
        session = Guard(judge, GuardPolicy(on_exhausted="ask", **limit)).session()
        actions = told(session, run(4))[2::2]
        checks = limit.get("max_checks", 1)
        assert actions == ["continue"] * checks + ["ask"] * (4 - checks) and judge.asked == list(range(1, checks + 1))
        assert session.verdicts[-1].status == "exhausted" and "budget" in (session.verdicts[-1].reason or "")


def test_steps_may_be_left_out() -> None:
    judge = SaysSo(*[0.0] * 6)
    session = Guard(judge, GuardPolicy(first_step=2, every=2, patience=2)).session()
    assert told(session, run(6))[2::2] == ["continue", "continue", "continue", "halt", "halt", "halt"]
    assert judge.asked == [2, 4, 6] and [v.status for v in session.verdicts][:2] == ["not_judged", "scored"]


def test_policies_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"halt_below": 0.5, "ask_below": 0.4},
        {"halt_below": 0.5, "recovers_at": 0.4},
        {"halt_below": float("nan")},
        {"patience": 0},
        {"halts_below": 0.1},
    ):
        with pytest.raises(ValidationError):
            GuardPolicy(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="signal p_good is read in mode steps"):
        Guard(SaysSo(), GuardPolicy(signal="p_good"))
    with pytest.raises(ConfigError, match="give both"):
        Guard(SaysSo()).session(run="x", resume=True)


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(1, 4), st.floats(0, 0.5))
def test_a_run_halts_exactly_where_enough_steps_fell_since_it_recovered(s: list[float], n: int, bound: float) -> None:
    policy, watch, low = GuardPolicy(halt_below=bound, patience=n), GuardSignals(), 0
    for signal in s:
        watch = watch.after(signal, policy)
        low = 0 if signal >= policy.recovers and signal >= bound else low + (signal < bound)
        assert (watch.action(policy) == "halt") == (low >= n)


def test_audit_rows(tmp_path: Path) -> None:
    audit = tmp_path / "folder" / "audit.jsonl"
    guard = Guard(SaysSo(0.5, 0.05, 0.05), audit=audit)
    session = guard.session(run="one\u2028run")
    key = "sk-" + "a1" * 20
    told(session, run(1))
    slow = step(2, api_key="hunter2hunter2", text=key + "x" * 9999)
    slow[1]["duration_s"] = 2.5
    told(session, [*slow, *step(3, query="\ud800 ü")])
    rows = list(read_audit(audit))
    assert [(r.run, r.step, r.verdict, r.score) for r in rows] == [
        ("one\u2028run", 1, "continue", 0.5),
        ("one\u2028run", 2, "continue", 0.05),
        ("one\u2028run", 3, "halt", 0.05),
    ]
    assert [r.calls[0].name for r in rows] == ["search"] * 3 and rows[1].calls[0].seconds == 2.5
    assert rows[0].calls[0].seconds is not None and rows[0].calls[0].answered and rows[0].judge == "says so"
    assert rows[2].reason == "score 0.05; 2 steps below 0.1 since the run last stood at 0.2 or more"
    assert rows[0].began == rows[2].began <= rows[0].at <= rows[2].at and all(r.tokens > 0 for r in rows)
    content = audit.read_text("ascii")
    assert key not in content and "hunter2" not in content and max(len(r.calls[0].arguments) for r in rows) <= MOST


def test_a_run_is_resumed_from_its_audit(tmp_path: Path) -> None:
    """As a hook does, which is a new process at each step."""
    audit, policy = tmp_path / "audit.jsonl", GuardPolicy(patience=2, max_checks=3)
    actions = []
    for k in range(1, 5):
        session = Guard(SaysSo(0.05, 0.15, 0.05, 0.9), policy, audit=audit).session(
            run="r", resume=True, messages=run(k - 1)
        )
        actions += told(session, step(k))[-1:]
        assert session.state.spent.checks == min(k, 3)
    assert actions == ["continue", "continue", "halt", "halt"]
    assert [r.status for r in read_audit(audit, "r")] == ["scored"] * 3 + ["exhausted"]
    assert len({r.began for r in read_audit(audit)}) == 1 and list(read_audit(audit, "other")) == []
    other = Guard(SaysSo(0.9), policy, audit=audit).session(run="r")
    assert other.standing().goes_on  # not resumed: another session of the same run


def test_sessions_in_threads_and_coroutines() -> None:
    async def play(guard: Guard) -> list[str]:
        session = guard.session()
        return [(await session.observe_async(m)).action for m in run(2)]

    async def all_of_them(guard: Guard) -> list[list[str]]:
        return await asyncio.gather(*(play(guard) for _ in range(8)))

    actions = asyncio.run(all_of_them(Guard(SaysSo(0.0, 0.0))))
    assert actions == [["continue", "continue", "continue", "continue", "halt"]] * 8


def test_a_killed_writer_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, "1")
    for half in (b'{"half', b"x" * 200_000):
        with open(path, "ab") as file:
            file.write(half)
        append_line(path, "2")
    assert path.read_bytes() == b"1\n2\n2\n"
    path.write_bytes(b"no newline at all")
    append_line(path, "3")
    assert path.read_bytes() == b"3\n"
    with pytest.raises(RRMError, match="is not a file"):
        append_line(tmp_path, "4")


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    program = f"from rrm.data.jsonl import append_line\nfor k in range(40): append_line({str(path)!r}, 'x' * 3000)"
    writers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [w.wait() for w in writers] == [0, 0, 0]
    assert path.read_text().splitlines() == ["x" * 3000] * 120


def test_a_file_that_is_no_audit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    path.write_text(json.dumps({"id": "a"}) + "\n")
    with pytest.raises(ReadError, match=r"scored\.jsonl:1: not a row of a guard's audit"):
        list(read_audit(path))
    with pytest.raises(ReadError, match=r"scored\.jsonl:1"):  # nothing is added to it
        Guard(SaysSo(), audit=path)


def test_a_half_written_last_row_is_passed_over_and_another_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    guard = Guard(Reads(), GuardPolicy(patience=1), audit=path)
    told(guard.session(run="r"), [*run(0), *step(1, "it is 0.05")])
    content = path.read_bytes()
    for end in (1, 5, len(BEGINS), 40, len(content) - 1):
        path.write_bytes(content + content[:end])
        assert len(list(read_audit(path))) == 1
    again = Guard(Reads(), audit=path).session(run="r", resume=True)
    assert again.standing().action == "halt"
    again.resume()
    assert path.read_bytes().startswith(content) and len(path.read_bytes().splitlines()) == 2
    path.write_bytes(content[:60])  # the first row of all
    assert list(read_audit(path)) == [] and Guard(Reads(), audit=path).session(run="r", resume=True).standing().goes_on
    for other in ('{"id": "a"}', "halt_below: 0.1", "[]", "{}", '{"id": "a"}\n{"version": 1', '{"version": 1\n'):
        path.write_text(other)  # no newline at its end either, and nothing of it is cut off
        with pytest.raises(ReadError, match=r"audit\.jsonl:1: not a row"):
            Guard(Reads(), audit=path)
