"""JSON lines: one object a line, blank lines passed over, errors that name the line; and JSON whose numbers are numbers: Python
reads and writes NaN and Infinity, which are no JSON and which other readers refuse."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

from rrm.data.printing import describe
from rrm.data.sizes import TooManyBytes, lines_of
from rrm.errors import ReadError, RRMError

T = TypeVar("T")
BLOCK = 65536
"""Bytes that are looked at at once for the end of the last line."""


def read_lines(path: str | Path, parse: Callable[[str], T], what: str, *, begins: str | None = None) -> Iterator[T]:
    """`parse(line)` of each line that is not blank.

    Args:
        parse: raises ValueError or TypeError on a line that is not `what`.
        what: what a line should be, as in "not an episode".
        begins: how every line begins, in a file that `append_line` writes: what begins so and has no newline is the half-written end
            that the next writer cuts off, and is passed over. None: the last line needs no newline.

    Raises:
        ReadError: the file cannot be opened; or with path and line on the first line that is not `what`.
    """
    try:
        lines = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error
    number = 0
    with lines:
        try:
            for number, line in enumerate(lines_of(lines), 1):
                if line.strip() and not (begins and _is_torn(line, begins.encode("ascii"))):
                    try:
                        yield parse(line.decode("utf-8"))
                    except (ValueError, TypeError) as error:
                        raise ReadError(str(path), number, f"not {what}: {describe(error)}") from error
        except TooManyBytes as error:
            raise ReadError(str(path), number + 1, str(error)) from error


def _is_torn(line: bytes, begins: bytes) -> bool:
    return not line.endswith(b"\n") and (line.startswith(begins) or begins.startswith(line))


def append_line(path: str | Path, line: str) -> None:
    """Add one ASCII line to a file that several processes may write and any of them may be killed at.

    One writer at a time (`PATH.lock`); a half-written end that a killed one left is cut off; the line is on disk on return.

    Raises:
        RRMError: the path is a folder or a pipe, or cannot be written.
    """
    from filelock import FileLock

    path = Path(path)
    if path.exists() and not path.is_file():
        raise RRMError(f"{path} is not a file: lines are added to it; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"), open(path, "ab+") as file:
            cut_half_line(file)
            file.write(line.encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RRMError(f"cannot write {path}: {error.strerror}") from error


def cut_half_line(file: IO[bytes]) -> bool:
    """Cut off what stands behind the last newline; whether there was something."""
    end = whole = file.seek(0, os.SEEK_END)
    while whole:
        start = max(whole - BLOCK, 0)
        file.seek(start)
        at = file.read(whole - start).rfind(b"\n")
        if at >= 0:
            whole = start + at + 1
            break
        whole = start
    if whole < end:
        file.truncate(whole)
    return whole < end


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no JSON number")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _refused(text)


DECODER = json.JSONDecoder(parse_constant=str, parse_float=_float)
"""NaN, Infinity and numbers beyond a double are kept as text: they are not JSON and would poison what we write."""
_STRICT = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def strict(text: str) -> Any:
    """One JSON value; `ValueError` where it is none, or holds NaN, Infinity or a number beyond a double."""
    return _STRICT.decode(text)
