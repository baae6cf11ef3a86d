"""`reagent` as a user meets it: errors that say what to do, and transcripts that the judge's readers take."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from reagent.cli import main
from reagent.lab import shipped
from rrm.readers import read

SMALL = ["environment.train_tasks=1", "environment.eval_tasks=3", "environment.eval={hops: 1}"]


@pytest.fixture
def reagent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs `reagent` with arguments in this process; (exit code, standard output, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reagent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, " ".join(captured.err.split())

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "--config", "labb"],
            "no config 'labb': not a file, and the shipped ones are lab, paper, paper-code, qwen3-0.6b, qwen3-8b, qwen3-8b-full, smollm2, task; did you mean 'lab'?",
        ),
        (["train", "rollout.max_turn=3"], "unknown key 'rollout.max_turn'; nearest valid key: rollout.max_turns"),
        (["eval", "policy.bas=x"], "unknown key 'policy.bas'; nearest valid key: policy.base"),
        (["train", "algorithm=dpo"], "algorithm: Input should be 'ppo', 'grpo', 'rloo', 'reinforce++'"),
        (
            ["train", "policy.lora={dropout: 0.1}"],
            "policy.lora: policy.lora.dropout must be 0: the update must compute what the rollout sampled",
        ),
        (["train", "algorithm"], "override 'algorithm' is not of the form key=value"),
        (["eval", "environment.name=serch"], "no environment 'serch'; there are search, calculator"),
        (["eval", "some/model"], "say what some/model is to do: --task gsm8k (`reagent tasks` lists them)"),
        (
            ["eval", "some/model", "--policy", "other", "--task", "gsm8k"],
            "two policies are named, some/model and --policy other",
        ),
        (["probe", "some/model", "--task", "gsm9k"], "no environment 'gsm9k'"),
        (["eval", "./nowhere", "--task", "search", *SMALL], "model directory './nowhere' does not exist"),
        (["eval", "--policy", "./nowhere", *SMALL], "model directory './nowhere' does not exist"),
        (["eval", "--policy", "runs/nowhere/policy", *SMALL], "cannot load model 'runs/nowhere/policy'"),
    ],
)
def test_user_errors_name_what_is_wrong_and_end_with_2(reagent, tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, error = reagent(*arguments)
    assert code == 2 and not out and error.startswith("error: ") and message in error
    assert "Traceback" not in error


def test_a_mistaken_policy_leaves_no_run_folder(reagent, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, _, error = reagent("train", *SMALL, "policy.base=./nowhere", f"output_dir={run}")
    assert code == 2 and "model directory './nowhere' does not exist" in error
    assert not run.exists()


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
