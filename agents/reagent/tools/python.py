"""`python`: run a program in the sandbox, never in this process or without isolation."""

import ast
import os
import stat
from pathlib import Path

from reagent.env.tool import Tool, shorten, tool
from reagent.errors import ToolError
from reagent.tools.sandbox.run import CODE_CHARS, GRACE_S, Ending, SandboxLimits, SandboxResult, check, run
from rrm.errors import ConfigError

_ENDED = "; what it wrote:\n"
_SAID = {
    Ending.timeout: "stopped: {wall_s:g} s of wall clock or {cpu_s} s of processor time were up",
    Ending.memory: "stopped: it needed more than {memory_mb} MB of memory",
    Ending.output: "stopped: it wrote more than {output_bytes} bytes",
    Ending.crashed: "it crashed (signal {signal})",
    Ending.killed: "it was killed",
    Ending.refused: "not run: {reason}",
}
_KINDS = {Ending.error: "failed", Ending.killed: "crashed"}
"""Kinds of errors, after `program_`, where they are not the ending's name."""
_SHOWN_CHARS = 2000


def describe(outcome: SandboxResult, limits: SandboxLimits) -> str:
    how = _SAID.get(outcome.ending, "it ended with exit code {exit_code}").format(
        **vars(limits), signal=outcome.signal, reason=outcome.reason, exit_code=outcome.exit_code
    )
    text = outcome.output.strip()
    room = _SHOWN_CHARS - len(how) - len(_ENDED)
    return how + _ENDED + shorten(text, room)[0] if text else how


_FILES_SAID = "Files that come with the task lie in the folder /files, to be read only."
"""Added with `files`: an agent told only a file's name looks in the current folder."""
_UNREADABLE = """
import itertools, os
def refuse(error):
    print(ascii(os.fsdecode(error.filename)))
    raise SystemExit
files = ((folder, name) for folder, _, names in os.walk("/files", onerror=refuse) for name in names)
for folder, name in itertools.islice(files, 10_000):
    path = os.path.join(folder, name)
    if not os.path.islink(path) and not os.access(path, os.R_OK):
        print(ascii(path))
        break
"""
"""Prints the first file or folder that a program may not read."""


def _check_files(files: str) -> None:
    """Look at the folder as a program will: as a user of its own, outside the folder's owner and group.
    Raises ConfigError: something in it cannot be read."""
    outcome = run(_UNREADABLE, SandboxLimits(wall_s=30.0, cpu_s=30), files)
    where = "tools.python: files:"
    if outcome.ending is not Ending.ok:
        raise ConfigError(
            f"{where} {files} cannot be looked at ({outcome.ending}: {outcome.reason or outcome.output[-200:]})"
        )
    if outcome.output:
        path = files + ast.literal_eval(outcome.output).removeprefix("/files")
        mode = stat.S_IMODE(os.stat(path).st_mode)
        raise ConfigError(
            f"{where} programs run as a user of their own, who may not read {path} (mode {mode:04o}); chmod -R o+rX {files}"
        )


def python_tools(
    files: str | None = None,
    max_concurrency: int = 4,
    max_result_chars: int = 8000,
    wall_s: float = SandboxLimits.wall_s,
    cpu_s: int = SandboxLimits.cpu_s,
    memory_mb: int = SandboxLimits.memory_mb,
    scratch_mb: int = SandboxLimits.scratch_mb,
    output_bytes: int = SandboxLimits.output_bytes,
    processes: int = SandboxLimits.processes,
    open_files: int = SandboxLimits.open_files,
) -> list[Tool]:
    """Make the tool `python`. Every call has its own process and scratch folder.

    Args:
        files: a folder that programs may read, as /files.
        max_concurrency: programs that run at once.
        wall_s: and the others: `reagent.tools.sandbox.run.SandboxLimits`.

    Raises:
        RRMError: this machine cannot isolate programs.
        ConfigError: a limit out of range, no such folder, or something in it that programs may not read.
    """
    try:
        limits = SandboxLimits(wall_s, cpu_s, memory_mb, scratch_mb, output_bytes, processes, open_files)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tools.python: {error}") from error
    if files is not None and not Path(files).is_dir():
        raise ConfigError(f"tools.python: files: there is no folder {files}")
    check()
    if files is not None:
        _check_files(files)

    @tool(timeout_s=wall_s + GRACE_S, max_concurrency=max_concurrency, max_result_chars=max_result_chars)
    def python(code: str) -> str:
        """Run a Python 3 program and read what it prints. There is no network; files can be written to the current folder and are
        gone with the program's end.

        Args:
            code: The whole program. Print what you want to know.
        """
        if len(code) > CODE_CHARS:
            raise ToolError(
                f"the program has {len(code)} characters, and {CODE_CHARS} are taken at most", "bad_arguments"
            )
        outcome = run(code, limits, files)
        if outcome.ending is Ending.ok:
            return outcome.output
        error_kind = _KINDS.get(outcome.ending, outcome.ending)
        raise ToolError(describe(outcome, limits), f"program_{error_kind}", shown_chars=_SHOWN_CHARS)

    if files is not None:
        python.schema["function"]["description"] += f" {_FILES_SAID}"
    return [python]
