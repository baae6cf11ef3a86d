"""rrm show: what a judge reads, without running a model."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from rrm import cli
from rrm.trajectory import Message, Trajectory, write_jsonl

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
        cli._register()
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


def test_an_unknown_id_and_an_option_of_a_running_model_are_refused(tmp_path: Path) -> None:
    path = str(runs(tmp_path))
    assert "holds no transcript 'none'; there are 2, e.g. short, long" in show(path, "none", "--model", SERVER)[1]
    assert "takes no --device" in show(path, "--model", SERVER, "--device", "cpu")[1]
    assert "no such file" in show(str(tmp_path / "gone.jsonl"))[1]
