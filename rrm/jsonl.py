"""JSON lines: one object a line, blank lines passed over, and errors that name the line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rrm.errors import ReadError

T = TypeVar("T")


def read_lines(path: str | Path, parse: Callable[[str], T], what: str) -> Iterator[T]:
    """`parse(line)` of each line that is not blank.

    Args:
        parse: raises ValueError or TypeError on a line that is not `what`.
        what: what a line should be, as in "not an episode".

    Raises:
        ReadError: the file cannot be opened; or with path and line on the first line that is not `what`.
    """
    try:
        lines = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error
    with lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield parse(line.decode("utf-8"))
                except (ValueError, TypeError) as error:
                    raise ReadError(str(path), number, f"not {what}: {error}") from error


def write_lines(path: str | Path, lines: Iterable[str], append: bool = False) -> int:
    """Write ASCII lines as they come, each ended by a newline; returns how many were written."""
    count = 0
    with open(path, "a" if append else "w", encoding="ascii") as out:
        for line in lines:
            out.write(line + "\n")
            count += 1
    return count
