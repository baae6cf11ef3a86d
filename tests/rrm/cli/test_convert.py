"""`rrm convert`: what is written, what is reported, what an interruption leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from rrm.cli import convert_cmd
from rrm.data.trajectory import read_canonical
from rrm.errors import ConfigError, ReadError

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command("convert")(convert_cmd.command)


def run(k: int) -> str:
    messages = [{"role": "user", "content": f"q{k}"}, {"role": "assistant", "content": f"a{k}"}]
    return json.dumps({"id": f"r{k}", "messages": messages, "reward": k % 2})


def convert(*args: Any) -> Result:
    return CliRunner().invoke(APP, [str(a) for a in args])


def summary(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout.splitlines()[-1])


def test_good_lines_bad_lines_and_the_summary(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "new" / "out.jsonl"
    source.write_text("\n".join([run(0), "{broken", "", run(1), '{"messages": 3}', run(0)]))
    (tmp_path / "empty.json").write_text("")
    result = convert(source, tmp_path / "empty.json", "-o", out)
    assert result.exit_code == 1, result.output
    assert [t.id for t in read_canonical(out)] == ["r0", "r1", "r0#2"]
    errors = [json.loads(line) for line in (tmp_path / "new" / "out.errors.jsonl").read_text().splitlines()]
    assert [(Path(e["path"]).name, e["line"]) for e in errors] == [
        ("in.jsonl", 2),
        ("in.jsonl", 5),
        ("empty.json", None),
    ]
    assert all(set(e) == {"path", "line", "reason"} and e["reason"] for e in errors)
    assert summary(result) == {
        **{"converted": 3, "unreadable": 3, "formats": {"openai": 3}},
        **{"output": str(out), "errors": str(tmp_path / "new" / "out.errors.jsonl")},
    }


def test_clean_run_leaves_no_error_file_and_converts_to_itself(tmp_path: Path) -> None:
    source, out, again = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    source.write_text("\n".join(map(run, range(3))))
    (tmp_path / "out.errors.jsonl").write_text("from an earlier run\n")
    result = convert(source, "-o", out)
    assert result.exit_code == 0 and summary(result)["errors"] is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    assert convert(out, "-o", again).exit_code == 0 and again.read_bytes() == out.read_bytes()


def test_a_mistyped_input_is_said_at_once_and_the_output_stands(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text(run(0))
    out = tmp_path / "out.jsonl"
    out.write_text("from an earlier run\n")
    refused = convert(tmp_path / "runs.jsonl", tmp_path / "runz.jsonl", "-o", out)
    assert isinstance(refused.exception, ReadError)
    assert re.search(r"runz\.jsonl: no such file or folder; did you mean .*runs\.jsonl\?", str(refused.exception))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "runs.jsonl"]
    assert out.read_text() == "from an earlier run\n"


def test_an_input_of_no_transcripts_replaces_nothing(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("{broken\n")
    out.write_text("old\n")
    result = convert(source, "-o", out)
    assert result.exit_code == 1 and out.read_text() == "old\n"
    assert (summary(result)["converted"], summary(result)["unreadable"], summary(result)["output"]) == (0, 1, None)
    assert "no transcript could be read" in result.stderr and "in.jsonl:1: not JSON" in result.stderr
    assert len((tmp_path / "out.errors.jsonl").read_text().splitlines()) == 1


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    source, real, link = tmp_path / "in.jsonl", tmp_path / "disk" / "real.jsonl", tmp_path / "link.jsonl"
    source.write_text(run(0))
    real.parent.mkdir()
    real.write_text("old\n")
    link.symlink_to(real)
    assert convert(source, "-o", link).exit_code == 0
    assert link.is_symlink() and [t.id for t in read_canonical(real)] == ["r0"]
    assert [p.name for p in real.parent.iterdir()] == ["real.jsonl"]


def test_standard_output_lies_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` passed for a file of that name in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text(run(0))
    result = convert(".", "-o", "-")
    assert result.exit_code == 0 and json.loads(result.stdout)["id"] == "r0"


def test_rows_to_standard_output_stand_alone_there(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(run(0) + "\n{broken\n" + run(1))
    result = convert(source, "-o", "-")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["r0", "r1"]
    said = json.loads(result.stderr.splitlines()[-1])
    assert (said["converted"], said["unreadable"], said["output"], said["errors"]) == (2, 1, "-", None)
    assert not Path("-").exists()
    assert convert_cmd.is_stdout(Path("/dev/stdout"))  # a run of old code here would replace the machine's device


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    source, pipe = tmp_path / "in.jsonl", tmp_path / "pipe"
    source.write_text(run(0))
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert convert(source, "-o", pipe).exit_code == 0
        assert json.loads(os.read(reader, 1 << 16))["id"] == "r0" and stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)


def test_strict_stops_at_the_first_and_keeps_the_old_output(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join([run(0), "{broken", "{broken too"]))
    out.write_text("old\n")
    result = convert(source, "-o", out, "--strict")
    assert result.exit_code == 1 and out.read_text() == "old\n"
    assert summary(result)["unreadable"] == 1 and summary(result)["output"] is None
    assert len((tmp_path / "out.errors.jsonl").read_text().splitlines()) == 1
    assert "in.jsonl:2: not JSON" in result.output


def test_mapping_from_the_command_line(tmp_path: Path) -> None:
    source, out = tmp_path / "in.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps([{"log": {"q": "Q", "a": "A"}, "ok": True}]))
    pairs = ["--map", "task=log.q", "--map", "response=log.a", "--map", "outcome=ok"]
    assert convert(source, "-o", out, *pairs).exit_code == 0
    (trajectory,) = read_canonical(out)
    assert trajectory.task == "Q" and trajectory.outcome == 1.0 and len(trajectory.steps) == 1
    refused = convert(source, "-o", out, "--map", "mesages=log")
    assert isinstance(refused.exception, ConfigError) and "did you mean 'messages'" in str(refused.exception)


def test_output_inside_the_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(run(0))
    for inputs, out in ((tmp_path, tmp_path / "x" / "out.jsonl"), (tmp_path / "in.jsonl", tmp_path / "in.jsonl")):
        refused = convert(inputs, "-o", out)
        assert isinstance(refused.exception, ConfigError) and "lies in the input" in str(refused.exception)
    assert not (tmp_path / "x").exists() and (tmp_path / "in.jsonl").read_text() == run(0)


CONVERT = "import typer; from rrm.cli import convert_cmd; typer.run(convert_cmd.command)"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_half_output(tmp_path: Path, stop: signal.Signals) -> None:
    """Reading from a pipe that stays open, stopped in the middle: OUT is the old one or absent, never half."""
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    child = subprocess.Popen(
        [sys.executable, "-c", CONVERT, "-", "-o", str(out)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a shell's background job ignores SIGINT, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stdin
    lines = "".join(run(k) + "\n" for k in range(4_000)).encode()  # more than one block, so rows are being written
    child.stdin.write(lines)
    child.stdin.flush()
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > 0) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(stop)
    child.communicate(timeout=60)
    assert child.returncode != 0 and not out.exists()
    if stop == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []
