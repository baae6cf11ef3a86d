"""`reagent` as a user meets it: errors and wrong paths end with 2 and one line, a full disk too; evaluations, choosing and training."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import stat
from importlib import import_module
from pathlib import Path

import pytest

from reagent.lab import shipped
from rrm.data.trajectory import Message, Trajectory, read_canonical, write_jsonl
from rrm.readers import read

SMALL = ["environment.train_tasks=1", "environment.eval_tasks=3", "environment.eval={hops: 1}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "--config", "labb"],
            "no config 'labb': not a file, and the shipped ones are lab, paper, paper-code, qwen3-0.6b, qwen3-8b, qwen3-8b-full, reading, smollm2, task; did you mean 'lab'?",
        ),
        (["train", "rollout.max_turn=3"], "unknown key 'rollout.max_turn'; nearest valid key: rollout.max_turns"),
        (["eval", "policy.bas=x"], "unknown key 'policy.bas'; nearest valid key: policy.base"),
        (["train", "algorithm=dpo"], "algorithm: Input should be 'ppo', 'grpo', 'rloo', 'reinforce++'"),
        (["train", "policy.lora={dropout: 0.1}"], "policy.lora: policy.lora.dropout must be 0: the update must compute what the rollout sampled"),
        (["train", "algorithm"], "override 'algorithm' is not of the form key=value"),
        (["eval", "environment.name=serch"], "no environment 'serch'; there are search, calculator"),
        (["eval", "some/model"], "say what some/model is to do: --task gsm8k (`reagent tasks` lists them)"),
        (["eval", "some/model", "--policy", "other", "--task", "gsm8k"], "two policies are named, some/model and --policy other"),
        (["probe", "some/model", "--task", "gsm9k"], "no environment 'gsm9k'"),
        (["eval", "./nowhere", "--task", "search", *SMALL], "model directory './nowhere' does not exist"),
        (["eval", "--policy", "runs/nowhere/policy", *SMALL], "cannot load model 'runs/nowhere/policy'"),
    ],
)  # fmt: skip
def test_user_errors_name_what_is_wrong_and_end_with_2(reagent, tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = reagent(*arguments)
    assert code == 2 and not out and error.startswith("error: ") and message in error
    assert "Traceback" not in error


def test_without_the_lab_policy_the_error_says_how_to_make_it(reagent, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "lab")
    code, _, error = reagent("eval", *SMALL)
    assert code == 2 and "reagent lab reflect --output" in error
    code, _, error = reagent("train", *SMALL, "policy.base=lab", f"output_dir={tmp_path / 'run'}")
    assert code == 2 and "reagent lab build --output" in error


def test_evaluated_episodes_are_transcripts_for_the_judge(reagent, base, tmp_path, caplog) -> None:
    figures, transcripts = tmp_path / "figures.json", tmp_path / "transcripts.jsonl"
    short = ["rollout.max_turns=2", "rollout.max_new_tokens=8", "eval.samples=2", "eval.temperature=1.0"]
    code, out, error = reagent(
        "eval", *SMALL, *short, "--policy", base, "-o", figures, "--transcripts", transcripts
    )  # fmt: skip
    assert code == 0, error
    summary, written = json.loads(out.splitlines()[-1]), json.loads(figures.read_text())
    assert summary["tasks"] == 3 and summary["policy"] == str(base) and "by_task" not in summary
    assert summary["success"]["value"] is not None and summary["success"]["low"] is None
    assert summary["without_interval"] == ["success", "success_by_hops.1"]
    assert "fewer than 10 tasks or 20 attempts carry a figure (success, success_by_hops.1)" in caplog.text
    rows = list(read(transcripts))
    assert len(rows) == 6 and len({row.id for row in rows}) == 6
    assert {row.question_id for row in rows} == set(written["by_task"])
    for row in rows:
        roles = [message.role for message in row.messages]
        assert roles[:3] == ["system", "user", "assistant"] and roles.count("assistant") <= 2
        assert row.task and row.outcome in (0.0, 1.0) and row.meta["status"] in ("finished", "turn_limit")


def test_a_file_of_bare_questions_trains_with_a_judge_or_not_at_all(reagent, base: Path, tmp_path: Path) -> None:
    """Questions without answers: under `none` the reward would be nothing but grades that nobody gives."""
    path = tmp_path / "questions.jsonl"
    questions = [f"What is the home of number {n}?" for n in range(4)]
    path.write_text(
        "".join(json.dumps({"question": q} | ({"answer": None} if n else {})) + "\n" for n, q in enumerate(questions))
    )
    options = [
        "train", f"environment.train={{path: {path}}}", "environment.train_tasks=4", "environment.eval={hops: 1}",
        "environment.eval_tasks=2", f"policy.base={base}", "algorithm=grpo", "max_updates=1", "optim.minibatches=1",
        "rollout.tasks_per_update=2", "rollout.group_size=2", "rollout.max_turns=2", "rollout.max_new_tokens=8",
    ]  # fmt: skip
    code, out, error = reagent(*options, f"output_dir={tmp_path / 'none'}")
    assert code == 2 and not out and "none of the 4 training tasks has an answer to grade by" in error
    assert "feedback.mode=r|u|process" in error and not (tmp_path / "none").exists()
    more = ["feedback.mode=r", "feedback.score_mode=score", "eval.every=1", f"output_dir={tmp_path / 'r'}"]
    code, out, _ = reagent(*options, *more)
    summary = json.loads(out)
    assert code == 0 and summary["reward"] is None and summary["held_out_success"]["value"] is not None
    start, end = [json.loads(line) for line in (tmp_path / "r" / "eval.jsonl").read_text().splitlines()]
    assert (start["update"], end["update"]) == (-1, 0) and 0 <= end["score"]["value"] <= 1


TINY = ["environment.train_tasks=2", "environment.eval_tasks=1", "environment.eval={hops: 1}", "max_updates=1",
        "rollout.tasks_per_update=2", "rollout.group_size=2", "rollout.max_turns=1", "rollout.max_new_tokens=4"]  # fmt: skip
FULL = Path("/dev/full")
full_disk = pytest.mark.skipif(
    not (FULL.exists() and stat.S_ISCHR(FULL.stat().st_mode)), reason="this system has no /dev/full"
)


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
    if TINY[0] in arguments and "--policy" not in arguments and not any("policy.base" in a for a in arguments):
        arguments = [*arguments, f"policy.base={base}"]
    code, _, error = reagent(*arguments)
    assert code == 2 and message in error and "Traceback" not in error
    assert {p.name for p in tmp_path.iterdir()} <= {"file"}  # nothing is begun


@full_disk
def test_a_disk_that_fills_is_one_clear_line(reagent, base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").symlink_to(FULL)  # the run's first line finds no room
    code, _, error = reagent("train", *TINY, f"policy.base={base}", f"output_dir={run}")
    assert code == 2 and error.count("error: ") == 1 and "Traceback" not in error
    error = error.partition("error: ")[2]
    assert "No space left on device" in error and "the same command to continue" in error


@full_disk
def test_a_disk_that_fills_under_an_output(reagent, base: Path) -> None:
    code, _, error = reagent("eval", *TINY, f"policy.base={base}", "-o", FULL)
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


def test_an_evaluation_chooses_and_marks_its_transcripts(reagent, base, tmp_path) -> None:
    small = [*SMALL, "rollout.max_turns=2", "rollout.max_new_tokens=8"]
    choose = ["--choose", "majority,longest", "--choose", "oracle"]
    many = ["eval.samples=2", "eval.temperature=1.0", "--policy", base, *choose]
    figures, runs = tmp_path / "figures.json", tmp_path / "runs.jsonl"
    code, out, error = reagent("eval", *small, *many, "-o", figures, "--transcripts", runs)
    assert code == 0, error
    summary = json.loads(out)
    assert {*summary["choose"]["success"]} == {"majority", "longest", "oracle"} and "chosen" not in summary["choose"]
    assert len(json.loads(figures.read_text())["choose"]["chosen"]) == 3
    assert sum("longest" in t.meta["chosen_by"] for t in read_canonical(runs)) == 3
    code, _, error = reagent("eval", *small, "--policy", base, "--retries", "1")
    assert code == 2 and "give --choose judge with it" in error


def test_transcripts_are_chosen_from_under_this_name_as_well(reagent, tmp_path) -> None:
    rows = []
    for q, k in itertools.product("pq", range(3)):
        messages = [Message(role="user", content=q), Message(role="assistant", content="a" * (k + 1))]
        rows.append(Trajectory(id=f"{q}/{k}", question_id=q, messages=messages))
    write_jsonl(tmp_path / "runs.jsonl", rows)
    chosen = tmp_path / "chosen.jsonl"
    code, out, error = reagent("choose", tmp_path / "runs.jsonl", "--by", "longest", "-o", chosen)
    assert code == 0, error
    summary = json.loads(out)
    assert (summary["questions"], summary["attempts"]) == (2, 6)
    assert [t.id for t in read_canonical(chosen)] == ["p/2", "q/2"]
    assert import_module("reagent.cli.choose_cmd").command is import_module("rrm.cli.choose_cmd").command
