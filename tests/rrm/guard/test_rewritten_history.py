"""A guard of an agent whose framework cuts, sums up or retells its history: step numbers repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from guarded import Reads, step

from rrm.data.trajectory import Message, Trajectory
from rrm.guard import Guard, GuardPolicy, read_audit
from rrm.guard.state import GuardState, digest_before

POLICY = GuardPolicy(halt_below=0.1, patience=2)


def shown(first: int, last: int, score: float, task: str = "find it", messages_of: Any = step) -> Trajectory:
    """The run as a framework shows it: steps first to last, each with a result that has the score."""
    messages = [m for k in range(first, last + 1) for m in messages_of(k, f"it is {score} {k}")]
    return Trajectory(
        id="r",
        task="find it",
        messages=[Message.model_validate(m) for m in [{"role": "user", "content": task}, *messages]],
    )


def test_a_window_over_the_last_steps_is_halted() -> None:
    session = Guard(Reads(), POLICY).session()
    actions = [session.judge_now(shown(max(k - 3, 1), k, 0.05)).action for k in range(1, 8)]
    assert actions == ["continue", *["halt"] * 6]
    window = Guard(Reads(), POLICY).session()
    assert [window.judge_now(shown(k, k + 3, 0.05)).action for k in range(1, 5)] == ["continue", "halt", "halt", "halt"]


def test_an_agent_that_does_the_same_again_and_again_is_halted_in_a_window() -> None:
    """Its words are equal, its calls' ids are not."""

    def stuck(k: int, result: str) -> list[dict[str, Any]]:
        return step(k, "it is 0.05", query="the same")

    def made(first: int) -> Trajectory:
        run = shown(first, first + 2, 0.05, messages_of=stuck)
        for message in run.messages:
            if message.role == "assistant":
                message.content = "looking"
        return run

    session = Guard(Reads(), POLICY).session()
    assert [session.judge_now(made(k)).action for k in range(1, 4)] == ["continue", "halt", "halt"]


def test_numbers_that_come_again_behind_a_summary_are_other_steps() -> None:
    session = Guard(Reads(), POLICY).session()
    assert [session.judge_now(shown(1, k, 0.9)).action for k in (1, 2, 3)] == ["continue"] * 3
    summary = "what was before: nothing was found"
    assert [session.judge_now(shown(4, k, 0.05, summary)).action for k in (4, 5, 6)] == ["continue", "halt", "halt"]
    # and what was counted before the summary stays counted
    other = Guard(Reads(), POLICY).session()
    assert other.judge_now(shown(1, 1, 0.05)).action == "continue"
    assert other.judge_now(shown(2, 2, 0.05, summary)).action == "halt"


def test_a_step_that_is_seen_again_counts_once_and_only_where_it_is_the_latest() -> None:
    session = Guard(Reads(), POLICY).session()
    half = shown(1, 2, 0.05)
    assert [session.judge_now(half).action for _ in range(3)] == ["continue"] * 3
    more = half.model_copy(update={"messages": [*half.messages, Message(role="user", content="really 0.05?")]})
    assert session.judge_now(more).action == "continue"  # more is known of the step
    assert session.judge_now(shown(1, 3, 0.05)).action == "halt"
    standing = GuardState(POLICY)
    actions = []
    for number in (2, 1, 2):
        standing.take(number, 0.05)
        actions.append(standing.action)
    assert actions == ["continue", "halt", "halt"]


def test_an_audit_knows_a_number_s_other_step(tmp_path: Path) -> None:
    """As hooks do, each a process of its own."""
    audit, actions = tmp_path / "audit.jsonl", []
    for k in (1, 1, 2, 3):
        session = Guard(Reads(), POLICY.model_copy(update={"patience": 3}), audit=audit).session(run="r", resume=True)
        actions.append(session.judge_now(shown(k, k + 1, 0.05)).action)
    assert actions == ["continue", "continue", "continue", "halt"]
    rows = list(read_audit(audit))
    assert [r.step for r in rows] == [2] * 4 and [rows[0].before == r.before for r in rows] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("depth", [1, 100_000])
def test_whatever_stands_in_a_message_has_a_digest(depth: int) -> None:
    inner: Any = {"type": "image_url", "image_url": b"\x00"}
    for _ in range(depth):
        inner = [inner]
    odd = {"role": "user", "content": [{"type": "text", "text": "\ud800 ü"}, {"type": "x", "x": inner, 3: object}]}
    run = Trajectory(id="r", messages=[])
    run.messages += [Message.model_construct(**odd), Message(role="assistant", content="a")]
    digest = digest_before(run, 1)
    assert len(digest) == 16 and digest == digest_before(run, 1) != digest_before(run, 0)


def test_a_glance_judges_where_a_step_has_ended_since(tmp_path: Path) -> None:
    judge = Reads()
    guard = Guard(judge, POLICY.model_copy(update={"patience": 1}), audit=tmp_path / "a.jsonl")
    before, question = shown(1, 2, 0.05), Message(role="user", content="try it otherwise")

    def then(run: Trajectory, *messages: Any) -> Trajectory:
        return run.model_copy(update={"messages": [*run.messages, *(Message.model_validate(m) for m in messages)]})

    session = guard.session(run="turn 2")
    turn = then(before, question)
    for _ in range(2):  # what an earlier turn did is not this run's
        verdict = session.judge_if_new(turn)
        assert (verdict.action, verdict.step, verdict.checked, judge.asked) == ("continue", 2, False, [])
    first_turn = then(turn, *step(3, "it is 0.5"))
    assert session.judge_if_new(first_turn).checked and not session.judge_if_new(first_turn).checked
    assert not session.judge_if_new(then(first_turn, question)).checked  # the user again, and no step since
    # something speaks in the user's name behind each step: they are judged all the same
    second_turn = then(first_turn, question, *step(4, "it is 0.04"), question)
    assert (
        session.judge_if_new(second_turn).action == "halt" == session.judge_if_new(second_turn).action
        and len(judge.asked) == 2
    )
    # a process that takes the run over gives the verdict that it knows before it judges
    other = guard.session(run="turn 2", resume=True)
    assert (other.judge_if_new(second_turn).action, other.judge_if_new(second_turn).step, len(judge.asked)) == (
        "halt",
        4,
        2,
    )
    other.resume()
    assert other.judge_if_new(then(second_turn, *step(5, "it is 0.9"))).checked
    assert guard.session().judge_if_new(Trajectory(id="x", messages=[])).goes_on
