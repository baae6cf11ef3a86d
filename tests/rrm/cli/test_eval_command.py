"""`rrm eval`: what it reads, writes and refuses."""

from __future__ import annotations

import contextlib
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from evaluated_rows import judged, run
from openai_server import completion, serve
from typer.testing import CliRunner

from rrm.cli import eval_cmd
from rrm.cli.eval_tables import metrics_table
from rrm.cli.tables import print_table
from rrm.config import TrainConfig
from rrm.data.annotation import Annotation, Finding
from rrm.data.trajectory import write_jsonl
from rrm.engines.openai import OpenAIEngine
from rrm.errors import RRMError
from rrm.evaluation.evaluate import HEADLINE, EvaluationReport
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.card import interval_text
from rrm.readers import read
from rrm.scoring.run import score_file
from rrm.train.prepare import data_digest, load_data, merged_by_id


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


def measure(labelled: Path, *options: str | Path):
    """The command on the labelled rows and their feedback, which must succeed and writes m.json."""
    given = [labelled / "rows.jsonl", "--feedback", labelled / "scored.jsonl", "-o", labelled / "m.json"]
    done = invoke(*given, *options, "--resamples", "300")
    assert done.exit_code == 0, done.output
    return done


def test_eval_writes_metrics_plot_table_and_one_json_line(labelled: Path):
    done = measure(labelled, "--plot", labelled / "r.png")
    line = json.loads(done.stdout.strip().splitlines()[-1])
    report = json.loads((labelled / "m.json").read_text())
    assert line[HEADLINE] == report["metrics"]["judge"][HEADLINE]["value"] > 0.5
    assert set(report["metrics"]) == {"judge", "length", "tfidf", "agent"}
    assert set(report["steps"]["metrics"]) == {"judge", "all_bad", "position_only", "shuffled"}
    assert report["baselines_left_out"] == {}
    assert (labelled / "r.png").read_bytes().startswith(b"\x89PNG")
    for word in (HEADLINE, "tfidf", "position_only", "mcc"):
        assert word in done.stderr


def test_tables_are_cut_nowhere(labelled: Path, monkeypatch: pytest.MonkeyPatch):
    """Figures ended in … where standard error was a file: it was taken for 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    done = measure(labelled)
    metrics = json.loads((labelled / "m.json").read_text())["metrics"]
    lines = [line for line in done.stderr.splitlines() if line.startswith("│ ")]
    assert "…" not in done.stderr and max(map(len, lines)) > 80
    (line,) = (line for line in lines if "│ auroc " in line)
    for scorer in ("judge", "length", "tfidf", "agent"):
        assert interval_text(metrics[scorer]["auroc"]) in line

    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal of 60 columns: folded
    monkeypatch.setenv("COLUMNS", "60")
    report = EvaluationReport(json.loads((labelled / "m.json").read_text()))
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        print_table(metrics_table("score", report), stderr=True)
    folded = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.getvalue().splitlines()]
    assert max(map(len, folded)) == 60 and "…" not in shown.getvalue()


def test_eval_says_why_there_is_nothing_to_evaluate(labelled: Path):
    empty = labelled / "empty.jsonl"
    empty.write_text("")
    scored, out = labelled / "scored.jsonl", labelled / "m.json"
    for inputs, options, why in (
        (empty, [], r"no transcript could be read; .*m\.errors\.jsonl"),
        (labelled / "rows.jsonl", ["--split", labelled / "other.json"], r"none of 48 .* part 'test' of .*other\.json"),
    ):
        (labelled / "other.json").write_text(json.dumps({"train": ["q1"], "test": ["elsewhere"]}))
        refused = invoke(inputs, "--feedback", scored, "-o", out, *options).exception
        assert re.search(why, str(refused)), refused


def test_eval_measures_the_probabilities_of_steps_where_findings_carry_them(
    labelled: Path, caplog: pytest.LogCaptureFixture
):
    assert json.loads(measure(labelled).stdout.strip().splitlines()[-1])["step_auroc"] is None
    scored = labelled / "scored.jsonl"
    rows = [json.loads(line) for line in scored.read_text().splitlines()]
    for row in rows:
        row["findings"][0]["p_good"], row["findings"][1]["p_good"] = row["score"], row["score"] / 4
        row["judge"]["threshold"] = 0.1
    scored.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = measure(labelled)
    line, report = json.loads(done.stdout.strip().splitlines()[-1]), json.loads((labelled / "m.json").read_text())
    assert set(report["step_scores"]["metrics"]) == {"judge", "all_bad", "rules", "position", "tfidf"}
    assert line["step_auroc"] == report["step_scores"]["metrics"]["judge"]["auroc"]["value"] > 0.7
    assert "average_precision" in done.stderr
    assert set(report["step_scores"]["thresholds"].items()) >= {("judge", 0.1), ("tfidf", 0.5)}
    measure(labelled, "--split", labelled / "split.json")
    report = json.loads((labelled / "m.json").read_text())
    assert report["step_scores"]["rows"] == 16
    assert "tfidf" in report["step_scores"]["metrics"]
    cuts = report["step_scores"]["thresholds"]
    assert cuts["judge"] == 0.1 and cuts["all_bad"] == 0.5 and cuts["tfidf"] != 0.5, "learned from the training part"
    scored.write_text(scored.read_text().replace('"threshold": 0.1', '"threshold": 0.2', 1))
    measure(labelled)
    assert "several thresholds (0.1, 0.2)" in caplog.text
    report = json.loads((labelled / "m.json").read_text())
    assert report["step_scores"]["thresholds"]["judge"] == 0.5


def test_eval_of_a_split_trains_baselines_on_its_training_part_alone(labelled: Path):
    measure(labelled, "--split", labelled / "split.json")
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
    assert "question 'q2' is in test and in train" in str(leaky.exception)


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


def test_eval_never_writes_over_what_it_reads(labelled: Path):
    rows, scored, split = labelled / "rows.jsonl", labelled / "scored.jsonl", labelled / "split.json"
    before = {path: path.read_bytes() for path in (rows, scored, split)}
    for extra in (["-o", rows], ["-o", scored], ["-o", split], ["-o", labelled / "m.json", "--plot", scored]):
        done = invoke(rows, "--feedback", scored, "--split", split, "--resamples", "300", *extra)
        assert done.exit_code != 0 and "choose another place" in str(done.exception)
    assert before == {path: path.read_bytes() for path in before}
    done = invoke(rows, "--feedback", scored, "-o", labelled / "new" / "m.json", "--resamples", "300")
    assert done.exit_code == 0 and (labelled / "new" / "m.json").is_file()


def test_a_lone_surrogate_passes_through_score_eval_and_training_data(tmp_path: Path):
    """`rrm eval` refused the rows that `rrm score` had written of such an id, and `rrm train` ended in a traceback."""
    rows = [run(f"r{i}\ud83d", f"q{i // 2}\udfff", float(i % 2), say="cut \ud83d") for i in range(6)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"))
        score_file(judge, read(tmp_path / "rows.jsonl"), tmp_path / "scored.jsonl", mode="score")
    done = invoke(
        tmp_path / "rows.jsonl", "--feedback", tmp_path / "scored.jsonl", "-o", tmp_path / "m.json",
        "--resamples", "300",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "m.json").read_text())["status"] == {"scored": 6}
    config = TrainConfig.model_validate({"data": {"trajectories": [str(tmp_path / "rows.jsonl")]}})
    trajectories, raters = load_data(config)
    digest = data_digest(trajectories, merged_by_id(raters))
    assert digest["transcripts"] == 6
    assert digest != data_digest(rows[:5], {})


def test_eval_of_rows_without_labels_says_where_they_come_from_before_it_asks(tmp_path: Path):
    """It measured nothing and said that all was well."""
    rows = [run(f"r{i}", f"q{i // 2}", None, steps=2) for i in range(6)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    out = ["-o", tmp_path / "m.json", "--resamples", "300"]
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        model = ["--model", f"openai:{server.url}#m"]
        refused = invoke(tmp_path / "rows.jsonl", *model, *out)
        assert re.search(
            r"none of 6 transcripts has a label\. .*--outcome FIELD.*--annotations", str(refused.exception)
        )
        assert isinstance(refused.exception, RRMError) and server.requests == []
        assert not (tmp_path / "m.json").exists()

        note = Annotation(trajectory_id="r0", digest=rows[0].digest, critique="well said", annotator="a", kind="human")
        labels = tmp_path / "labels.jsonl"
        labels.write_text(note.model_dump_json() + "\n")
        refused = invoke(tmp_path / "rows.jsonl", *model, "--annotations", labels, *out)
        assert "labels.jsonl has none of them either" in str(refused.exception)

        labels.write_text(
            note.model_copy(update={"findings": [Finding(step=1, verdict="bad")]}).model_dump_json() + "\n"
        )
        assert invoke(tmp_path / "rows.jsonl", *model, "--annotations", labels, *out).exit_code == 0
        assert invoke(tmp_path / "rows.jsonl", *model, "--reruns", 1, *out).exit_code == 0
    assert json.loads((tmp_path / "m.json").read_text())["reruns"]["rows"] == 6


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([("a", 1.0, 1), ("b", 0.0, 1)], "each of 2 questions has one labelled attempt"),
        ([("a", 1.0, 1), ("a", 1.0, 1), ("b", 0.0, 1)], "in each of 1 questions with several attempts, all have the same label"),
        ([("a", 1.0, 1), ("a", 0.0, 2)], "have different numbers of agent turns; pair_accuracy_same_question compares these"),
        ([("a", 1.0, 1), ("a", 0.0, 1), ("a", 0.0, 2)], None),
    ],
)  # fmt: skip
def test_eval_says_why_there_are_no_pairs(tmp_path: Path, attempts: list[Any], said: str | None):
    """It said "set question_id" where ids were set."""
    rows = [run(f"r{i}", question, y, steps=steps) for i, (question, y, steps) in enumerate(attempts)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "scored.jsonl").write_text(
        "".join(judged(t.id, 0.1 * i).model_dump_json() + "\n" for i, t in enumerate(rows, 1))
    )
    done = invoke(tmp_path / "rows.jsonl", "--feedback", tmp_path / "scored.jsonl", "-o", tmp_path / "m.json")
    assert done.exit_code == 0, done.output
    shown = " ".join(done.stderr.split())
    assert (said in shown) if said else ("no pairs" not in shown)
