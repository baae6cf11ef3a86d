"""What every command has: a version, and an end that is said."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from rrm import __version__, cli

MAIN = "from {0}.cli import main; main()"


@pytest.mark.parametrize("package", ["rrm", "reagent"])
def test_version(package: str) -> None:
    run = subprocess.run([sys.executable, "-c", MAIN.format(package), "--version"], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"agent-rrm {__version__}\n", "")


@pytest.mark.parametrize("package", ["rrm", "reagent"])
def test_a_command_that_is_called_again_in_one_process_is_there_once(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of `main` added all commands once more: the hundredth took seconds to read its options."""
    module = importlib.import_module(f"{package}.cli")
    monkeypatch.setattr(sys, "argv", [package, "--version"])
    for _ in range(2):
        with pytest.raises(SystemExit):
            module.main()
    assert [command.name for command in module.app.registered_commands] == list(module.COMMANDS)
    assert len(module.app.registered_groups) == 1


def test_no_bar_is_drawn_into_a_log() -> None:
    """transformers drew the loading of weights into every log, a line a moment."""
    bar = "from transformers.utils import logging; list(logging.tqdm(range(3), desc='Loading weights'))"
    quiet = "from rrm.cli import quiet_off_terminals; quiet_off_terminals(); "
    # a command that ran in this process before, or the machine, may have switched them off
    env = {name: value for name, value in os.environ.items() if not name.endswith(("TQDM_DISABLE", "PROGRESS_BARS"))}
    said = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        for code in (bar, quiet + bar)
    ]
    assert "Loading weights" in said[0].stderr and "Loading weights" not in said[1].stderr
    assert [run.returncode for run in said] == [0, 0]


def test_termination_is_said_as_an_interruption_is(tmp_path: Path) -> None:
    """SIGTERM (a queue's or a container's way to stop a run) ended it without a word."""
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", MAIN.format("rrm"), "convert", "-", "-o", str(out)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out.jsonl.part").exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGTERM)
    child.wait(60)  # while its input stays open: it could end by itself before it is stopped
    _, said = child.communicate(timeout=60)
    assert child.returncode == 143 and "terminated; the same command begins anew" in said, said
    assert list(tmp_path.iterdir()) == []


STOPPED = (
    "import os, signal\n"
    "from rrm import cli\n"
    "from rrm.errors import RRMError\n"
    "import typer\n"
    "app = typer.Typer()\n"
    "@app.command()\n"
    "def work():\n"
    "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests in the background ignore it
    "    try:\n"
    "        os.kill(os.getpid(), signal.{0})\n"
    "    except KeyboardInterrupt:\n"
    "        raise {1}\n"
    "cli.run(app, ())\n"
)
"""A program that is stopped where other code makes another error of it."""


@pytest.mark.parametrize(
    ("sent", "code", "said"), [("SIGTERM", 143, "terminated;"), ("SIGINT", cli.INTERRUPTED, "interrupted;")]
)
def test_a_stop_that_other_code_makes_an_error_of_is_said(sent: str, code: int, said: str) -> None:
    """Once in some runs the command ended with code 1: it was stopped while something was imported that turns any exception into its own."""
    program = STOPPED.format(sent, "ImportError('initialization failed')")
    run = subprocess.run([sys.executable, "-c", program, "work"], capture_output=True, text=True)
    assert run.returncode == code and run.stderr.strip().startswith(said), run.stderr
    assert "initialization failed" not in run.stderr


@pytest.mark.parametrize(
    ("error", "said"), [("RRMError('not kept: why')", "not kept: why"), ("OSError(28, 'x', 'out')", "no space left")]
)
def test_what_went_wrong_while_a_command_stopped_is_said_too(error: str, said: str) -> None:
    """A user who runs it again is to know that the rows are not all there."""
    run = subprocess.run(
        [sys.executable, "-c", STOPPED.format("SIGTERM", error), "work"], capture_output=True, text=True
    )
    first, last = run.stderr.strip().splitlines()
    assert run.returncode == 143 and first.startswith("error: ") and said in first and last.startswith("terminated;")


@pytest.mark.parametrize("command", [("convert", "IN", "-o", "-"), ("check", "IN"), ("criteria", "list")])
def test_a_reader_that_hangs_up_is_no_traceback(command: tuple[str, ...], tmp_path: Path) -> None:
    """`| head`."""
    source = tmp_path / "in.jsonl"
    messages = [{"role": "user", "content": "q " * 5000}, {"role": "assistant", "content": "a"}]
    source.write_text("".join(json.dumps({"id": f"r{i}", "messages": messages}) + "\n" for i in range(20)))
    words = [str(source) if word == "IN" else word for word in command]
    code, said = unread([sys.executable, "-c", MAIN.format("rrm"), *words])
    assert code in (0, 1) and "Traceback" not in said and "BrokenPipe" not in said


def unread(command: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a program of whose standard output nobody reads a word."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    with child.stderr as said:
        return child.wait(60), said.read().decode()


def test_what_is_left_to_print_goes_nowhere_where_nobody_reads() -> None:
    """Python flushes at its end, and says of a closed pipe that an exception was ignored."""
    code = "import sys, typer\nfrom rrm.cli import run\napp = typer.Typer()\n" + (
        "@app.command()\ndef a(): sys.stdout.write('x')\n@app.command()\ndef b(): pass\nsys.argv = ['x', 'a']\nrun(app, ())"
    )
    assert unread([sys.executable, "-c", code]) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(closed: str) -> None:
    """Python has None in its place; the end of a command that had done its work was an AttributeError."""
    command = [sys.executable, "-c", MAIN.format("rrm"), "--version"]
    run = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', *command], capture_output=True, text=True)
    said = "" if closed.startswith(">") else f"agent-rrm {__version__}\n"
    assert (run.returncode, run.stdout, run.stderr) == (0, said, "")


def test_a_stream_that_a_command_closed_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
    app = typer.Typer()
    app.command("a")(lambda: sys.exit(3))
    app.command("b")(lambda: None)
    monkeypatch.setattr(sys, "argv", ["rrm", "a"])
    with pytest.raises(SystemExit) as ended:
        cli.run(app, ())
    assert ended.value.code == 3


def test_a_training_that_took_sigterm_itself_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended without a word where it had no checkpoint to name, as `reagent distil` while it plays."""
    app = typer.Typer()
    app.command("distil")(lambda: sys.exit(143))
    app.command("other")(lambda: None)
    monkeypatch.setattr(sys, "argv", ["reagent", "distil"])
    with pytest.raises(SystemExit) as ended:
        cli.run(app, ("distil",))
    assert ended.value.code == cli.TERMINATED
    assert " ".join(capsys.readouterr().err.split()) == "terminated; run the same command again to continue"


def test_only_a_run_that_keeps_something_is_said_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        def interrupted() -> None:
            raise KeyboardInterrupt

        app = typer.Typer()
        for name in ("train", "score", "label", "report"):
            app.command(name, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(interrupted)
        monkeypatch.setattr(sys, "argv", ["rrm", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.run(app, cli.CONTINUES)
        assert stopped.value.code == 130
        return " ".join(capsys.readouterr().err.split())

    assert (
        said("train", "seed=1")
        == said("score")
        == said("label", "x.jsonl")
        == "interrupted; run the same command again to continue"
    )
    for arguments in (("train", "--plan"), ("score", "--dry-run"), ("label", "--agreement"), ("report",)):
        assert said(*arguments) == "interrupted; the same command begins anew"


@pytest.mark.parametrize(
    "command",
    [
        ("convert", "-o", "OUT"),
        ("annotate", "--annotator", "rules", "-o", "OUT"),
        ("choose", "--by", "random", "-o", "OUT"),
        ("check",),
    ],
    ids=lambda command: command[0],
)
def test_what_could_not_be_read_has_one_name_in_every_summary(
    command: tuple[str, ...], tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    runs = [{"id": f"r{i}", "messages": messages} for i in range(2)]
    source.write_text("".join(json.dumps(run) + "\n" for run in runs) + "{broken\n")
    module = importlib.import_module(f"rrm.cli.{command[0]}_cmd")
    code, summary = invoke(module.command, source, *(str(out) if word == "OUT" else word for word in command[1:]))
    assert code == 1 and summary["unreadable"] == 1
    if "OUT" in command:
        assert summary["output"] == str(out) and summary["errors"] == str(tmp_path / "out.errors.jsonl")
