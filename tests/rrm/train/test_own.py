"""`rrm train --own`: of a judge that is calibrated and one that is trained further, the better on held-out questions is kept."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rrm.cli import train_cmd
from rrm.config import load_config
from rrm.data.annotation import Annotation
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.calibrate import CalibrationRows
from rrm.judge.judge_dir import CALIBRATION_SCORES, JudgeSettings
from rrm.train import own


def logs(folder: Path, n: int, field: str = "outcome", questions: int = 1000) -> Path:
    """n runs, of as many questions at most; every other one succeeds."""
    path = folder / "logs.jsonl"
    rows = [
        {
            "id": f"r{i}",
            "question_id": f"q{i % questions}",
            "messages": [
                {"role": "user", "content": f"task {i % questions}"},
                {"role": "assistant", "content": f"done {i % 2}"},
            ],
            field: i % 2,
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


class Judges:
    """Stands for judges, their training and calibration: `order` says how well each one's scores follow the labels."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **order: float) -> None:
        self.order, self.trained = order, []
        monkeypatch.setattr(own, "AgentRRM", SimpleNamespace(from_pretrained=self.load))
        monkeypatch.setattr(own, "train", self.train)
        monkeypatch.setattr(own, "calibrate_judge", self.calibrate)

    def load(self, name: str) -> Any:
        questions = self.trained if name.endswith("adapter/judge") else []
        return SimpleNamespace(settings=JudgeSettings(training_questions=questions))

    def train(self, config: Any) -> None:
        from rrm.data.questions import question_keys
        from rrm.readers import read

        self.trained = question_keys(list(read(config.data.trajectories))[:36])

    def calibrate(self, judge: Any, labelled: CalibrationRows, folder: Path, *, mode: str) -> None:
        apart = len({t.question_id for t in labelled.rows}) > 1
        if (order := self.order[folder.name]) < 0:
            raise RRMError("raw scores fall as labels rise")
        rng, rows, feedback = random.Random(0), [], []
        for t, y in zip(labelled.rows, labelled.labels, strict=True):
            raw = order * y + (1 - order) * rng.random()
            rows.append({"digest": t.digest, "raw_score": raw, "out_of_fold": raw if apart else None})
            judge_info = {"model": "m", "prompt_version": "2", "mode": mode}
            feedback.append(
                Feedback.model_validate(
                    {"id": t.id, "status": "scored", "score": raw, "raw_score": raw, "judge": judge_info}
                )
            )
        folder.mkdir(parents=True)
        (folder / CALIBRATION_SCORES).write_text("".join(json.dumps(row) + "\n" for row in rows))
        folder.with_name(f"{folder.name}.rows.jsonl").write_text("".join(f.model_dump_json() + "\n" for f in feedback))


def config(folder: Path, path: Path) -> Any:
    return load_config("default-small", [f"data.trajectories=[{path}]", f"output_dir={folder / 'own'}"])


@pytest.mark.parametrize(
    ("order", "taken", "reason"),
    [
        ({"calibrated": 0.3, "trained": 0.9}, "trained", "AUROC"),
        ({"calibrated": 0.9, "trained": 0.1}, "calibrated", "AUROC"),
        ({"calibrated": 0.2, "trained": 0.2}, "calibrated", "AUROC"),
        ({"calibrated": -1, "trained": 0.4}, "trained", "fall"),
        ({"calibrated": 0.4, "trained": -1}, "calibrated", "fall"),
    ],
)
def test_what_orders_held_out_runs_worse_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: dict[str, float], taken: str, reason: str
) -> None:
    """After thirty labels a run that deletes the failing test scored 0.987, the one that mends the code 0.139."""
    Judges(monkeypatch, **order)
    report, summary = own.train_own(config(tmp_path, logs(tmp_path, 60)))
    (other,) = {"calibrated", "trained"} - {taken}
    assert summary["taken"] == taken and reason in summary["not_taken"][other]
    assert summary["labelled"] == 60 and summary["held_out"] == summary["questions"] == 24
    assert {"tfidf", "length", taken} <= summary["metrics"].keys()
    assert report["metrics"]["judge"]["auroc"]["value"] == summary["metrics"][taken]["auroc"]
    assert (tmp_path / "own" / "judge" / CALIBRATION_SCORES).is_file() and (tmp_path / "own" / "metrics.json").is_file()
    with pytest.raises(ConfigError, match="there already"):
        own.train_own(config(tmp_path, logs(tmp_path, 60)))


def test_few_labels_calibrate_and_train_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges(monkeypatch, calibrated=0.5)
    _, summary = own.train_own(config(tmp_path, logs(tmp_path, 30)))
    assert summary["taken"] == "calibrated" and not judges.trained
    assert "training one takes 50" in summary["not_taken"]["trained"] and summary["held_out"] == 30


def test_labels_that_follow_no_score_make_no_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Judges(monkeypatch, calibrated=-1, trained=-1)
    with pytest.raises(RRMError, match=r"no judge: calibrated: raw scores fall.*; trained: raw scores fall"):
        own.train_own(config(tmp_path, logs(tmp_path, 60)))
    assert not (tmp_path / "own" / "judge").exists()


def test_another_judge_on_the_same_labels_stands_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges(monkeypatch, calibrated=0.2, trained=0.3, chat=0.8)
    path = logs(tmp_path, 60)
    rival(judges, tmp_path, path, "chat")
    _, summary = own.train_own(config(tmp_path, path), tmp_path / "chat")
    assert summary["metrics"]["against:chat"]["auroc"] > summary["metrics"]["trained"]["auroc"]


def rival(judges: Judges, folder: Path, path: Path, name: str) -> Path:
    """Calibrate a judge called `name` on all labelled runs."""
    rows = own.labelled_rows(list(own.load_data(config(folder, path))[0]), {}, JudgeSettings(), "steps")
    judges.calibrate(None, rows, folder / name, mode="full")
    return folder / name


@pytest.mark.parametrize("name", ["calibrated", "trained", "judge", "tfidf"])
def test_another_judge_never_takes_the_place_of_one_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    order = {"calibrated": 0.2, "trained": 0.3}
    judges = Judges(monkeypatch, **order, **{name: 0.8} if name not in order else {})
    path = logs(tmp_path, 60)
    other = rival(judges, tmp_path, path, name)
    _, alone = own.train_own(config(tmp_path / "alone", path))
    _, summary = own.train_own(config(tmp_path, path), other)
    assert summary["metrics"].keys() == alone["metrics"].keys() | {f"against:{name}"}
    assert {who: summary["metrics"][who] for who in alone["metrics"]} == alone["metrics"]


def test_another_judge_is_read_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges(monkeypatch, calibrated=0.3, trained=0.9, chat=0.8)
    path = logs(tmp_path, 60)
    chat = rival(judges, tmp_path, path, "chat")
    rows = (chat / CALIBRATION_SCORES).read_text().splitlines()
    with pytest.raises(RRMError, match=r"nowhere holds no calibration\.jsonl: name a directory"):
        own.train_own(config(tmp_path, path), tmp_path / "nowhere")
    for text, message in (
        ("[1]", r"calibration\.jsonl:1: not a row of `rrm calibrate`"),
        (
            '{"digest": "d", "raw_score": 1, "out_of_fold": 1}',
            r"against:chat: 0 of 60 labelled runs.*leave --against out",
        ),
        ("\n".join(rows[::2]), r"against:chat: 30 of 60 labelled runs have a score of each, 0 of them successes"),
    ):
        (chat / CALIBRATION_SCORES).write_text(text + "\n")
        with pytest.raises(RRMError, match=message):
            own.train_own(config(tmp_path, path), chat)
    assert not judges.trained


def test_another_judge_has_no_part_in_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges(monkeypatch, calibrated=0.3, trained=0.9, chat=0.8)
    path = logs(tmp_path, 120)
    chat = rival(judges, tmp_path, path, "chat")
    _, alone = own.train_own(config(tmp_path / "alone", path))
    digests = {t.digest: int(t.id[1:]) for t in own.load_data(config(tmp_path, path))[0]}
    rows = (chat / CALIBRATION_SCORES).read_text().splitlines()
    (chat / CALIBRATION_SCORES).write_text(
        "\n".join(row for row in rows if digests[json.loads(row)["digest"]] >= 70) + "\n"
    )
    report, summary = own.train_own(config(tmp_path, path), chat)
    assert summary["held_out"] < alone["held_out"] and summary["not_taken"] == alone["not_taken"]
    assert summary["taken"] == "trained" and report["note"] == own.CHOSEN


@pytest.mark.parametrize(("runs", "questions"), [(30, 1), (60, 1), (60, 2)])
def test_runs_of_few_questions_are_calibrated_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int, questions: int
) -> None:
    judges = Judges(monkeypatch, calibrated=0.5)
    report, summary = own.train_own(config(tmp_path, logs(tmp_path, runs, questions=questions)))
    assert summary["taken"] == "calibrated" and not judges.trained and summary["held_out"] == runs
    if runs == 60:
        assert f"runs of {questions} question(s) calibrate a judge" in summary["not_taken"]["trained"]
    assert report["note"] == (own.RAW if questions == 1 else None)
    assert json.loads((tmp_path / "own" / "metrics.json").read_text())["note"] == report["note"]


def test_the_command_reads_a_named_outcome_and_says_what_was_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Judges(monkeypatch, calibrated=0.3, trained=0.9)
    app = typer.Typer()
    app.command()(train_cmd.command)
    path = str(logs(tmp_path, 60, "is_ok"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["--own", path, "--outcome", "is_ok"], catch_exceptions=False)
    assert done.exit_code == 0 and "not taken: calibrated" in done.stderr and "tfidf" in done.stderr
    assert json.loads(done.stdout)["judge"] == "runs/own/judge"
    for wrong in (["--annotations", path, "--config", "smollm2"], []):
        assert isinstance(CliRunner().invoke(app, wrong).exception, ConfigError)
    with pytest.raises(ConfigError, match=r"sft\.lora\.init"):
        own.train_own(load_config("smollm2", ["data.trajectories=[x]"]))


def generate(*, seed: int, n: int) -> list[tuple[Trajectory, Annotation]]:
    rows = [Trajectory(id=f"lab{i}", messages=[Message(role="assistant", content="x")], outcome=1.0) for i in range(n)]
    return [(t, Annotation(trajectory_id=t.id, annotator="lab", kind="rules")) for t in rows]


def test_runs_that_a_config_adds_to_own_ones_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`quickstart` added 216 runs of the lab to a user's in silence."""
    more = [f"data.generate={__name__}:generate", "data.generate_options={n: 3}"]
    settings = load_config("default-small", [f"data.trajectories=[{logs(tmp_path, 4)}]", *more])
    assert len(own.load_data(settings)[0]) == 7
    assert "adds 3 transcripts to the 4 of data.trajectories" in caplog.text
