"""Probabilities of steps against step labels: every measure by hand, baselines, and what reaches the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from evaluated_rows import judged, run
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, matthews_corrcoef

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback
from rrm.data.localisation import OfConfusion, confusion
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import RRMError
from rrm.evaluation.baselines import fit_step_position, fit_step_tfidf, prefix_text, rules_step_scores, step_scores_of
from rrm.evaluation.bootstrap import point
from rrm.evaluation.evaluate import evaluate_feedback
from rrm.evaluation.metrics.probability import Auroc
from rrm.evaluation.metrics.process import AveragePrecision, first_errors, fit_threshold
from rrm.evaluation.step_scores import evaluate_step_scores, fit_step_threshold, step_probabilities

A = np.array


def said(id: str, p_good: Sequence[float | None], **parts: Any) -> Feedback:
    findings = [
        Finding(step=k, verdict="good" if p >= 0.5 else "bad", p_good=p)
        for k, p in enumerate(p_good, 1)
        if p is not None
    ]
    return judged(id, 0.5, findings=findings, **parts)


def labels(text: str) -> list[Any]:
    """`g` good, `b` bad, `.` not labelled."""
    return [{"g": "good", "b": "bad", ".": None}[c] for c in text]


# ---- the measures by hand --------------------------------------------------------------------------------------------


def test_average_precision_by_hand() -> None:
    # from the lowest p_good: bad (1 of 1), good, bad (2 of 3), good -> (1 + 2/3) / 2
    ranking = AveragePrecision(A([0.9, 0.1, 0.3, 0.2]), A([False, True, True, False]), A([0, 0, 0, 0]))
    assert point(ranking, 1) == pytest.approx((1 + 2 / 3) / 2)
    # all alike: the share of bad steps
    assert point(AveragePrecision(A([0.5] * 4), A([True, False, False, False]), A([0] * 4)), 1) == 0.25
    assert math.isnan(point(AveragePrecision(A([0.5]), A([False]), A([0])), 1))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 2)), min_size=1, max_size=30), st.data())
def test_weighted_average_precision_agrees_with_scikit_learn(rows, data) -> None:
    counts = A(data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3)), dtype=float)
    p, bad, q = A([r[0] for r in rows]) / 4, A([r[1] for r in rows]), A([r[2] for r in rows])
    found = AveragePrecision(p, bad, q)(counts[None])[0]
    weights = counts[q]
    if (weights * bad).sum() == 0:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(average_precision_score(bad, -p, sample_weight=weights))


def test_first_errors_by_hand() -> None:
    # run 0: first bad at its step 2, first below ½ at its step 2: found.  run 1: bad at 1, said at 2: missed.
    # run 2: no bad step, one below ½: an alarm.  run 3: no bad step, none said.  run 4: bad, none said: missed.
    p = A([0.9, 0.2, 0.1, 0.8, 0.3, 0.6, 0.4, 0.9, 0.7])
    bad = A([0, 1, 0, 1, 0, 0, 0, 0, 1], dtype=bool)
    rows = A([0, 0, 0, 1, 1, 2, 2, 3, 4])
    questions = A([0, 0, 0, 0, 0, 1, 1, 1, 1])
    found = {name: point(s, 2) for name, s in first_errors(p, bad, rows, questions, 2, 0.5).items()}
    assert found == {
        "first_error": pytest.approx(1 / 3),
        "false_alarms": 0.5,
        "first_error_f1": pytest.approx(2 * (1 / 3) * 0.5 / (1 / 3 + 0.5)),
    }
    # question 1 alone, drawn twice: run 4 missed, run 2 of runs 2 and 3 an alarm
    drawn = {name: s(A([[0.0, 2.0]]))[0] for name, s in first_errors(p, bad, rows, questions, 2, 0.5).items()}
    assert drawn == {"first_error": 0.0, "false_alarms": 0.5, "first_error_f1": 0.0}


def test_flagging_everything_or_nothing_has_no_first_error_f1() -> None:
    bad, rows, one = A([True, False, False]), A([0, 0, 1]), A([0, 0, 0])
    for p, hit, alarm in ((A([0.0] * 3), 1.0, 1.0), (A([1.0] * 3), 0.0, 0.0)):
        found = {name: point(s, 1) for name, s in first_errors(p, bad, rows, one, 1, 0.5).items()}
        assert found == {"first_error": hit, "false_alarms": alarm, "first_error_f1": 0.0}


def test_a_threshold_is_fitted_where_the_correlation_is_highest() -> None:
    p = A([0.1, 0.2, 0.3, 0.35, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9])
    bad = p < 0.37
    found = fit_threshold(p, bad)
    assert found.value == pytest.approx(0.375)
    assert (found.mcc, found.steps) == (1.0, 10)
    assert [fit_threshold(p, bad, half).value for half in (0.39, 0.4, 0.41)] == pytest.approx([0.39, 0.4, 0.375])


def test_of_equally_good_thresholds_the_one_nearest_to_a_half_is_taken() -> None:
    # at 0.15 one bad step of five is missed, at 0.75 one good step of five is blamed: 20 / sqrt(600) both
    p = A([0.1] * 4 + [0.2, 0.6] + [0.9] * 4)
    bad = A([True] * 4 + [False, True] + [False] * 4)
    found = fit_threshold(p, bad)
    assert (found.value, found.mcc) == (pytest.approx(0.75), pytest.approx(20 / 600**0.5))
    assert fit_threshold(1 - p[::-1], ~bad[::-1]).value == pytest.approx(0.25)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=10, max_size=40))
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_no_threshold_is_better_than_the_fitted_one(rows) -> None:
    p, bad = A([r[0] for r in rows]) / 6, A([r[1] for r in rows])
    reached = [matthews_corrcoef(bad, p < cut) for cut in np.arange(0, 1.1, 1 / 12)]
    try:
        found = fit_threshold(p, bad)
    except RRMError:
        assert max(reached) <= 1e-12
    else:
        assert found.mcc == pytest.approx(max(reached))
        assert found.mcc == pytest.approx(matthews_corrcoef(bad, p < found.value))


def test_nothing_is_fitted_where_nothing_can_be() -> None:
    with pytest.raises(RRMError, match="got 3, 1 of them bad"):
        fit_threshold(A([0.1, 0.2, 0.3]), A([True, False, False]))
    with pytest.raises(RRMError, match="good ones and bad ones"):
        fit_threshold(np.linspace(0, 1, 20), np.ones(20, dtype=bool))
    with pytest.raises(RRMError, match="no threshold"):
        fit_threshold(np.full(20, 0.3), np.arange(20) < 5)
    with pytest.raises(RRMError, match="no labelled step has a p_good"):
        fit_step_threshold([run("a", "q", 1.0)], [judged("a", 0.5)], [["good"]])


# ---- from feedback to the report -------------------------------------------------------------------------------------


def test_of_several_probabilities_of_a_step_the_lowest_counts() -> None:
    findings = [Finding(step=k, verdict="bad", p_good=p) for k, p in ((2, 0.4), (2, 0.1), (5, 0.2), (3, None))]
    assert step_probabilities(findings, 4) == [None, 0.1, None, None]


def test_only_labelled_steps_with_a_probability_are_measured() -> None:
    rows = [run(i, f"q{i}", 1.0, steps=3) for i in "abcde"]
    feedback = [
        said("a", [0.9, 0.2, 0.3]),
        said("b", [0.8, None, 0.4]),
        judged("c", 0.5, mode="critique", findings=[Finding(step=1, verdict="bad")]),  # of another mode
        said("d", [0.1, 0.1, 0.1]),  # not labelled
        judged("e", None, status="unparsable", findings=[Finding(step=1, verdict="bad", p_good=0.0)]),
    ]
    given_labels = [labels("gb."), labels("bb."), labels("bbb"), None, labels("bbb")]
    found = evaluate_step_scores(rows, feedback, given_labels, resamples=50)
    assert found is not None
    counts = {
        k: found[k] for k in ("rows", "steps", "questions", "steps_without_p", "rows_with_errors", "rows_not_read")
    }
    assert counts == {
        "rows": 3, "steps": 3, "questions": 3, "steps_without_p": 4, "rows_with_errors": 3, "rows_not_read": 1
    }  # fmt: skip
    assert found["bad_share"] == pytest.approx(2 / 3)
    judge = {name: x["value"] for name, x in found["metrics"]["judge"].items()}
    # good .9 over bad .2 and .8; bad of run b stands at .8 and is missed at ½
    assert judge["auroc"] == 1.0
    assert judge["first_error"] == pytest.approx(1 / 3)  # of run e nothing was read, and so its fault missed
    assert judge["false_alarms"] is None
    assert found["metrics"]["all_bad"]["auroc"]["value"] == 0.5
    assert found["metrics"]["all_bad"]["average_precision"]["value"] == pytest.approx(2 / 3)
    assert found["metrics"]["judge"]["auroc"]["low"] is None  # two questions


def test_a_fault_in_a_step_that_was_not_read_is_missed() -> None:
    rows = [run(i, f"q{i}", 1.0, steps=2) for i in "abcdef"]
    feedback = [said("a", [0.9, None]), said("b", [0.9, 0.9]), said("c", [0.9, 0.1]), said("d", [0.2, None]),
                said("e", [0.1, None]), said("f", [None, 0.1])]  # fmt: skip
    given = [labels("gb"), labels("gg"), labels("gb"), labels(".b"), labels("gg"), labels("bb")]
    mine = [[0.9, 0.1], [0.9, 0.9], [0.1, 0.1], [0.1, 0.1], [0.9, 0.9], [0.1, 0.1]]
    found = evaluate_step_scores(rows, feedback, given, {"mine": mine}, resamples=50)
    assert found is not None
    counts = {k: found[k] for k in ("rows", "steps", "steps_without_p", "rows_with_errors")}
    assert counts == {"rows": 6, "steps": 7, "steps_without_p": 4, "rows_with_errors": 4}
    value = {name: {k: x["value"] for k, x in of.items()} for name, of in found["metrics"].items()}
    # of a, c, d and f c alone: of d the step that was read has no label, of f it is the second error
    assert value["judge"]["first_error"] == 1 / 4 and value["judge"]["false_alarms"] == 1 / 2
    assert value["mine"]["first_error"] == 3 / 4 and value["mine"]["false_alarms"] == 0.0
    # rankings are of the steps that were read: bad c2 and f2 at .1; good ones four at .9 and one at .1
    assert value["judge"]["auroc"] == pytest.approx(0.9) and found["bad_share"] == pytest.approx(2 / 7)


@pytest.mark.parametrize("status", ["too_long", "judge_error", "unparsable", "truncated"])
def test_a_judge_gains_nothing_by_runs_it_could_not_judge(status: Any) -> None:
    """Half of the runs read perfectly and half not at all counted as all perfect."""
    rows = [run(str(i), f"q{i}", 1.0, steps=2) for i in range(20)]
    feedback = [said(t.id, [0.9, 0.1]) if i < 10 else judged(t.id, None, status=status) for i, t in enumerate(rows)]
    found = evaluate_step_scores(rows, feedback, [labels("gb")] * 20, resamples=50)
    assert found is not None and (found["rows"], found["rows_not_read"], found["steps"]) == (20, 10, 20)
    assert found["metrics"]["judge"]["first_error"]["value"] == 0.5
    assert found["metrics"]["all_bad"]["first_error"]["value"] == 0.0


def test_runs_that_were_not_read_are_not_left_alone() -> None:
    """Clean runs on which the judge failed were runs without a false alarm, its own alone: F1 was 1."""
    rows = [run(str(i), f"q{i}", 1.0, steps=2) for i in range(4)]
    given = [labels("bg"), labels("gb"), labels("gg"), labels("gg")]
    mine = [[0.1, 0.9], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]]

    def value(*last: Any) -> dict[str, tuple[float, float]]:
        feedback = [said("0", [0.1, 0.9]), said("1", [0.9, 0.1]), *last]
        found = evaluate_step_scores(rows, feedback, given, {"mine": mine}, resamples=50)
        assert found is not None
        names = ("false_alarms", "first_error_f1")
        return {of: tuple(found["metrics"][of][k]["value"] for k in names) for of in ("judge", "mine")}

    failed = [judged(i, None, status="judge_error") for i in "23"]
    assert value(*failed) == {"judge": (None, None), "mine": (None, None)}
    assert value(failed[0], said("3", [0.9, 0.9])) == {"judge": (0.0, 1.0), "mine": (1.0, 0.0)}
    # of run 3 the step at which `mine` raises an alarm was not read
    assert value(failed[0], said("3", [0.9, None])) == {"judge": (0.0, 1.0), "mine": (0.0, 1.0)}
    assert value(said("2", [0.2, None]), said("3", [0.9, 0.9])) == {"judge": (0.5, 2 / 3), "mine": (1.0, 0.0)}


def test_nothing_is_said_of_feedback_without_probabilities() -> None:
    rows = [run("a", "q", 1.0, steps=1)]
    assert evaluate_step_scores(rows, [judged("a", 0.5)], [["bad"]]) is None
    assert evaluate_step_scores(rows, [said("a", [0.5])], [None]) is None
    assert evaluate_step_scores(rows, [said("a", [0.5])], None) is None


def test_labels_and_baselines_that_do_not_fit_are_refused() -> None:
    rows = [run("a", "q", 1.0, steps=2)]
    with pytest.raises(ValueError, match="2 steps and 1 step labels"):
        evaluate_step_scores(rows, [said("a", [0.5, 0.5])], [["bad"]])
    with pytest.raises(ValueError, match="'mine' has 1 probabilities for the 2"):
        evaluate_step_scores(rows, [said("a", [0.5, 0.5])], [["bad", "good"]], {"mine": [[0.1]]})


def many(questions: int = 30, seed: int = 0) -> tuple[list[Trajectory], list[Feedback], list[Any], list[list[float]]]:
    """Runs of four steps with a judge that knows (mean 0.3 of bad steps, 0.7 of good ones) and a scorer that does not."""
    rng = np.random.default_rng(seed)
    rows, feedback, verdicts, coin = [], [], [], []
    for i in range(questions):
        bad = rng.random(4) < 0.4
        p = np.clip(np.where(bad, 0.3, 0.7) + rng.normal(0, 0.15, 4), 0, 1)
        rows.append(run(f"r{i}", f"q{i}", 1.0, steps=4))
        feedback.append(said(f"r{i}", p.tolist()))
        verdicts.append(["bad" if b else "good" for b in bad])
        coin.append(rng.random(4).tolist())
    return rows, feedback, verdicts, coin


def test_differences_are_paired_and_thresholds_are_each_scorers_own() -> None:
    rows, feedback, verdicts, coin = many()
    fitted = fit_step_threshold(rows, feedback, verdicts)
    thresholds = {"judge": fitted.value, "coin": 0.2}
    found = evaluate_step_scores(rows, feedback, verdicts, {"coin": coin}, thresholds=thresholds, resamples=500)
    assert found is not None
    assert found["thresholds"] == {"judge": fitted.value, "all_bad": 0.5, "coin": 0.2}
    assert found["metrics"]["judge"]["mcc"]["value"] == pytest.approx(fitted.mcc)
    assert found["metrics"]["judge"]["mcc_at_half"]["value"] <= fitted.mcc
    assert found["differences"]["coin"]["auroc"]["low"] > 0
    gap = found["metrics"]["judge"]["auroc"]["value"] - found["metrics"]["coin"]["auroc"]["value"]
    assert found["differences"]["coin"]["auroc"]["value"] == pytest.approx(gap)
    same = evaluate_step_scores(rows, feedback, verdicts, {"coin": coin}, thresholds=thresholds, resamples=500)
    assert same == found


def test_the_report_of_feedback_holds_them() -> None:
    rows, feedback, verdicts, coin = many(12)
    report = evaluate_feedback(rows, feedback, step_labels=verdicts, step_scores={"coin": coin}, resamples=20)
    assert report["step_scores"]["steps"] == 48
    measured = report["step_scores"]["metrics"]["judge"]
    p = A([f.p_good for r in feedback for f in r.findings])
    bad, runs, one = A(verdicts).ravel() == "bad", np.repeat(np.arange(12), 4), np.zeros(48, dtype=np.int64)
    wanted = {
        "auroc": Auroc(p, (~bad).astype(float), one),
        "average_precision": AveragePrecision(p, bad, one),
        "mcc": OfConfusion("mcc", confusion(p < 0.5, bad, one, 1)),
        **first_errors(p, bad, runs, one, 1, 0.5),
    }
    assert {name: point(statistic, 1) for name, statistic in wanted.items()} == {
        name: measured[name]["value"] for name in measured if name != "mcc_at_half"
    }


# ---- baselines of steps ----------------------------------------------------------------------------------------------


def test_position_is_the_share_at_the_place_shrunk_to_wider_ones() -> None:
    rows = [run("a", "q", 1.0, steps=1), run("b", "q", 1.0, steps=2), run("c", "r", 1.0, steps=2)]
    score = fit_step_position(rows, [labels("g"), labels("gb"), labels("b.")])
    mean = 2 / 4
    first = (2 + 5 * mean) / (3 + 5)  # steps 1: good, good, bad
    second = (0 + 5 * mean) / (1 + 5)
    assert score([run("x", "s", None, steps=2)]) == [
        [pytest.approx((1 + 5 * first) / (2 + 5)), pytest.approx((0 + 5 * second) / (1 + 5))]
    ]
    assert score([run("x", "s", None, steps=3)])[0][2] == pytest.approx(mean)  # a place never seen
    with pytest.raises(RRMError, match="no training step"):
        fit_step_position(rows, [None, None, None])


def test_words_of_a_step_are_those_up_to_and_with_what_came_back() -> None:
    row = run("a", "q", 1.0, steps=2, say="go", task="what?")
    assert prefix_text(row, 1) == "user: what?\nassistant: go\ntool: 0"
    assert prefix_text(row, 2) == "user: what?\nassistant: go\ntool: 0\nassistant: go\ntool: 1"


def talk(id: str, question: str, words: Sequence[str]) -> Trajectory:
    turns = [Message(role="assistant", content=w) for w in words]
    return Trajectory(id=id, task="t", question_id=question, messages=[Message(role="user", content="t"), *turns])


def test_tfidf_of_steps_learns_a_word_that_tells_and_sees_no_later_step() -> None:
    rows = [talk(f"r{i}", f"q{i % 10}", ["search more", "crash now" if i % 2 else "search more"]) for i in range(40)]
    verdicts = [labels("gb") if i % 2 else labels("gg") for i in range(40)]
    score = fit_step_tfidf(rows, verdicts)
    (fine, crashed), (_, well) = score(
        [talk("x", "s", ["search more", "crash now"]), talk("y", "s", ["a", "search more"])]
    )
    assert crashed < 0.5 < min(fine, well)
    assert fine == score([talk("z", "s", ["search more"])])[0][0]
    assert score([]) == []
    assert fit_step_tfidf(rows, verdicts, most_steps=30, seed=1)(rows[:2]) != score(rows[:2])
    with pytest.raises(RRMError, match="one class"):
        fit_step_tfidf(rows, [labels("gg")] * 40)


def test_rules_are_a_half_where_they_say_nothing() -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"name": "search", "arguments": {"q": "x"}}]}
    turns = [{"role": "user", "content": "t"}, call, {"role": "tool", "content": "error: no such index"}]
    row = Trajectory.model_validate({"id": "a", "task": "t", "messages": [*turns, *turns[1:], *turns[1:]]})
    scores = rules_step_scores([row])[0]
    assert len(scores) == 3
    assert scores[0] == 0.5
    assert scores[1:] == [0.0, 0.0]


def test_step_baselines_learn_from_the_training_rows_or_from_other_folds() -> None:
    rows = [talk(f"r{i}", f"q{i % 10}", ["search more", "crash now" if i % 2 else "well done"]) for i in range(40)]
    verdicts: list[Any] = [labels("gb") if i % 2 else labels("gg") for i in range(40)]
    verdicts[3] = None
    scores, left_out = step_scores_of(rows, verdicts, seed=0)
    assert set(scores) == {"rules", "position", "tfidf"} and left_out == {}
    assert [len(row) for row in scores["tfidf"]] == [2, 2, 2, 0] + [2] * 36
    train = [talk("t", "other", ["a b", "c d"])]
    scores, left_out = step_scores_of(rows, verdicts, train, [labels("gg")])
    assert set(left_out) == {"tfidf"}  # one class in the training rows
    assert scores["position"][0] == pytest.approx([1.0, 1.0])
