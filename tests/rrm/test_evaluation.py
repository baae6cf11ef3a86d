"""Evaluating a judge end to end: what enters which number, the baselines, and `rrm eval`."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from openai_server import completion, serve
from typer.testing import CliRunner

from rrm.annotation import Annotation, Finding
from rrm.baselines import (
    BaselineError,
    fit_agent,
    fit_tfidf,
    grouped_folds,
    length_scores,
    out_of_fold,
    position_verdicts,
)
from rrm.cli import eval_cmd
from rrm.evaluation import FAILURES_HALF, HEADLINE, NO_LEAK, EvaluationError, evaluate_feedback
from rrm.feedback import Feedback, JudgeInfo, Status
from rrm.judge_files import JudgeSettings
from rrm.reliability_plot import plot_reliability
from rrm.train.finish import write_card
from rrm.trajectory import Message, Trajectory, write_jsonl

FEW = 300
"""Resamples where the interval itself is not what is tested."""


def run(
    id: str,
    question: str | None,
    outcome: float | None,
    *,
    steps: int = 1,
    say: str = "hm",
    task: str = "q",
    **meta: Any,
) -> Trajectory:
    turns = [
        m for k in range(steps) for m in (Message(role="assistant", content=say), Message(role="tool", content=str(k)))
    ]
    messages = [Message(role="user", content=task), *turns]
    return Trajectory(id=id, task=task, question_id=question, messages=messages, outcome=outcome, meta=meta)


def judged(
    id: str,
    score: float | None,
    *,
    status: Status = "scored",
    raw: float | None = None,
    mode: Any = "full",
    **parts: Any,
) -> Feedback:
    info = JudgeInfo(model="m", prompt_version="1", mode=mode)
    return Feedback(id=id, status=status, score=score, raw_score=score if raw is None else raw, judge=info, **parts)


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
    with pytest.raises(EvaluationError, match=message):
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
    with pytest.raises(BaselineError, match="one class only"):
        fit_tfidf(rows, np.ones(20))


def test_agent_baseline_is_the_training_rate_and_the_mean_for_strangers():
    rows = [run("1", "a", 1.0, agent="x"), run("2", "a", 0.0, agent="x"), run("3", "b", 1.0, agent="y")]
    score = fit_agent(rows, np.array([1.0, 0.0, 1.0]))
    found = score([run("4", "c", None, agent="x"), run("5", "c", None, agent="y"), run("6", "c", None, agent="z")])
    assert found.tolist() == pytest.approx([0.5, 1.0, 2 / 3])
    with pytest.raises(BaselineError, match="no training row"):
        fit_agent(four(), np.zeros(4))


def test_folds_keep_questions_whole_and_rows_out_of_their_own_training():
    groups = [f"q{i % 7}" for i in range(70)]
    folds = grouped_folds(groups, 5, seed=0)
    assert all(len({f for g, f in zip(groups, folds, strict=True) if g == name}) == 1 for name in set(groups))
    assert set(folds.tolist()) == set(range(5))
    with pytest.raises(BaselineError, match="5 folds need at least 5 questions, there are 2"):
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


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """48 canonical rows over 12 questions with agents, critiques on each step, feedback that is right 3 times in 4."""
    rng = np.random.default_rng(5)
    rows = []
    feedback = []
    for i in range(48):
        y = float(i % 2)
        critiques = [{"after_message": 1, "good": bool(y)}, {"after_message": 3, "good": False}]
        words = "done nicely" if rng.random() < 0.5 + 0.3 * y else "stuck again"
        rows.append(run(f"r{i}", f"q{i // 4}", y, steps=2, say=words, agent=f"agent{i % 3}", critiques=critiques))
        score = float(np.clip(y if rng.random() < 0.75 else 1 - y, 0.1, 0.9))
        found = [Finding(step=1, verdict="good" if score > 0.5 else "bad"), Finding(step=2, verdict="bad")]
        feedback.append(judged(f"r{i}", score, trace="t", critique="[step 1] …", findings=found))
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "scored.jsonl").write_text("".join(f.model_dump_json() + "\n" for f in feedback))
    (tmp_path / "split.json").write_text(
        json.dumps({"train": [f"q{i}" for i in range(8)], "test": [f"q{i}" for i in range(8, 12)]})
    )
    return tmp_path


def invoke(*args: str | Path):
    app = typer.Typer()
    app.command()(eval_cmd.command)
    return CliRunner().invoke(app, [str(a) for a in args])


def test_eval_writes_metrics_plot_table_and_one_json_line(labelled: Path):
    done = invoke(
        labelled / "rows.jsonl", "--feedback", labelled / "scored.jsonl", "-o", labelled / "m.json",
        "--plot", labelled / "r.png", "--resamples", "300",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout.strip().splitlines()[-1])
    report = json.loads((labelled / "m.json").read_text())
    assert line[HEADLINE] == report["metrics"]["judge"][HEADLINE]["value"] > 0.5
    assert set(report["metrics"]) == {"judge", "length", "tfidf", "agent"}
    assert set(report["steps"]["metrics"]) == {"judge", "all_bad", "position_only", "shuffled"}
    assert report["baselines_left_out"] == {}
    assert (labelled / "r.png").read_bytes().startswith(b"\x89PNG")
    for word in (HEADLINE, "tfidf", "position_only", "mcc"):
        assert word in done.stderr


def test_eval_of_a_split_trains_baselines_on_its_training_part_alone(labelled: Path):
    done = invoke(
        labelled / "rows.jsonl", "--feedback", labelled / "scored.jsonl", "-o", labelled / "m.json",
        "--split", labelled / "split.json", "--resamples", "300",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads((labelled / "m.json").read_text())
    assert (report["rows"], report["questions"], report["unmatched_feedback"]) == (16, 4, 32)
    assert set(report["metrics"]) == {"judge", "length", "tfidf", "agent"}
    assert "position_only" in report["steps"]["metrics"]


def test_eval_refuses_a_leaking_or_unknown_split(labelled: Path):
    scored = ("--feedback", labelled / "scored.jsonl", "-o", labelled / "m.json")
    unknown = invoke(labelled / "rows.jsonl", *scored, "--split", labelled / "split.json", "--part", "dev")
    assert "no list of question ids under 'dev'; there are: train, test" in str(unknown.exception)
    (labelled / "leaky.json").write_text(json.dumps({"train": ["q1", "q2"], "test": ["q2"]}))
    leaky = invoke(labelled / "rows.jsonl", *scored, "--split", labelled / "leaky.json")
    assert "1 questions are in 'test' and in 'train', e.g. 'q2'" in str(leaky.exception)


def test_eval_names_the_line_of_a_bad_feedback_row(labelled: Path):
    (labelled / "bad.jsonl").write_text('{"id": "r0"}\n')
    done = invoke(labelled / "rows.jsonl", "--feedback", labelled / "bad.jsonl", "-o", labelled / "m.json")
    assert "bad.jsonl:1: not a row of `rrm score`" in str(done.exception)


def test_eval_exits_1_when_rows_failed_and_takes_annotations(labelled: Path):
    lines = (labelled / "scored.jsonl").read_text().splitlines()
    failed = judged("r0", None, status="judge_error", reason="timeout")
    (labelled / "some.jsonl").write_text("\n".join([*lines[1:], failed.model_dump_json()]) + "\n")
    annotation = Annotation(
        trajectory_id="r1",
        findings=[Finding(step=1, verdict="good"), Finding(step=2, verdict="good")],
        annotator="x",
        kind="human",
    )
    (labelled / "notes.jsonl").write_text(annotation.model_dump_json() + "\n")
    done = invoke(
        labelled / "rows.jsonl", "--feedback", labelled / "some.jsonl", "-o", labelled / "m.json",
        "--annotations", labelled / "notes.jsonl", "--resamples", "300",
    )  # fmt: skip
    assert done.exit_code == 1
    report = json.loads((labelled / "m.json").read_text())
    assert report["status"] == {"judge_error": 1, "scored": 47}
    # 72 of 96 steps are bad; without r0 (2 bad) 70 of 94, and the annotation makes r1's second step good
    assert report["steps"]["bad_share"] == pytest.approx(69 / 94)


def test_eval_judges_with_a_model_and_again_for_the_variance(labelled: Path):
    def answer(n: int, body: dict[str, Any]):
        asked = json.dumps(body, sort_keys=True)
        if "stuck again" not in asked:
            return completion("<score>0.9</score>")
        drawn = zlib.crc32(asked.encode())  # by what is asked and its seed: requests arrive in any order
        return completion("<score>seven</score>" if drawn % 5 == 0 else f"<score>{0.1 + 0.2 * (drawn % 2)}</score>")

    with serve(answer) as server:
        done = invoke(
            labelled / "rows.jsonl", "--model", f"openai:{server.url}#m", "-o", labelled / "m.json",
            "--split", labelled / "split.json", "--reruns", "2", "--resamples", "300",
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads((labelled / "m.json").read_text())
    assert report["judge"]["mode"] == "score"
    assert sum(report["status"].values()) == report["rows"] == 16
    assert report["reruns"]["runs"] == 3
    assert report["reruns"]["max_range"] == pytest.approx(0.2)
    assert report["metrics"]["judge"][HEADLINE]["value"] is not None


def test_eval_wants_one_source_of_judgements(labelled: Path):
    done = invoke(
        labelled / "rows.jsonl", "--feedback", labelled / "scored.jsonl", "--model", "x", "-o", labelled / "m.json"
    )
    assert "--feedback brings its own judgements" in str(done.exception)


def test_baselines_do_not_learn_from_agents_held_out_of_training(labelled: Path):
    split = json.loads((labelled / "split.json").read_text())
    (labelled / "s.json").write_text(json.dumps(split | {"held_out_agents": ["agent0", "agent2"]}))
    rows = [run(f"{q}{a}", f"q{q}", 1.0, agent=f"agent{a}") for q in range(12) for a in range(3)]
    test, train = eval_cmd.split_rows(rows, labelled / "s.json", "test", "train")
    assert (len(test), {t.meta["agent"] for t in train or []}) == (12, {"agent1"})


def test_mint_baselines_come_out_as_published_in_the_docs(shared_data: Path):
    from benchmarks.baselines_mint import RESULT, rows
    from rrm.baselines import question_key
    from rrm.metrics.pairs import codes, pair_parts

    trajectories = list(rows(shared_data / "transcripts" / "mint", critic=False))
    labels = np.array([t.outcome for t in trajectories], dtype=float)
    questions, n = codes([question_key(t) for t in trajectories])
    turns = np.array([len(t.steps) for t in trajectories])
    assert (len(trajectories), n) == (6137, 171)
    published = json.loads(RESULT.read_text())
    for name, scores in {
        "length": length_scores(trajectories),
        "agent": out_of_fold(fit_agent, trajectories, labels),
    }.items():
        parts = pair_parts(scores, labels, questions, n, turns)
        assert parts.denominator.sum() == 8801
        assert parts.value == pytest.approx(published["baselines"][name]["pair_accuracy_same_turns"]["value"])


def test_a_model_card_says_nothing_where_nothing_could_be_measured(tmp_path) -> None:
    """Sixty transcripts may hold no pair of one question and length: such a metric is null, and no reason to stop."""
    metric = {"auroc": {"value": 0.905, "low": 0.8, "high": 0.98}, "pairs": {"value": None, "low": None, "high": None}}
    card = {"full": {"rows": 60, "metrics": {"judge": metric}}, "trained_on": {"seed": 0}}
    write_card(tmp_path, JudgeSettings(name="lab"), card)
    rows = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| full")]
    assert rows == ["| full | 60 | auroc | 0.905 | 0.800 – 0.980 |", "| full | 60 | pairs | – | – – – |"]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == card


def test_eval_never_writes_over_what_it_reads(labelled: Path):
    rows, scored, split = labelled / "rows.jsonl", labelled / "scored.jsonl", labelled / "split.json"
    before = {path: path.read_bytes() for path in (rows, scored, split)}
    for extra in (["-o", rows], ["-o", scored], ["-o", split], ["-o", labelled / "m.json", "--plot", scored]):
        done = invoke(rows, "--feedback", scored, "--split", split, "--resamples", "300", *extra)
        assert done.exit_code != 0 and "choose another place" in str(done.exception)
    assert before == {path: path.read_bytes() for path in before}
    done = invoke(rows, "--feedback", scored, "-o", labelled / "new" / "m.json", "--resamples", "300")
    assert done.exit_code == 0 and (labelled / "new" / "m.json").is_file()


def test_logs_without_outcomes_are_measured_against_their_annotations() -> None:
    from rrm.annotation import Annotation
    from rrm.train.finish import label_of

    known, unknown = run("a", "q", 1.0), run("b", "q", None)
    labels = {n: Annotation(trajectory_id=n, annotator="r", kind="rules", score=0.25) for n in ("a", "b")}
    assert label_of(known, labels) == 1.0 and label_of(unknown, labels) == 0.25 and label_of(unknown, {}) is None
