"""Run folders: a continuation must be of the same run, and a mistake leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from reagent.lab.transcripts import make_transcripts
from rrm.config import TrainConfig
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import RRMError
from rrm.train.prepare import FIXED, prepare
from rrm.train.run import train
from rrm.train.run_folder import check_folder, claim_folder, sole_writer


def test_another_config_is_refused_and_named(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    check_folder(TrainConfig(max_new_tokens=7), tmp_path, FIXED)  # may change between a run and its continuation
    with pytest.raises(RRMError, match="another seed, model"):
        check_folder(TrainConfig.model_validate({"seed": 1, "model": {"base": "lab"}}), tmp_path, FIXED)
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


def test_an_option_of_a_fixed_section_may_be_free(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    changed = TrainConfig.model_validate({"sft": {"epochs": 7.0}})
    with pytest.raises(RRMError, match="another sft"):
        check_folder(changed, tmp_path, FIXED)
    check_folder(changed, tmp_path, FIXED, free=["sft.epochs"])


def test_options_newer_than_the_run_stand_at_their_defaults(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    path = tmp_path / "config.yaml"
    tree = yaml.safe_load(path.read_text())
    del tree["sft"]["claim_injection_share"]
    path.write_text(yaml.safe_dump(tree))
    check_folder(TrainConfig(), tmp_path, FIXED)
    with pytest.raises(RRMError, match="another sft"):
        check_folder(TrainConfig.model_validate({"sft": {"claim_injection_share": 0.5}}), tmp_path, FIXED)


def test_options_since_removed_must_have_been_off(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    path = tmp_path / "config.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["sft"]["bygone"] = None
    path.write_text(yaml.safe_dump(tree))
    check_folder(TrainConfig(), tmp_path, FIXED)
    tree["sft"]["bygone"] = "agent"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(RRMError, match="another sft"):
        check_folder(TrainConfig(), tmp_path, FIXED)


def test_a_mistaken_base_leaves_no_folder(tmp_path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_jsonl(rows, (t for t, _ in make_transcripts(12, seed=0)))
    run = tmp_path / "run"
    tree = {"output_dir": str(run), "model": {"base": "./nowhere"}, "data": {"trajectories": [str(rows)]}}
    with pytest.raises(RRMError, match=r"'\./nowhere' does not exist"):
        train(TrainConfig.model_validate(tree))
    assert not run.exists()


def prepared(run: Path, rows: Path, **changes: Any) -> dict[str, list[Trajectory]]:
    """The parts a run in the folder trains, calibrates and tests on."""
    small = {"hidden_size": 32, "intermediate_size": 32, "layers": 1, "heads": 2, "vocab_size": 400}
    model = {"base": "reagent.lab.judge_base:build", "options": small}
    tree = {"output_dir": str(run), "model": model, "data": {"trajectories": [str(rows)]}, **changes}
    return prepare(TrainConfig.model_validate(tree)).parts


def test_a_run_that_has_begun_goes_on_with_its_data_and_its_split_alone(tmp_path) -> None:
    rows, run = tmp_path / "rows.jsonl", tmp_path / "run"
    everything = [t for t, _ in make_transcripts(40, seed=0)]
    write_jsonl(rows, everything[:30])
    before = prepared(run, rows)
    (run / "sft").mkdir()
    assert {name: [t.id for t in members] for name, members in prepared(run, rows).items()} == {
        name: [t.id for t in members] for name, members in before.items()
    }
    write_jsonl(rows, everything)
    with pytest.raises(RRMError, match=r"other data: 30 transcripts .* then, 40 .* now.*another output_dir"):
        prepared(run, rows)
    write_jsonl(rows, [t.model_copy(update={"outcome": 0.0}) for t in everything[:30]])
    with pytest.raises(RRMError, match="the same number with other content"):
        prepared(run, rows)


def test_rl_settings_are_fixed_once_rl_has_begun(tmp_path) -> None:
    rows, run = tmp_path / "rows.jsonl", tmp_path / "run"
    write_jsonl(rows, (t for t, _ in make_transcripts(30, seed=0)))
    prepared(run, rows)
    (run / "sft").mkdir()
    prepared(run, rows, rl={"learning_rate": 1e-5})
    (run / "rl").mkdir()
    with pytest.raises(RRMError, match="another rl"):
        prepared(run, rows, rl={"learning_rate": 2e-5})
    (run / "sft").rmdir()
    with pytest.raises(RRMError, match="another seed"):
        prepared(run, rows, rl={"learning_rate": 1e-5}, seed=5)


def test_annotations_of_no_transcript_are_told_and_none_of_all_is_an_error(tmp_path, caplog) -> None:
    rows, labels = tmp_path / "rows.jsonl", tmp_path / "labels.jsonl"
    labelled = list(make_transcripts(30, seed=0))
    write_jsonl(rows, (t for t, _ in labelled))
    stray = labelled[0][1].model_copy(update={"trajectory_id": "elsewhere:1"})
    labels.write_text("".join(a.model_dump_json() + "\n" for a in (labelled[1][1], stray)))
    data = {"trajectories": [str(rows)], "annotations": [str(labels)]}
    prepared(tmp_path / "run", rows, data=data)
    assert "1 of 2 annotations belong to no transcript, e.g. 'elsewhere:1'" in caplog.text
    labels.write_text(stray.model_dump_json() + "\n")
    with pytest.raises(RRMError, match=r"1 of 1 annotations belong to no transcript.*annotate these very files"):
        prepared(tmp_path / "other", rows, data=data)


@pytest.mark.parametrize("name", ["train", "calibration", "test"])
def test_a_split_that_matches_nothing_is_refused(tmp_path, name) -> None:
    rows = tmp_path / "rows.jsonl"
    write_jsonl(rows, (t for t, _ in make_transcripts(30, seed=0)))
    questions = sorted({t.question_id or "" for t, _ in make_transcripts(30, seed=0)})
    split = {"train": questions[:4], "calibration": questions[4:6], "test": questions[6:]}
    (tmp_path / "split.json").write_text(json.dumps(split | {name: ["q-of-other-data"]}))
    data = {"trajectories": [str(rows)], "split": str(tmp_path / "split.json")}
    with pytest.raises(
        RRMError, match=rf"split\.json: no transcript is of one .* under '{name}', e\.g\. 'q-of-other-data'"
    ):
        prepared(tmp_path / "run", rows, data=data)
    (tmp_path / "split.json").write_text(json.dumps(split | {name: []}))
    if name == "train":
        with pytest.raises(RRMError, match="0 question"):
            prepared(tmp_path / "run", rows, data=data)
    else:
        assert prepared(tmp_path / "run", rows, data=data)[name] == []


def test_the_run_says_what_decided_its_targets(tmp_path, caplog) -> None:
    rows, labels = tmp_path / "rows.jsonl", tmp_path / "labels.jsonl"
    labelled = [(t.model_copy(update={"outcome": 0.0}), a) for t, a in make_transcripts(30, seed=0)]
    write_jsonl(rows, (t for t, _ in labelled))
    labels.write_text("".join(a.model_copy(update={"score": 0.9}).to_json() + "\n" for _, a in labelled))
    data = {"trajectories": [str(rows)], "annotations": [str(labels)]}
    parts = prepared(tmp_path / "run", rows, data=data)
    n = len(parts["train"])
    assert f"data.target=outcome: targets of {n} rows: {n} by their outcome" in caplog.text
    assert f"disagree on {n} of {n} rows (100%)" in caplog.text
    prepared(tmp_path / "other", rows, data=data | {"target": "annotation"})
    assert f"data.target=annotation: targets of {n} rows: 0 by their outcome, {n} by annotation (lab)" in caplog.text


def test_one_process_at_a_time_writes_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    with sole_writer(folder):
        with pytest.raises(RRMError, match=r"another process is writing a run into .*mine"), sole_writer(folder):
            pytest.fail("two at once")
        with sole_writer(tmp_path / "runs" / "yours"):
            pass
        (folder / "config.yaml").write_text("{}")
    with sole_writer(folder):  # free again
        assert (folder / "config.yaml").is_file()


def test_a_process_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from rrm.train.run_folder import sole_writer\n"
        "with sole_writer(Path(sys.argv[1])):\n    print('there', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"there\n"
        with pytest.raises(RRMError, match="another process"), sole_writer(tmp_path):
            pytest.fail("two at once")
        other.kill()
    with sole_writer(tmp_path):
        pass


def test_a_process_that_was_forked_meanwhile_keeps_nobody_out(tmp_path: Path) -> None:
    """A grader's pool may outlive the run, and would hold a descriptor that it was handed."""
    script = (
        "import os, sys, time; from pathlib import Path; from rrm.train.run_folder import sole_writer\n"
        "with sole_writer(Path(sys.argv[1])):\n    if not os.fork(): print(os.getpid(), flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        child = int(other.stdout.readline())
        try:
            other.kill()
            other.wait()
            with sole_writer(tmp_path):
                os.kill(child, 0)  # it is still there
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_folder_that_cannot_be_written_into_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RRMError, match=r"cannot write a run into .*file"), sole_writer(tmp_path / "file"):
        pytest.fail("a file is no folder")
    with pytest.raises(RRMError, match="cannot write a run into"), sole_writer(tmp_path / ("x" * 300)):
        pytest.fail("a name that is too long")


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    def none(self: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", none)
    with sole_writer(tmp_path / "run"):
        (tmp_path / "run" / "config.yaml").write_text("{}")
    assert "no lock can be had" in caplog.text and (tmp_path / "run" / "config.yaml").is_file()


def test_a_judges_folder_that_another_process_writes_into_is_left_alone(tmp_path: Path) -> None:
    config = TrainConfig.model_validate({"output_dir": str(tmp_path / "run")})
    with sole_writer(tmp_path / "run"), pytest.raises(RRMError, match="another process is writing a run"):
        train(config)


def test_a_mistake_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrong"), sole_writer(tmp_path / "a" / "b" / "c"):
        raise ValueError("wrong")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    with sole_writer(tmp_path / "a" / "b"):
        pass
    assert (tmp_path / "a").is_dir() and not (tmp_path / "a" / "b").exists()  # what was there stays


def test_an_option_of_an_inner_section_may_be_free(tmp_path: Path) -> None:
    """A run that had spent its `feedback.escalate.max_cost` could not be allowed more."""

    class Inner(BaseModel):
        most: int = 1
        model: str = "m"

    class Outer(BaseModel):
        inner: Inner = Inner()

    class Config(BaseModel):
        outer: Outer = Outer()

    (tmp_path / "config.yaml").write_text("outer: {inner: {most: 1, model: m}}\n")
    more = Config(outer=Outer(inner=Inner(most=2)))
    check_folder(more, tmp_path, ["outer"], ["outer.inner.most", "outer.none.most"])
    with pytest.raises(RRMError, match="another outer"):
        check_folder(more, tmp_path, ["outer"], ["outer.inner.model"])
