"""Evaluating a judge end to end: what enters which number, and the baselines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluated_rows import judged, run

from rrm.data.annotation import Finding
from rrm.data.questions import question_of
from rrm.data.splits import grouped_folds
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import RRMError
from rrm.evaluation.baselines import fit_agent, fit_tfidf, length_scores, out_of_fold, position_verdicts
from rrm.evaluation.evaluate import FAILURES_HALF, HEADLINE, NO_LEAK, evaluate_feedback
from rrm.evaluation.reliability_plot import plot_reliability
from rrm.judge.judge_dir import JudgeSettings
from rrm.train.export import write_card

FEW = 300
"""Resamples where the interval itself is not what is tested."""


def four() -> list[Trajectory]:
    """Two questions, a success and a failure each."""
    return [run("a1", "a", 1.0), run("a0", "a", 0.0), run("b1", "b", 1.0), run("b0", "b", 0.0)]


def test_metrics_are_over_scored_rows_and_every_status_is_counted():
    rows = [*four(), run("b2", "b", 0.0), run("c", "c", None)]
    feedback = [
        judged("a1", 0.9),
        judged("a0", 0.2),
        judged("b1", 0.1),
        judged("b0", 0.6),
        judged("b2", None, status="judge_error"),
        judged("elsewhere", 0.5),
    ]
    report = evaluate_feedback(rows, feedback, resamples=FEW)
    assert report["status"] == {"judge_error": 1, "missing": 1, "scored": 4}
    assert (report["rows"], report["labelled"], report["scored_labelled"], report["questions"]) == (6, 5, 4, 2)
    assert report["unmatched_feedback"] == 1
    judge = report["metrics"]["judge"]
    assert judge[HEADLINE]["value"] == 0.5  # won in a, lost in b
    assert judge[FAILURES_HALF]["value"] == 0.5  # (1 + 0 + ½) / 3
    assert report["pairs"] == {HEADLINE: 2, "pair_accuracy_same_question": 2, FAILURES_HALF: 3}
    assert judge["auroc"]["value"] == 0.5
    assert judge["brier"]["value"] == pytest.approx((0.01 + 0.04 + 0.81 + 0.36) / 4)
    json.dumps(report, allow_nan=False)


def test_a_judge_that_fails_on_everything_gets_no_number_but_a_coin_toss():
    report = evaluate_feedback(four(), [judged(t.id, None, status="unparsable") for t in four()], resamples=FEW)
    assert list(report["metrics"]["judge"]) == [FAILURES_HALF]
    assert report["metrics"]["judge"][FAILURES_HALF]["value"] == 0.5
    assert report.headline.value is None
    assert report["reliability"] == {"raw": [], "calibrated": []}
    assert report["format_validity"] == 0.0


def test_ranking_uses_the_raw_score_and_brier_the_calibrated_one():
    rows = four()[:2]
    feedback = [judged("a1", 0.5, raw=0.8), judged("a0", 0.5, raw=0.3)]  # a plateau of the calibration
    judge = evaluate_feedback(rows, feedback, resamples=FEW)["metrics"]["judge"]
    assert judge[HEADLINE]["value"] == 1.0
    assert judge["brier"]["value"] == 0.25
    assert judge["brier_raw"]["value"] == pytest.approx((0.04 + 0.09) / 2)


def test_pairs_need_the_same_question_and_turns():
    rows = [run("1", "a", 1.0, steps=1), run("2", "a", 0.0, steps=2), run("3", "b", 0.0, steps=1)]
    report = evaluate_feedback(rows, [judged(t.id, 0.5) for t in rows], resamples=FEW)
    assert report["pairs"] == {HEADLINE: 0, "pair_accuracy_same_question": 1, FAILURES_HALF: 0}
    assert report["metrics"]["judge"][HEADLINE] == {"value": None, "low": None, "high": None}


def test_rows_without_a_question_id_are_grouped_by_their_task():
    rows = [run("1", None, 1.0, task="x"), run("2", None, 0.0, task="x"), run("3", None, 0.0, task="y")]
    report = evaluate_feedback(rows, [judged("1", 0.9), judged("2", 0.1), judged("3", 1.0)], resamples=FEW)
    assert (report["questions"], report["pairs"][HEADLINE]) == (2, 1)


def test_baselines_are_compared_on_the_same_pairs_and_draws():
    rng = np.random.default_rng(0)
    rows = [run(f"{q}-{i}", f"q{q}", float(i % 2)) for q in range(40) for i in range(4)]
    feedback = [judged(t.id, float(np.clip(0.3 + 0.4 * (t.outcome or 0) + rng.normal(0, 0.1), 0, 1))) for t in rows]
    own = [f.raw_score or 0.0 for f in feedback]
    report = evaluate_feedback(rows, feedback, baselines={"same": own, "coin": rng.random(160)}, resamples=1000)
    assert report["differences"]["same"][HEADLINE] == {"value": 0.0, "low": 0.0, "high": 0.0, "share_above_zero": 0.5}
    gap = report["differences"]["coin"][HEADLINE]
    assert 0 < gap["low"] < gap["value"] < gap["high"]
    assert "brier" in report["metrics"]["coin"]


def test_scores_that_are_no_probabilities_have_no_brier():
    report = evaluate_feedback(
        four(), [judged(t.id, 0.5) for t in four()], baselines={"length": [-9.0] * 4}, resamples=FEW
    )
    assert set(report["metrics"]["length"]) == {
        HEADLINE,
        "pair_accuracy_same_question",
        "auroc",
        "best_of_n_gain",
        FAILURES_HALF,
    }


def test_transcripts_that_reveal_the_verdict_are_counted_and_left_out_beside():
    rows = four()
    rows[2] = run("b1", "b", 1.0, outcome_leaks=[2])
    report = evaluate_feedback(
        rows,
        [judged("a1", 0.1), *(judged(t.id, s) for t, s in zip(rows[1:], (0.9, 0.9, 0.1), strict=True))],
        resamples=FEW,
    )
    assert report["outcome_leak_rows"] == 1
    assert report["metrics"]["judge"][HEADLINE]["value"] == 0.5
    assert report["metrics"]["judge"][NO_LEAK]["value"] == 0.0
    assert report["pairs"][NO_LEAK] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feedback": [judged("a1", 0.5), judged("a1", 0.6)]}, "1 ids occur more than once in the feedback"),
        ({"feedback": [judged("zz", 0.5)]}, "none of 4 trajectories has feedback"),
        ({"labels": [1.0]}, "1 labels for 4 trajectories"),
        ({"labels": [1.0, 2.0, 0.0, 0.0]}, r"must lie in \[0, 1\], got 2.0"),
        ({"baselines": {"b": [1.0]}}, "baseline 'b' has scores"),
        ({"baselines": {"b": [1.0, np.nan, 1.0, 1.0]}}, "baseline 'b' has no score for some labelled rows"),
    ],
)
def test_rows_that_do_not_fit_together_are_an_error(change, message):
    given = {"feedback": [judged(t.id, 0.5) for t in four()], **change}
    with pytest.raises(RRMError, match=message):
        evaluate_feedback(four(), **given)


def test_steps_beside_all_bad_position_and_shuffled_findings():
    rng = np.random.default_rng(3)
    rows, feedback, labels = [], [], []
    for i in range(60):
        bad = [bool(b) for b in rng.random(4) < 0.7]
        rows.append(run(f"r{i}", f"q{i % 12}", None, steps=4))
        labels.append(["bad" if b else "good" for b in bad])
        feedback.append(judged(f"r{i}", 0.5, findings=[Finding(step=k + 1, verdict="bad") for k in range(4) if bad[k]]))
    always_bad = {"position_only": [["bad"] * 4] * 60}
    steps = evaluate_feedback(rows, feedback, step_labels=labels, step_baselines=always_bad, resamples=FEW)["steps"]
    assert (steps["rows"], steps["steps"], steps["questions"]) == (60, 240, 12)
    assert steps["metrics"]["judge"]["mcc"]["value"] == 1.0  # silence on the good steps is right
    assert steps["metrics"]["all_bad"]["mcc"]["value"] == 0.0
    assert steps["metrics"]["position_only"] == steps["metrics"]["all_bad"]
    assert abs(steps["metrics"]["shuffled"]["mcc"]["value"]) < 0.1
    assert steps["differences"]["shuffled"]["mcc"]["low"] > 0.8
    assert steps["spoken_share"] == pytest.approx(steps["bad_share"])


def test_findings_without_a_clear_verdict_count_as_silence_and_are_counted():
    rows = four()
    silent = [judged(t.id, 0.5, findings=[]) for t in rows]
    unclear = [judged(t.id, 0.5, findings=[Finding(step=1, verdict="unclear")]) for t in rows]
    with_none, with_unclear = (
        evaluate_feedback(rows, said, step_labels=[["bad"], ["good"], ["bad"], ["good"]], resamples=FEW)["steps"]
        for said in (silent, unclear)
    )
    assert (with_none.pop("unclear"), with_unclear.pop("unclear")) == (0, 4)
    assert with_unclear == with_none and with_none["spoken_share"] == 0.0


def test_steps_are_silent_where_the_mode_writes_no_findings():
    rows = four()
    labels = [["bad"]] * 4
    score_only = [judged(t.id, 0.5, mode="score") for t in rows]
    assert evaluate_feedback(rows, score_only, step_labels=labels, resamples=FEW)["steps"] is None
    with pytest.raises(ValueError, match="'a1' has 1 steps and 2 step labels"):
        evaluate_feedback(rows, [judged(t.id, 0.5) for t in rows], step_labels=[["bad", "bad"]] * 4, resamples=FEW)


def test_text_and_rerun_measures_reach_the_report():
    rows = [run("1", "a", 1.0, say="short", reference="Paris"), run("2", "a", 0.0, say="long " * 9, reference="Paris")]
    first = [judged("1", 0.9, trace="It is Paris", critique="c"), judged("2", 0.1, trace="t", critique="c")]
    again = [judged("1", 0.7), judged("2", 0.1)]
    report = evaluate_feedback(rows, first, reruns=[again], resamples=FEW)
    assert report["answer_leak"]["rate"] == 0.5
    assert report["format_validity"] == 1.0
    assert report["length"]["spearman_characters"] == pytest.approx(-1.0)
    assert report["reruns"]["variance"] == pytest.approx((0.02 + 0.0) / 2)
    assert report["reruns"]["runs"] == 2


def test_length_baseline_prefers_the_shorter_and_counts_tool_calls():
    call = Message(role="assistant", tool_calls=[{"name": "search", "arguments": {"q": "x" * 50}}])  # pyright: ignore
    with_call = Trajectory(id="1", messages=[call])
    plain = Trajectory(id="2", messages=[Message(role="assistant", content="x" * 20)])
    scores = length_scores([with_call, plain])
    assert scores[1] == -20
    assert scores[0] < scores[1]


def test_tfidf_baseline_learns_a_word_that_tells():
    rows = [run(f"{i}", f"q{i}", float(i % 2), say="done nicely" if i % 2 else "stuck again") for i in range(20)]
    score = fit_tfidf(rows, np.array([t.outcome for t in rows], dtype=float))
    fresh = score([run("x", "z", None, say="nicely"), run("y", "z", None, say="stuck")])
    assert 0 <= fresh[1] < 0.5 < fresh[0] <= 1
    with pytest.raises(RRMError, match="one class only"):
        fit_tfidf(rows, np.ones(20))


def test_agent_baseline_is_the_training_rate_and_the_mean_for_strangers():
    rows = [run("1", "a", 1.0, agent="x"), run("2", "a", 0.0, agent="x"), run("3", "b", 1.0, agent="y")]
    score = fit_agent(rows, np.array([1.0, 0.0, 1.0]))
    found = score([run("4", "c", None, agent="x"), run("5", "c", None, agent="y"), run("6", "c", None, agent="z")])
    assert found.tolist() == pytest.approx([0.5, 1.0, 2 / 3])
    with pytest.raises(RRMError, match="no training row"):
        fit_agent(four(), np.zeros(4))


def test_folds_keep_questions_whole_and_rows_out_of_their_own_training():
    groups = [f"q{i % 7}" for i in range(70)]
    folds = grouped_folds(groups, 5, seed=0)
    assert all(len({f for g, f in zip(groups, folds, strict=True) if g == name}) == 1 for name in set(groups))
    assert set(folds.tolist()) == set(range(5))
    with pytest.raises(RRMError, match="5 folds need at least 5 questions, there are 2"):
        grouped_folds(["a", "b"], 5, 0)
    rows = [run(str(i), f"q{i}", float(i == 3), agent="only") for i in range(10)]
    scores = out_of_fold(fit_agent, rows, np.array([t.outcome for t in rows], dtype=float))
    fold = grouped_folds([f"q{i}" for i in range(10)], 5, 0)
    assert scores.tolist() == pytest.approx([0.0 if f == fold[3] else 1 / 8 for f in fold])


def test_position_verdicts_are_majorities():
    predict = position_verdicts([["bad", "good"], ["bad", "good"], ["good", None], None])
    assert predict(3) == ["bad", "good", "good"]  # position 3 was never seen: of all labels 3 are good, 2 bad
    assert position_verdicts([["bad", "good"]])(3) == ["bad", "good", "bad"]  # a tie is bad


def test_reliability_plot_is_a_png(tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = [run(str(i), f"q{i % 9}", float(rng.random() < 0.5)) for i in range(90)]
    feedback = [judged(t.id, float(rng.random())) for t in rows]
    report = evaluate_feedback(rows, feedback, resamples=FEW)
    plot_reliability(report["reliability"], tmp_path / "r.png", title="judge")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    plot_reliability({"raw": []}, tmp_path / "empty.png")


def test_mint_baselines_come_out_as_published_in_the_docs(shared_data: Path):
    from benchmarks.mint import rows
    from benchmarks.record import RESULTS
    from rrm.evaluation.metrics.pairs import codes, pair_parts

    trajectories = list(rows(shared_data / "transcripts" / "mint", critic=False))
    labels = np.array([t.outcome for t in trajectories], dtype=float)
    questions, n = codes([question_of(t) for t in trajectories])
    turns = np.array([len(t.steps) for t in trajectories])
    assert (len(trajectories), n) == (6137, 171)
    published = json.loads((RESULTS / "baselines_mint.json").read_text())
    for name, scores in {
        "length": length_scores(trajectories),
        "agent": out_of_fold(fit_agent, trajectories, labels),
    }.items():
        parts = pair_parts(scores, labels, questions, n, turns)
        assert parts.denominator.sum() == 8801
        assert parts.value == pytest.approx(published["baselines"][name]["pair_accuracy_same_turns"]["value"])


def test_a_model_card_says_nothing_where_nothing_could_be_measured(tmp_path) -> None:
    """Sixty transcripts may hold no pair of one question and length: such a metric has no line, and is no reason to stop."""
    metric = {"auroc": {"value": 0.905, "low": 0.8, "high": 0.98}, "pairs": {"value": None, "low": None, "high": None}}
    card = {"full": {"rows": 60, "metrics": {"judge": metric}}, "trained_on": {"seed": 0}}
    write_card(tmp_path, JudgeSettings(name="lab"), card)
    rows = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| full")]
    assert rows == ["| full | 60 | auroc | 0.905 | 0.800 – 0.980 |"]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == card
