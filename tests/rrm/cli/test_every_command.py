"""What every command has: a version, and an end that is said."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rrm import __version__

MAIN = "from {0}.cli import main; main()"


@pytest.mark.parametrize("package", ["rrm", "reagent"])
def test_version(package: str) -> None:
    run = subprocess.run([sys.executable, "-c", MAIN.format(package), "--version"], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"agent-rrm {__version__}\n", "")


def test_termination_is_said_as_an_interruption_is(tmp_path: Path) -> None:
    """SIGTERM (a queue's or a container's way to stop a run) ended it without a word."""
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", MAIN.format("rrm"), "convert", "-", "-o", str(out)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out.jsonl.part").exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 143 and "terminated; run the same command again to continue" in said
    assert list(tmp_path.iterdir()) == []
