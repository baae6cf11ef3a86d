"""Weights that are damaged: an error that names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rrm.errors import RRMError


@contextmanager
def named_damage(*places: str | Path) -> Iterator[None]:
    """What loads weights from folders (or hub ids).

    Raises:
        RRMError: a `*.safetensors` file of theirs is cut off, or is none.
    """
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        files = [
            str(file) for place in places for file in sorted(Path(place).glob("*.safetensors")) if _is_damaged(file)
        ]
        found = ", ".join(files or map(str, places))
        raise RRMError(f"{found}: the weights are damaged ({error}); copy or fetch them again") from error


def _is_damaged(file: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            return False
    except SafetensorError:
        return True
