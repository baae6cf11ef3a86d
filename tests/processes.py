"""Process groups that tests start: what the ranks said is shown where one fails, and none is ended by what Python does after its work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
ABORTED = "exitcode  : -6"
"""What torch's launcher says of a rank that native code ended (SIGABRT): no Python of ours raises it."""
GRACE_S = 60.0
"""For a launcher that is asked to end its ranks and itself."""
MISMATCH = "collective mismatch"
"""What gloo says before it ends a rank that met another collective than its own."""


def emptied(folder: Path) -> Path:
    """The folder, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def launch(
    command: Iterable[object], *, timeout: float, prepare: Callable[[], object] = lambda: None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a module (`torch.distributed.run …`) in processes of one thread each, on the CPU.

    Where native code ended a rank it is tried once more: gloo did so once in some hundred process groups, and what it said is kept
    in a warning. Whatever aborts twice, or because processes were at unlike collectives, which is an error of ours, fails; and
    whatever raises.

    Args:
        prepare: makes the folders that the processes find, before each try.

    Raises:
        AssertionError: if one failed, with the first words that any rank said of it, and the launcher's last.
    """
    prepare()
    done = _launch(command, timeout, environment)
    if done.returncode and ABORTED in done.stderr and MISMATCH not in done.stderr:
        warnings.warn(f"native code aborted a rank, tried once more. It said:\n{_told(done)}", stacklevel=2)
        prepare()
        done = _launch(command, timeout, environment)
    assert done.returncode == 0, _told(done)
    return done


def _launch(command: Iterable[object], timeout: float, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", *map(str, command)]
    started = subprocess.Popen(
        arguments,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "agents"), str(ROOT), str(ROOT / "tests")]),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",  # a rank that is ended by a signal says where it was
            **environment,
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = started.communicate(timeout=timeout)
    except BaseException:
        # not killed at once: its ranks are sessions of their own, which it alone ends
        started.terminate()
        with suppress(subprocess.TimeoutExpired):
            started.communicate(timeout=GRACE_S)
        started.kill()
        started.wait()
        raise
    return subprocess.CompletedProcess(arguments, started.returncode, *said)


def _told(done: subprocess.CompletedProcess[str]) -> str:
    told = done.stdout[-2000:] + done.stderr
    return told if len(told) < 20_000 else f"{told[:10_000]}\n[…]\n{told[-10_000:]}"


def part() -> NoReturn:
    """End a rank whose work is done, once all are: by its own will, not through threads that the interpreter may meet at its end."""
    import torch.distributed as distributed

    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
