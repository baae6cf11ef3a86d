"""JSON lines: one object a line, blank lines skipped, errors that name the line; no NaN and Infinity."""

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
BLOCK = 65536  # bytes per read when looking for the last line's end


def read_lines(path: str | Path, parse: Callable[[str], T], noun: str, *, begins: str | None = None) -> Iterator[T]:
    """Yield `parse(line)` of each line that is not blank.

    Args:
        parse: raises ValueError or TypeError on a bad line.
        noun: what a line should be, as in "not an episode".
        begins: start of all lines of a file that `append_line` writes: a half-written last line is then skipped.

    Raises:
        ReadError: the file cannot be opened; or the first bad line, with path and line.
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
                        raise ReadError(str(path), number, f"not {noun}: {describe(error)}") from error
        except TooManyBytes as error:
            raise ReadError(str(path), number + 1, str(error)) from error


def _is_torn(line: bytes, begins: bytes) -> bool:
    return not line.endswith(b"\n") and (line.startswith(begins) or begins.startswith(line))


def append_line(path: str | Path, line: str) -> None:
    """Append one ASCII line, safe against several writers (`PATH.lock`) and kills; raises `RRMError`."""
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
    """Truncate after the last newline; returns whether anything was cut."""
    end = complete = file.seek(0, os.SEEK_END)
    while complete:
        start = max(complete - BLOCK, 0)
        file.seek(start)
        newline = file.read(complete - start).rfind(b"\n")
        if newline >= 0:
            complete = start + newline + 1
            break
        complete = start
    if complete < end:
        file.truncate(complete)
    return complete < end


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no JSON number")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _refused(text)


# keeps NaN, Infinity and numbers beyond a double as text
DECODER = json.JSONDecoder(parse_constant=str, parse_float=_float)
_STRICT = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def strict(text: str) -> Any:
    """Parse one JSON value; raises `ValueError`, also for NaN, Infinity and numbers beyond a double."""
    return _STRICT.decode(text)
