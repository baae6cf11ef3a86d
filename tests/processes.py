"""Process groups that tests start: what the ranks said is shown where one fails, and none is ended by what Python does after its work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]


def launch(command: Iterable[object], *, timeout: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module (`torch.distributed.run …`) in processes of one thread each, on the CPU.

    Raises:
        AssertionError: if one failed, with the first words that any rank said of it, and the launcher's last.
    """
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "agents"), str(ROOT), str(ROOT / "tests")]),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",  # a rank that is ended by a signal says where it was
            **environment,
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    told = done.stdout[-2000:] + done.stderr
    assert done.returncode == 0, told if len(told) < 20_000 else f"{told[:10_000]}\n[…]\n{told[-10_000:]}"
    return done


def part() -> NoReturn:
    """End a rank whose work is done, once all are: by its own will, not through threads that the interpreter may meet at its end."""
    import torch.distributed as distributed

    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
