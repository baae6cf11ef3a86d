"""The guard's study: what each way of stopping saves, by hand, and that thresholds come from other questions."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.guard import (
    WAYS,
    Run,
    at_each_step,
    cross_fitted,
    figures,
    fitted,
    guarded,
    halt,
    measured,
    prefixes,
    source_alone,
    turns,
)
from rrm.guard.policy import GuardPolicy
from rrm.trajectory import Message, Trajectory


def run(name: str, good: bool, scores: list[float], source: str = "s") -> Run:
    n = len(scores)
    return Run(name, source, name, good, [10] * n, scores, scores, [5] * n, [0.1] * n)


RUNS = [run("a", True, [0.9, 0.9, 0.9]), run("b", False, [0.1, 0.1, 0.1, 0.1]), run("c", False, [0.5, 0.1, 0.1])]


def test_the_guard_stops_where_the_live_one_would() -> None:
    policy = GuardPolicy(halt_below=0.2, patience=2)
    assert [halt(r.score, policy) for r in RUNS] == [None, 2, 3]
    effect = guarded("score", 2)(RUNS, 0.2)  # c is halted after its last step: there is nothing to stop
    assert effect.stopped.tolist() == [0, 1, 0] and effect.tokens.tolist() == [0, 20, 0]
    assert effect.steps.tolist() == [0, 2, 0]
    assert figures(RUNS, effect)["failing_tokens_saved"] == round(20 / 70, 4)


def test_rivals() -> None:
    assert turns(RUNS, 3).stopped.tolist() == [0, 1, 0] and turns(RUNS, 2).tokens.tolist() == [10, 20, 10]
    half = turns(RUNS, 2.5)  # every second run goes on to the third turn
    assert half.stopped.tolist() == [0.5, 1.0, 0.5] and half.tokens.tolist() == [5, 15, 5]
    random = WAYS["random"](RUNS, 0.5)
    assert random.stopped.tolist() == [0.75, 0.875, 0.75]
    assert random.tokens[0] == pytest.approx(0.5 * 20 + 0.25 * 10)


def test_a_threshold_keeps_to_the_share_of_good_runs() -> None:
    runs = [run(f"g{k}", True, [0.01 * k] * 3) for k in range(10)] + RUNS
    threshold = fitted("guard", guarded("score", 1), runs, allowed=0.2)
    stopped = guarded("score", 1)([r for r in runs if r.good], threshold).stopped
    assert stopped.sum() == 2
    effect, parameters = cross_fitted("guard", guarded("score", 1), runs, np.arange(len(runs)) % 5)
    assert len(parameters) == 5 and effect.stopped.shape == (len(runs),)


def test_the_control_knows_a_run_s_source_and_not_the_run() -> None:
    runs = [run("a", True, [0.5] * 3, "x"), run("b", True, [0.5] * 3, "x"), run("c", False, [0.5] * 3, "y")]
    assert source_alone(runs)(runs, 0.5).stopped.tolist() == [0, 0, 1]


def test_the_record() -> None:
    rng = np.random.default_rng(0)
    runs = [
        run(str(k), k % 3 == 0, (rng.random(4) * (0.5 + 0.5 * (k % 3 == 0))).tolist(), f"s{k % 2}") for k in range(60)
    ]
    found = measured(runs, 0)
    assert set(found["cross_fitted"]) == {*WAYS, "source_alone"} and found["primary"]["rival"] in ("turns", "random")
    assert found["primary"]["low"] <= found["primary"]["value"] <= found["primary"]["high"]
    assert found["judge"]["tokens_per_token"] == 0.5
    first = at_each_step(runs)[0]
    assert first["auroc"] > 0.5 and 0 <= first["same_source"] <= 1


def test_prefixes_end_with_what_came_back() -> None:
    roles = ("user", "assistant", "tool", "user", "assistant")
    whole = Trajectory(id="t", messages=[Message(role=r, content="x") for r in roles], outcome=1.0)
    assert [len(p.messages) for p in prefixes(whole)] == [4, 5] and prefixes(whole)[0].outcome is None
