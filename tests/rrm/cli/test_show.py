"""rrm show: what a judge reads, without running a model."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from reagent.lab.model import build_lab_tokenizer
from rrm import cli
from rrm.data.feedback import Mode
from rrm.data.trajectory import Message, Trajectory, read_canonical, write_jsonl
from rrm.judge.judge_dir import JudgeSettings, save_settings
from rrm.prompt.prompter import Prompter

RUNNER = CliRunner()
SERVER = "openai:http://localhost:1/v1#m"


def runs(folder: Path) -> Path:
    """A short run and a long one, in which one line stands in the middle."""
    long = [Message(role="user", content="Find the fault.")]
    for k in range(1, 41):
        long.append(Message(role="assistant", content=f"look {k}"))
        long.append(Message(role="tool", content="line " * 60 + ("FATAL" if k == 20 else "")))
    rows = [
        Trajectory(id="short", task="2+2?", messages=[Message(role="user", content="2+2?"), Message(role="assistant", content="4\x1b[2J")]),
        Trajectory(id="long", task="Find the fault.", messages=long),
    ]  # fmt: skip
    write_jsonl(folder / "runs.jsonl", rows)
    return folder / "runs.jsonl"


def show(*arguments: str) -> tuple[int, str]:
    if not cli.app.registered_commands:
        cli.register(cli.app, "rrm.cli", cli.COMMANDS, cli.GROUPS)
    result = RUNNER.invoke(cli.app, ["show", *arguments])
    return result.exit_code, result.output if result.exception is None else f"{result.output}{result.exception}"


def test_the_first_transcript_is_shown_as_the_judge_reads_it(tmp_path: Path) -> None:
    code, output = show(str(runs(tmp_path)), "--model", SERVER)
    assert code == 0
    assert "--- reading 1 of 1: step 1," in output and "[step 1]\nagent: 4" in output
    assert "\x1b" not in output.splitlines()[4]
    found = json.loads(output.splitlines()[-1])
    assert (found["id"], found["readings"], found["coverage"]) == ("short", 1, 1.0)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    code, output = show(str(runs(tmp_path)), "long", "--model", SERVER, "--transcript-tokens", "300")
    found = json.loads(output.splitlines()[-1])
    assert code == 0 and found["steps"] == 40
    if found["prompt_version"] == "1":
        assert found["coverage"] < 0.2 and "steps left out" in output and "FATAL" not in output
    else:
        assert found["coverage"] == 1.0 and "FATAL" in output


def test_the_judges_own_plan_is_shown(tmp_path: Path) -> None:
    """A judge of slots reads them, which takes room; one of scores alone finds nothing to pass on, and reads the ending."""
    path, tokenizer = str(runs(tmp_path)), build_lab_tokenizer(["Task step agent result good bad line look"] * 3, 400)
    tokenizer.save_pretrained(str(tmp_path))
    (trajectory,) = (t for t in read_canonical(path) if t.id == "long")
    defaults: tuple[Mode, ...] = ("steps", "score")
    for default in defaults:
        save_settings(tmp_path, JudgeSettings(modes=[default], default_mode=default, transcript_tokens=500))
        code, output = show(path, "long", "--model", str(tmp_path))
        found, plan = json.loads(output.splitlines()[-1]), Prompter(tokenizer, 500).plan(trajectory, default)
        assert code == 0 and ("[step 40] is" in output) == (default == "steps")
        assert found["readings"] == (len(plan) if default == "steps" else 1) and len(plan) > 3
        assert (found["coverage"] == 1.0) == (default == "steps")
    code, output = show(path, "long", "--model", str(tmp_path), "--mode", "full")
    assert code == 0 and json.loads(output.splitlines()[-1])["coverage"] == 1.0 and "[step 40] is" not in output


def test_an_unknown_id_and_an_option_of_a_running_model_are_refused(tmp_path: Path) -> None:
    path = str(runs(tmp_path))
    assert "holds no transcript 'none'; there are 2, e.g. short, long" in show(path, "none", "--model", SERVER)[1]
    assert "No such option: --device" in show(path, "--model", SERVER, "--device", "cpu")[1]
    assert "no such file" in show(str(tmp_path / "gone.jsonl"))[1]
