"""Verdicts with kept keys and values are those of judging each prefix afresh, and cost fewer tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from guarded import run

from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import EngineCounters
from rrm.guard import Guard, GuardPolicy
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.incremental_judge import Follower

MakeJudge = Callable[..., AgentRRM]


def counters(judge: AgentRRM) -> EngineCounters:
    engine: Any = judge.engine
    return engine.counters


def prefixes(steps: int) -> list[Trajectory]:
    """The run after each step."""
    messages = [Message.model_validate(m) for m in run(steps)]
    return [Trajectory(id="r", task="find it", messages=messages[: 1 + 2 * k]) for k in range(1, steps + 1)]


@pytest.mark.parametrize("tokens", [900, 150], ids=["one window", "several"])
def test_kept_equals_fresh(slot_judge: MakeJudge, tokens: int) -> None:
    judge, fresh = slot_judge(tokens), slot_judge(tokens)
    follower, steps = Follower(judge), prefixes(9)
    assert fresh.in_windows(steps[-1], "steps") == (tokens == 150)
    kept_tokens, fresh_tokens = [], []
    for prefix in steps:
        before = counters(judge).prefilled, counters(fresh).prefilled
        followed, (expected,) = follower.judge(prefix), fresh.judge([prefix], mode="steps")
        kept_tokens.append(counters(judge).prefilled - before[0])
        fresh_tokens.append(counters(fresh).prefilled - before[1])
        assert followed.score == pytest.approx(expected.score, abs=1e-5)
        assert [f.p_good for f in followed.findings] == pytest.approx([f.p_good for f in expected.findings], abs=1e-5)
        exact = {"score", "raw_score", "findings"}
        assert followed.model_dump(exclude=exact) == expected.model_dump(exclude=exact)
    assert kept_tokens[0] == fresh_tokens[0]
    assert all(k < f for k, f in zip(kept_tokens[1:], fresh_tokens[1:], strict=True))
    if tokens == 900:  # each step's own tokens, its slot, and the ending anew
        assert max(kept_tokens[1:]) < 0.35 * fresh_tokens[0] < fresh_tokens[-1]
        assert sum(kept_tokens) < 1.3 * fresh_tokens[-1] < 0.3 * sum(fresh_tokens)
    follower.close()
    assert not judge.engine._kept  # pyright: ignore


def test_any_change_is_seen(slot_judge: MakeJudge) -> None:
    """A rewritten run (a cut history, another question) is judged as it stands."""
    judge, fresh = slot_judge(), slot_judge()
    follower, steps = Follower(judge), prefixes(4)
    other = steps[1].model_copy(update={"task": "lose it"})
    shorter = steps[2].model_copy(update={"messages": [*steps[2].messages[:2], *steps[2].messages[3:]]})
    unspoken = Trajectory(id="r", task="find it", messages=steps[0].messages[:1])
    for prefix in (steps[3], steps[1], other, shorter, unspoken, steps[0]):
        followed, (expected,) = follower.judge(prefix), fresh.judge([prefix], mode="steps")
        assert (followed.status, followed.reason) == (expected.status, expected.reason)
        assert followed.score == pytest.approx(expected.score, abs=1e-5)
        assert [f.p_good for f in followed.findings] == pytest.approx([f.p_good for f in expected.findings], abs=1e-5)


def test_what_an_engine_dropped_is_computed_again(slot_judge: MakeJudge) -> None:
    judge, fresh = slot_judge(), slot_judge()
    judge.engine.kept_bytes = 0  # pyright: ignore
    follower = Follower(judge)
    for prefix in prefixes(3):
        (expected,) = fresh.judge([prefix], mode="steps")
        assert follower.judge(prefix).score == pytest.approx(expected.score, abs=1e-5)
    assert counters(judge).prefilled == counters(fresh).prefilled


def test_two_runs_beside_each_other(slot_judge: MakeJudge) -> None:
    judge, fresh = slot_judge(), slot_judge()
    first, second = Follower(judge), Follower(judge)
    for prefix in prefixes(3):
        other = prefix.model_copy(update={"task": "another question"})
        for follower, trajectory in ((first, prefix), (second, other)):
            (expected,) = fresh.judge([trajectory], mode="steps")
            assert follower.judge(trajectory).score == pytest.approx(expected.score, abs=1e-5)


def test_the_guard_counts_what_is_computed(slot_judge: MakeJudge) -> None:
    judge, fresh = slot_judge(), slot_judge()
    guard = Guard(judge, GuardPolicy(signal="p_good", halt_below=None))
    assert guard.mode == "steps"
    with guard.session() as session:
        verdicts = [v for m in run(5) if (v := session.observe(m)).checked]
        (expected,) = fresh.judge([session.trajectory], mode="steps")
        assert [v.p_good for v in verdicts] == pytest.approx([f.p_good for f in expected.findings], abs=1e-5)
        assert verdicts[-1].score == pytest.approx(expected.score, abs=1e-5)
        assert session.state.spent.tokens == sum(v.tokens for v in verdicts) == counters(judge).prefilled
        assert session.state.spent.checks == 5 and session.state.spent.seconds > 0
    assert not judge.engine._kept  # pyright: ignore
