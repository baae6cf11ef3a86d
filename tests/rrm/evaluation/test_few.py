"""No interval where questions or rows are too few to say how sure a figure is."""

from __future__ import annotations

from typing import Any

import pytest
from evaluated_rows import judged, run

from rrm.evaluation.evaluate import evaluate_feedback


def measured(questions: int, attempts: int) -> dict[str, Any]:
    rows = [run(f"{q}/{i}", f"q{q}", float((i + q) % 2), steps=2) for q in range(questions) for i in range(attempts)]
    found = [
        judged(t.id, 0.2 + 0.5 * (k % 3 == 0) + 0.1 * (t.outcome or 0.0), critique="[step 1] bad: x", findings=[])
        for k, t in enumerate(rows)
    ]
    labels = [["bad", "good"] for _ in rows]
    return evaluate_feedback(rows, found, step_labels=labels, resamples=200)


@pytest.mark.parametrize(
    ("questions", "attempts", "sure"), [(9, 8, False), (10, 4, True), (12, 1, False), (30, 2, True)]
)
def test_an_interval_needs_questions_and_rows(questions: int, attempts: int, sure: bool) -> None:
    report = measured(questions, attempts)
    for name in ("auroc", "brier", "ece"):
        found = report["metrics"]["judge"][name]
        assert found["value"] is not None and (found["low"] is not None) == sure, name
    steps = report["steps"]["metrics"]["judge"]["macro_f1"]
    assert (steps["low"] is not None) == (questions >= 10 and questions * attempts * 2 >= 20)


def test_pairs_are_counted_and_not_the_rows_around_them() -> None:
    rows = [run(f"{q}/{i}", f"q{q}", float(q < 8 and i == 0)) for q in range(40) for i in range(3)]
    report = evaluate_feedback(rows, [judged(t.id, 0.1 * (k % 7)) for k, t in enumerate(rows)], resamples=200)
    pairs = report["metrics"]["judge"]["pair_accuracy_same_question"]  # of 40 questions, 8 have pairs
    assert pairs["value"] is not None and pairs["low"] is None and pairs["high"] is None
    assert report["metrics"]["judge"]["brier"]["low"] is not None
