"""Smoothed outcomes by hand."""

from __future__ import annotations

import pytest

from benchmarks import smoothed
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import RRMError


def row(i: int, question: str, outcome: float | None, agent: str | None) -> Trajectory:
    meta = {} if agent is None else {"agent": agent}
    messages = [Message(role="user", content=question), Message(role="assistant", content="done")]
    return Trajectory(id=str(i), question_id=question, messages=messages, outcome=outcome, meta=meta)


ROWS = [
    row(0, "q1", 1.0, "strong"),
    row(1, "q2", 1.0, "strong"),
    row(2, "q1", 0.0, "weak"),
    row(3, "q2", 1.0, "weak"),
    row(4, "test", 1.0, "weak"),
    row(5, "q2", None, "weak"),
    row(6, "q2", 1.0, None),
]


def test_rates_are_shrunk_to_the_mean() -> None:
    # mean of the four rows that name an agent and have an outcome: 3/4; each agent has two rows and one of prior
    rates = smoothed.group_rates(ROWS[:4], "agent", prior_rows=1.0)
    assert rates == {"strong": pytest.approx((2 + 0.75) / 3), "weak": pytest.approx((1 + 0.75) / 3)}


def test_score_is_the_weighted_mean_of_outcome_and_relative_rate() -> None:
    found = {a.trajectory_id: a.score for a in smoothed.annotate(ROWS, {"q1", "q2"}, own_share=0.4)}
    strong, weak = (2 + 5 * 0.75) / 7, (1 + 5 * 0.75) / 7
    assert found == {
        "0": pytest.approx(1.0),
        "1": pytest.approx(1.0),
        "2": pytest.approx(0.6 * weak / strong, abs=1e-4),
        "3": pytest.approx(0.4 + 0.6 * weak / strong, abs=1e-4),
        "6": 1.0,  # no agent: its own outcome
    }


def test_outcomes_of_other_questions_change_nothing() -> None:
    changed = [t if t.question_id != "test" else t.model_copy(update={"outcome": 0.0}) for t in ROWS]
    assert list(smoothed.annotate(ROWS, {"q1", "q2"})) == list(smoothed.annotate(changed, {"q1", "q2"}))


def test_nobody_to_smooth_with_is_an_error() -> None:
    with pytest.raises(RRMError, match="meta\\['model'\\]"):
        list(smoothed.annotate(ROWS, {"q1", "q2"}, group="model"))
    with pytest.raises(RRMError, match="ever succeeds"):
        list(smoothed.annotate([row(0, "q1", 0.0, "weak")], {"q1"}))
