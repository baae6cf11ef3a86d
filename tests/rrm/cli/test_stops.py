"""Ctrl-C and SIGTERM, whenever they come: the command ends, with its exit code and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SENT = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
KILL = "import os, signal\nos.kill(os.getpid(), signal.{name})\n"
SWALLOWED = {
    "amid an import that catches whatever comes up": (
        "try:\n    import stopped\nexcept BaseException:\n    pass\n"
        "def main():\n    for _ in range(10**9): pass\n    print('ran on')\n",
        KILL + "for _ in range(10**6): pass\n",
    ),
    "in a finaliser": (
        "def main():\n    import stopped\n    stopped.Last()\n    for _ in range(10**9): pass\n    print('ran on')\n",
        "import os, signal\nclass Last:\n    def __del__(self):\n        os.kill(os.getpid(), signal.{name})\n",
    ),
}


def ended(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program's end; SIGINT is not ignored in it, as a shell's background has it."""
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", heard + program, *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


@pytest.mark.parametrize(("sent", "code", "said"), SENT)
@pytest.mark.parametrize("where", list(SWALLOWED))
def test_a_stop_that_is_swallowed_is_raised_again(
    tmp_path: Path, where: str, sent: signal.Signals, code: int, said: str
) -> None:
    """One in 64 was swallowed, and the command ran on."""
    victim, stopped = SWALLOWED[where]
    (tmp_path / "victim.py").write_text(victim)
    (tmp_path / "stopped.py").write_text(stopped.format(name=sent.name))
    found = ended(tmp_path, "from rrm.data.stop_signals import command; command('victim')")
    assert (found.returncode, found.stdout, found.stderr.strip()) == (code, "", said)


@pytest.mark.parametrize(("sent", "code", "said"), SENT)
@pytest.mark.parametrize("module", ["rrm.data.stop_signals", "rrm.cli", "typer", "rrm.cli.convert_cmd"])
def test_a_stop_while_a_command_is_imported(
    tmp_path: Path, module: str, sent: signal.Signals, code: int, said: str
) -> None:
    """Before its first line it was a traceback, and SIGINT itself for an exit code (-2)."""
    program = (
        "import os, runpy, sys\n"
        "class Sends:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.{sent.name})\n"
        "sys.meta_path.insert(0, Sends())\n"
        "runpy.run_module('rrm', run_name='__main__')\n"
    )
    found = ended(tmp_path, program, "convert", "-", "-o", "-")
    assert found.returncode == code and "Traceback" not in found.stderr, found.stderr
    assert said in found.stderr and found.stdout == ""


@pytest.mark.parametrize("program", ["rrm", "reagent"])
def test_next_to_nothing_is_imported_before_signals_are_taken(tmp_path: Path, program: str) -> None:
    """A Ctrl-C meanwhile is Python's own, a traceback and no exit code; `typing` alone took longer than all the rest."""
    looked = f"import sys; before = set(sys.modules); import {program}.__main__; print(*set(sys.modules) - before)"
    found = set(ended(tmp_path, looked).stdout.split())
    assert found <= {
        "__future__",
        program,
        f"{program}.__main__",
        "rrm",
        "rrm.moved",
        "reagent.moved",
        "rrm.data",
        "rrm.data.earliest_signals",
    }, found


@pytest.mark.parametrize(("sent", "code", "said"), SENT)
def test_a_second_one_waits_for_nothing(tmp_path: Path, sent: signal.Signals, code: int, said: str) -> None:
    """An import may hang."""
    (tmp_path / "victim.py").write_text(KILL.format(name=sent.name) * 2 + "for _ in range(10**9): pass\n")
    found = ended(tmp_path, "from rrm.data.stop_signals import command; command('victim')")
    assert (found.returncode, found.stderr.strip()) == (code, said)


def test_a_stop_after_the_end_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "victim.py").write_text(
        "import atexit\ndef main():\n    atexit.register(stop)\ndef stop():\n    "
        + "; ".join(KILL.format(name="SIGTERM").split("\n"))
    )
    found = ended(tmp_path, "from rrm.data.stop_signals import command; command('victim')")
    assert (found.returncode, found.stderr) == (0, "")
