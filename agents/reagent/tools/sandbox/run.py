"""Run Python that nobody trusts: a process of its own in a world of its own, or not at all.

    outcome = run("print(6 * 7)")
    outcome.ending, outcome.output      # Ending.ok, "42\\n"

What the program has: the interpreter and its packages (read-only), `/scratch` (in memory, bounded, empty at each start, gone at
the end), `/files` where asked for (read-only), a few devices. What it has not: any other file, network or sockets, the
caller's environment, other processes, capabilities, a way to get more. Linux only (5.12 or later; 5.14 counts processes
right), as root or where user namespaces are open to users; elsewhere `SandboxUnavailable`.
"""

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


class SandboxUnavailable(RRMError):
    """This machine cannot isolate a program, so none is run."""


class Ending(StrEnum):
    """How a program ended. There is no other way."""

    ok = "ok"
    """It exited with 0."""
    error = "error"
    """It exited with another code: an exception nobody caught, `sys.exit(1)`."""
    crashed = "crashed"
    """A fault killed it (segmentation fault, abort)."""
    timeout = "timeout"
    """Wall clock or processor time was up."""
    memory = "memory"
    """One process, or all together, needed more memory than there is."""
    output = "output"
    """It wrote more than is read."""
    killed = "killed"
    """Something else ended it: itself, the kernel, or the caller's end."""
    refused = "refused"
    """Not run: isolation is missing on this machine."""


@dataclass(frozen=True)
class SandboxLimits:
    """What a program may use."""

    wall_s: float = 10.0
    cpu_s: int = 10
    """Processor seconds, of each process and of all together."""
    memory_mb: int = 512
    """Address space of each process, and resident memory of all together (sampled every 20 ms; shared pages count for each, an open
    socket as 320 KB, which is what the kernel may hold for it)."""
    scratch_mb: int = 32
    """Size of /scratch and of the largest file."""
    output_bytes: int = 64_000
    """Standard output and standard error together."""
    processes: int = 32
    """Processes and threads at a time."""
    open_files: int = 128

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"sandbox limit {name} must be above 0, got {value}")


@dataclass(frozen=True)
class SandboxResult:
    """How a run ended and what it wrote."""

    ending: Ending
    output: str = ""
    """Standard output and error in the order they were written; undecodable bytes replaced."""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    """Wall clock, building the sandbox included."""
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    """The most that was seen at a sample."""
    reason: str = ""
    """Why it was refused."""


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
"""This project's packages: a program that imports them has the graders. Where they lie among the interpreter's, an empty folder lies
over each."""
_START = "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.supervisor import main; main()"
CODE_CHARS = 1_000_000
"""Of a program; the file system that holds it (`jail.ROOT_BYTES`) has room for so many."""
GRACE_S = 10.0
"""Beyond the wall clock's limit, for a supervisor that itself hangs."""


def _shown() -> list[str]:
    """What a program sees of the interpreter's folders: itself, its libraries and its packages. A virtual environment may lie in
    a project's own folder, of which nothing else is shown."""
    folders = [os.path.join(sys.base_prefix, name) for name in ("bin", "lib", "lib32", "lib64")]
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    own = [os.path.join(sys.prefix, name) for name in ("bin", "pyvenv.cfg")]
    return [path for path in dict.fromkeys([*folders, *packages, *own]) if os.path.exists(path)]


def _interpreter() -> dict[str, Any]:
    """Where the interpreter and its packages lie. Raises SandboxUnavailable: somebody's files lie there too."""
    library = sysconfig.get_config_var("LIBDIR") or ""
    shown = _shown()
    private = {"home folder": Path.home().resolve()}
    with contextlib.suppress(FileNotFoundError):  # it may have been deleted
        private["working folder"] = Path(os.getcwd())
    for (what, folder), place in itertools.product(private.items(), shown):
        if folder.is_relative_to(os.path.realpath(place)):
            raise SandboxUnavailable(
                f"the {what} {folder} lies in the interpreter's {place}, which a sandboxed program sees: use a Python of its own, for "
                "example in a virtual environment"
            )
    # no /proc in there: an interpreter whose libpython lies beside it ($ORIGIN) finds it by this
    libraries = ":".join(dict.fromkeys([os.path.join(sys.base_prefix, "lib"), *([library] if library else [])]))
    return {
        "python": os.path.join(sys.prefix, "bin", os.path.basename(sys.executable)),
        "interpreter": shown,
        "hidden": [str(package.resolve()) for package in _OURS],
        "environment": _ENVIRONMENT | {"LD_LIBRARY_PATH": libraries},
    }


def run(code: str, limits: SandboxLimits | None = None, files: str | Path | None = None) -> SandboxResult:
    """Run a program to its end or to a limit. Blocks; safe from several threads at once.

    Args:
        files: a folder the program may read, as `/files`.

    Raises:
        SandboxUnavailable: home or working folder would be seen.
        ValueError: the program has more than `CODE_CHARS` characters.
    """
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
    said = _ask(json.dumps(request), limits.wall_s + GRACE_S)
    memory = said.pop("memory_bytes", 0)
    return SandboxResult(**said | {"ending": Ending(said["ending"]), "memory_mb": round(memory / (1 << 20), 1)})


def _ask(request: str, timeout_s: float) -> dict[str, Any]:
    """Start a supervisor and wait for its answer. Its input stays open meanwhile: were we to die, it would see that, or us, gone."""
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
    """Whether this machine can isolate a program, tried once by running one. Raises SandboxUnavailable: saying what is missing."""
    outcome = run("print(6 * 7)", SandboxLimits(wall_s=30.0))
    if (outcome.ending, outcome.output) != (Ending.ok, "42\n"):
        raise SandboxUnavailable(
            f"no sandbox on this machine: {outcome.reason or outcome.output[-300:] or outcome.ending}. Programs run nowhere else"
        )
