"""Wrong paths are exit code 2 in every command, before any work; a disk that fills is one clear line."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

import pytest

from reagent.cli import main

TINY = ["environment.train_tasks=2", "environment.eval_tasks=1", "environment.eval={hops: 1}", "max_updates=1",
        "rollout.tasks_per_update=2", "rollout.group_size=2", "rollout.max_turns=1", "rollout.max_new_tokens=4"]  # fmt: skip
FULL = Path("/dev/full")
full_disk = pytest.mark.skipif(
    not (FULL.exists() and stat.S_ISCHR(FULL.stat().st_mode)), reason="this system has no /dev/full"
)


@pytest.fixture
def reagent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs `reagent` with arguments in this process; (exit code, standard error)."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["reagent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", *TINY, "output_dir=file"], "cannot make the folder file"),
        (["train", *TINY, "output_dir=file/run"], "file is a file"),
        (["train", *TINY, "environment.train={path: nowhere.jsonl}"], "nowhere.jsonl: tasks cannot be read"),
        (["train", *TINY, "environment.train={path: .}"], "tasks cannot be read"),
        (["train", "--config", "nowhere.yaml"], "no config 'nowhere.yaml'"),
        (["train", *TINY, "policy.base=./nowhere"], "model directory './nowhere' does not exist"),
        (["train", *TINY, "feedback.mode=r", "feedback.judge=./nowhere"], "feedback.judge=./nowhere: no judge at './nowhere'"),
        (["eval", *TINY, "-o", "nowhere/x.json"], "cannot write nowhere/x.json: there is no folder nowhere; make it first"),
        (["eval", *TINY, "--transcripts", "nowhere/x.jsonl"], "cannot write nowhere/x.jsonl"),
        (["eval", *TINY, "-o", "."], "it is a folder; name a file in it"),
        (["eval", *TINY, "--policy", "./nowhere"], "model directory './nowhere' does not exist"),
        (["report", "nowhere", "-o", "page.html"], "nowhere is not a folder"),
        (["report", "nowhere", "-o", "gone/page.html"], "cannot write gone/page.html: there is no folder gone; make it first"),
        (["lab", "transcripts", "-o", "nowhere/x.jsonl"], "cannot write nowhere/x.jsonl"),
        (["lab", "transcripts", "-o", "x.jsonl", "--annotations", "nowhere/y.jsonl"], "cannot write nowhere/y.jsonl"),
        (["lab", "build", "-o", "file", "--rows", "8"], "cannot make the folder file"),
        (["lab", "reflect", "-o", "file/policy"], "file is a file"),
        (["lab", "reflect", "-o", "policy", "--policy", "./nowhere"], "no policy at nowhere"),
    ],
)  # fmt: skip
def test_a_wrong_path_is_one_line_and_exit_code_2(reagent, base, tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    if (
        arguments[0] in ("train", "eval")
        and "--policy" not in arguments
        and not any("policy.base" in a for a in arguments)
    ):
        arguments = [*arguments, f"policy.base={base}"] if "--config" not in arguments else arguments
    code, error = reagent(*arguments)
    line = " ".join(error.split())
    assert code == 2 and message in line and "Traceback" not in error
    assert {p.name for p in tmp_path.iterdir()} <= {"file"}  # nothing is begun


@full_disk
def test_a_disk_that_fills_is_one_clear_line(reagent, base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").symlink_to(FULL)  # the run's first line finds no room
    code, error = reagent("train", *TINY, f"policy.base={base}", f"output_dir={run}")
    (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
    assert code == 2 and "No space left on device" in line and "the same command to continue" in line
    assert "Traceback" not in error


@full_disk
def test_a_disk_that_fills_under_an_output(reagent, base: Path) -> None:
    code, error = reagent("eval", *TINY, f"policy.base={base}", "-o", FULL)
    assert code == 2 and "error: no space left on the disk" in error and "Traceback" not in error


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes of this system have one size")
def test_a_report_never_takes_the_place_of_a_device(report, run: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # both ends: neither side waits for the other
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)
    try:
        code, summary, _ = report(run, "-o", pipe)
        assert (code, summary["report"]) == (0, str(pipe)) and stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(end, 1 << 20).lstrip().lower().startswith(b"<!doctype html")
    finally:
        os.close(end)


def test_which_errors_are_a_users_to_mend() -> None:
    from rrm.errors import file_problem

    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a/metrics.jsonl")
    assert "no space left on the disk (runs/a/metrics.jsonl)" in str(file_problem(full))
    assert "no space left" in str(file_problem(RuntimeError("I/O error: No space left on device (os error 28)")))
    assert str(file_problem(FileNotFoundError(2, "No such file", "a.json"))) == "a.json: No such file"
    assert file_problem(ValueError("a bug")) is None and file_problem(OSError("without a name")) is None
