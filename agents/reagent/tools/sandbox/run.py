"""Run untrusted Python in an isolated process, or not at all.

    outcome = run("print(6 * 7)")
    outcome.ending, outcome.output      # Ending.ok, "42\\n"

A program has the interpreter and its packages (read-only), `/scratch` (in memory, bounded, emptied after each run), `/files` on request
(read-only) and a few devices; no other file, network or sockets, environment, processes or capabilities. Linux only (5.12 or later; 5.14
counts processes right), as root or where user namespaces are open to users; elsewhere an `RRMError`."""

import contextlib
import functools
import itertools
import json
import os
import site
import subprocess
import sys
import sysconfig
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import rrm
from rrm.errors import RRMError


class Ending(StrEnum):
    ok = "ok"  # it exited with 0
    error = "error"  # another exit code: an uncaught exception, `sys.exit(1)`
    crashed = "crashed"  # a segmentation fault or an abort
    timeout = "timeout"  # wall clock or processor time was up
    memory = "memory"  # one process, or all together, needed too much
    output = "output"  # it wrote too much
    killed = "killed"  # killed by itself, the kernel, or the caller's end
    refused = "refused"  # not run: isolation is missing on this machine


@dataclass(frozen=True)
class SandboxLimits:
    wall_s: float = 10.0
    cpu_s: int = 10  # processor seconds, of each process and of all together
    memory_mb: int = 512
    """Address space of each process, and resident memory of all together.
    Sampled every 20 ms; shared pages count for each, an open socket as 320 KB, the kernel's limit for it."""
    scratch_mb: int = 32  # size of /scratch and of the largest file
    output_bytes: int = 64_000  # standard output and standard error together
    processes: int = 32  # processes and threads at a time
    open_files: int = 128

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"sandbox limit {name} must be above 0, got {value}")


@dataclass(frozen=True)
class SandboxResult:
    """A run's ending and output."""

    ending: Ending
    output: str = ""  # standard output and error in the order they were written; undecodable bytes replaced
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0  # wall clock, building the sandbox included
    cpu_s: float = 0.0
    memory_mb: float = 0.0  # the highest sample
    reason: str = ""  # of a refusal


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/scratch",
    "TMPDIR": "/scratch",
    "MPLCONFIGDIR": "/scratch",
    "MPLBACKEND": "Agg",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    # threads and their arenas cost address space, which is limited
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")},
    "MALLOC_ARENA_MAX": "2",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_OURS = (Path(rrm.__file__).parent, Path(__file__).parents[2])
"""This project's packages, which hold the graders; empty folders hide them."""
_START = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.supervisor import main; main()"
CODE_CHARS = 1_000_000  # longest program; `jail.ROOT_BYTES` has room for it
GRACE_S = 10.0  # beyond the wall clock's limit, for a supervisor that itself hangs


def _shown() -> list[str]:
    """The interpreter's paths that a program sees: itself, its libraries and its packages.
    A virtual environment may lie in a project's folder, of which nothing else is shown."""
    folders = [os.path.join(sys.base_prefix, name) for name in ("bin", "lib", "lib32", "lib64")]
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    own = [os.path.join(sys.prefix, name) for name in ("bin", "pyvenv.cfg")]
    return [path for path in dict.fromkeys([*folders, *packages, *own]) if os.path.exists(path)]


def _interpreter() -> dict[str, Any]:
    """Paths of the interpreter and its packages. Raises RRMError: the user's files lie there."""
    library = sysconfig.get_config_var("LIBDIR") or ""
    visible = _shown()
    private = {"home folder": Path.home().resolve()}
    with contextlib.suppress(FileNotFoundError):  # it may have been deleted
        private["working folder"] = Path(os.getcwd())
    for (name, folder), path in itertools.product(private.items(), visible):
        if folder.is_relative_to(os.path.realpath(path)):
            raise RRMError(
                f"the {name} {folder} lies in the interpreter's {path}, which a sandboxed program sees: use a Python of its own, for "
                "example in a virtual environment"
            )
    # no /proc in there: an interpreter whose libpython lies beside it ($ORIGIN) finds it by this
    libraries = ":".join(dict.fromkeys([os.path.join(sys.base_prefix, "lib"), *([library] if library else [])]))
    return {
        "python": os.path.join(sys.prefix, "bin", os.path.basename(sys.executable)),
        "interpreter": visible,
        "hidden": [str(package.resolve()) for package in _OURS],
        "environment": _ENVIRONMENT | {"LD_LIBRARY_PATH": libraries},
    }


def run(code: str, limits: SandboxLimits | None = None, files: str | Path | None = None) -> SandboxResult:
    """Run a program to its end or to a limit. Blocks; safe from several threads at once.
    `files`: a folder the program may read, as `/files`. Raises RRMError: home or working folder would be seen; ValueError: the
    program has more than `CODE_CHARS` characters."""
    if len(code) > CODE_CHARS:
        raise ValueError(f"the program has {len(code)} characters, and {CODE_CHARS} are taken at most")
    limits = limits or SandboxLimits()
    request = _interpreter() | {
        "caller": os.getpid(),
        "code": code,
        "files": None if files is None else os.path.abspath(files),
        "wall_s": limits.wall_s,
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_mb << 20,
        "scratch_bytes": limits.scratch_mb << 20,
        "output_bytes": limits.output_bytes,
        "processes": limits.processes,
        "open_files": limits.open_files,
    }
    answer = _ask(json.dumps(request), limits.wall_s + GRACE_S)
    memory = answer.pop("memory_bytes", 0)
    return SandboxResult(**answer | {"ending": Ending(answer["ending"]), "memory_mb": round(memory / (1 << 20), 1)})


def _ask(request: str, timeout_s: float) -> dict[str, Any]:
    """Start a supervisor and wait for its answer. It ends where its input closes."""
    command = [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parents[1])]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LANG": "C.UTF-8"} | {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"},
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin and process.stdout
    alarm = threading.Timer(timeout_s, process.kill)
    alarm.start()
    with process.stdin, process.stdout:
        try:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.read()
        except BrokenPipeError:
            answer = b""
        finally:
            alarm.cancel()
            process.kill()  # it has answered or failed; where it has not, the sandbox dies with it
            process.wait()
    try:
        return json.loads(answer)
    except ValueError:
        return {"ending": "killed", "reason": "the sandbox's supervisor ended without an answer"}


@functools.cache
def check() -> None:
    """Run a program once, to test isolation. Raises RRMError: the message says what is missing."""
    outcome = run("print(6 * 7)", SandboxLimits(wall_s=30.0))
    if (outcome.ending, outcome.output) != (Ending.ok, "42\n"):
        raise RRMError(
            f"no sandbox on this machine: {outcome.reason or outcome.output[-300:] or outcome.ending}. Programs run nowhere else"
        )
