"""Verdicts on whole runs that agree with people at a promised rate."""

from __future__ import annotations

import numpy as np
import pytest

from rrm.evaluation.promised_agreement import promise


def test_by_hand() -> None:
    """Of 100 runs the 60 surest agree. A sequence from the first 25 on needs (0.9)^n ≤ 0.1/4, n ≥ 36, so that of 50 runs counts; the
    first disagreements stop it at 72: P(at most 2 of 73 disagree) = 0.022 ≤ 0.025 < P(at most 3 of 74)."""
    scores, labels = np.linspace(0.99, 0.51, 100), np.ones(100)
    labels[[60, 70, 73, 74, 75, 76, 77, 78, 79, 80]] = 0
    found = promise(scores, labels, [str(k) for k in range(100)], "score")
    assert found is not None and found.coverage == 0.73 and found.least_sure == pytest.approx(scores[72])
    assert found.agreed == pytest.approx(71 / 73) and found.labels == 100


def test_attempts_at_one_question_count_once_and_weak_judges_promise_nothing() -> None:
    scores, labels = np.full(300, 0.9), np.ones(300)
    assert promise(scores, labels, ["q"] * 300, "score") is None
    assert promise(scores, labels, [str(k) for k in range(300)], "score") is not None
    coin = np.random.default_rng(0).random(300) < 0.5
    assert promise(scores, coin.astype(float), [str(k) for k in range(300)], "score") is None


def test_the_order_of_attempts_and_split_raters_flatter_nobody() -> None:
    """The first attempt of each question counted, so that a file with the failures last promised what half of the runs break; and where
    raters were one against one, a verdict of good agreed."""
    scores, labels = np.full(400, 0.9), np.repeat([1.0, 0.0], 200)
    assert promise(scores, labels, [str(k % 200) for k in range(400)], "score") is None
    assert promise(scores, np.full(400, 0.5), [str(k) for k in range(400)], "score") is None


@pytest.mark.parametrize(("signal", "labels"), [(2.0, 100), (2.0, 300), (3.0, 100)])
def test_it_is_held(signal: float, labels: int) -> None:
    random = np.random.default_rng(0)
    truth = (random.random(100_000) < 0.6).astype(float)
    scores = 1 / (1 + np.exp(-(signal * (random.normal(size=len(truth)) + signal * (truth - 0.5)) + np.log(1.5))))
    held = 0
    for _ in range(300):
        rows = random.choice(len(truth), labels, replace=False)
        made = promise(scores[rows], truth[rows], [str(k) for k in range(labels)], "score")
        sure = (
            np.zeros(0, dtype=int)
            if made is None
            else np.flatnonzero(np.maximum(scores, 1 - scores) >= made.least_sure)
        )
        held += not len(sure) or ((scores[sure] >= 0.5) == (truth[sure] >= 0.5)).mean() >= 0.9
    assert held >= 0.88 * 300
