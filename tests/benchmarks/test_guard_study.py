"""The guard's study: what each way of stopping saves, by hand, and that thresholds come from other questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import guard_figures
from benchmarks.guard import prefixes
from benchmarks.guard_figures import at_each_step, cost, cross_fitted, figures, fitted, measured, net
from benchmarks.guard_ways import WAYS, Run, guarded, halt, shuffled, source_alone, turns, turns_of_source
from rrm.data.trajectory import Message, Trajectory
from rrm.guard.policy import GuardPolicy


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


def test_shuffled_scores_are_of_other_runs_of_the_source() -> None:
    runs = [run(name, True, [0.1 * k] * (k + 2), "x") for k, name in enumerate("abc")] + [run("d", False, [0.9], "y")]
    others = shuffled(runs, 0)
    assert [r.id for r in others] == list("abcd") and others == shuffled(runs, 0)
    assert all(len(r.score) == len(r.tokens) for r in others)
    assert sorted(r.score[0] for r in others[:3]) == [0.0, 0.1, 0.2]
    assert all(r.score[0] != was.score[0] for r, was in zip(others[:3], runs, strict=False))
    assert others[3].score == [0.9] and runs[0].score == [0.0, 0.0]


def test_turns_are_told_apart_by_source() -> None:
    runs = [
        run(f"{s}{n}", False, [0.5] * n, s) for s, lengths in (("x", (2, 4, 6)), ("y", (10, 20, 30))) for n in lengths
    ]
    assert turns_of_source(runs)(runs, 1.2).stopped.tolist() == [0, 0, 1, 0, 0, 1]
    assert turns_of_source(runs)(runs, 1.2).tokens.tolist() == [0, 0, 10, 0, 0, 60]


def test_what_is_saved_stands_beside_what_the_judge_read() -> None:
    """b is halted after its second step of four."""
    found = net(RUNS, np.zeros(3, dtype=int), [0.2])
    assert (found["judge_tokens"], found["failing_tokens_saved"], found["good_tokens_lost"]) == (15 + 10 + 15, 20, 0)
    assert found["judge_tokens_per_failing_token_saved"] == 2.0


def test_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("DRAWS", 5), ("OTHER_FOLDS", 2), ("RESAMPLES", 500)):
        monkeypatch.setattr(guard_figures, name, few)
    rng = np.random.default_rng(0)
    runs = [
        run(str(k), k % 3 == 0, (rng.random(4) * (0.5 + 0.5 * (k % 3 == 0))).tolist(), f"s{k % 2}") for k in range(60)
    ]
    found = measured(runs, 0)
    assert set(found["cross_fitted"]) == {*WAYS, "source_alone", "turns_of_source"} and found["primary"]["rival"] in (
        "turns",
        "random",
    )
    assert found["primary"]["low"] <= found["primary"]["value"] <= found["primary"]["high"]
    assert found["judge"] == cost(runs) and found["judge"]["tokens_per_token"] == 0.5
    assert found["by_default"] == figures(runs, guarded("score", 2)(runs, 0.1))
    assert sum(row["good"] for row in found["by_source"].values()) == 20
    spans = found["other_folds"]["guard_minus_turns"]
    assert spans["least"] <= spans["mean"] <= spans["most"]
    # scores say who fails and sources do not: those of other runs save less
    assert (
        found["shuffled"]["failing_tokens_saved"]["value"]
        < found["cross_fitted"]["guard"]["failing_tokens_saved"]["value"]
    )
    guard_figures.drawn(runs, tmp_path / "guard.png")
    assert (tmp_path / "guard.png").stat().st_size > 5000
    first = at_each_step(runs)[0]
    assert first["auroc"] > 0.5 and 0 <= first["same_source"] <= 1


def test_prefixes_end_with_what_came_back() -> None:
    roles = ("user", "assistant", "tool", "user", "assistant")
    whole = Trajectory(id="t", messages=[Message(role=r, content="x") for r in roles], outcome=1.0)
    assert [len(p.messages) for p in prefixes(whole)] == [4, 5] and prefixes(whole)[0].outcome is None
