"""Passages: read from a user's file, and mapped from a corpus folder."""

import gzip
import json
import mmap
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from rrm.data.sizes import TooManyBytes, bounded, check_weight, lines_of
from rrm.errors import ConfigError, ReadError

Embed = Callable[[Sequence[str]], np.ndarray]  # texts → (number of texts, dimensions), float


@dataclass(frozen=True)
class Passage:
    id: str
    title: str
    text: str


def searched(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}"


def read_passages(path: str | Path) -> Iterator[Passage]:
    """Read passages: JSONL or a JSON array of `{id?, title?, text}`, gzipped or not; numbered without ids.
    Raises ReadError: the file or a line cannot be read, or only some passages have ids."""
    path = Path(path)
    try:
        with _opened(path) as file:
            lines = lines_of(file)
            first = next((line for line in lines if line.strip()), b"")
            if first.lstrip().startswith(b"["):
                items = enumerate(_parsed(path, None, b"".join(bounded([first, *lines], "this file"))), 1)
            else:
                items = ((number, _parsed(path, number, line)) for number, line in _numbered(path))
            named: bool | None = None
            for count, (number, item) in enumerate(items):
                passage = _passage(path, number, item, count)
                if named not in (None, has_id := "id" in item):
                    own, others = ("an id", "none") if has_id else ("no id", "one")
                    which = f"this passage has {own} and those before it have {others}"
                    raise ReadError(str(path), number, f"{which}: give one to each of them, or to none")
                named = has_id
                yield passage
    except (OSError, EOFError, zlib.error, TooManyBytes) as error:
        raise ReadError(str(path), None, f"passages cannot be read: {error}") from error


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else open(path, "rb")


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    with _opened(path) as lines:
        for number, line in enumerate(lines_of(lines), 1):
            if line.strip():
                yield number, line


def _parsed(path: Path, number: int | None, text: bytes) -> Any:
    try:
        check_weight(text, "this")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(str(path), number, f"not JSON: {error}") from error


def _passage(path: Path, number: int, item: object, count: int) -> Passage:
    if not isinstance(item, dict):
        raise ReadError(str(path), number, f"a passage is an object with title and text, not a {type(item).__name__}")
    title, text, name = item.get("title", ""), item.get("text"), item.get("id", count)
    if not isinstance(text, str) or not isinstance(title, str) or not (text.strip() or title.strip()):
        raise ReadError(str(path), number, "a passage needs `text`, and its `title` is text if it has one")
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ReadError(str(path), number, f"an id is text or a number, not {name!r}")
    return Passage(str(name), title, text)


class Passages(Sequence[Passage]):
    """The passages of a folder, mapped: only those asked for are read. Safe from several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        with open(folder / "passages.jsonl", "rb") as file:
            self.lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if int(self.offsets[-1]) != len(self.lines):
            raise ConfigError(
                f"{folder}: passages.jsonl is not the file its offsets were made of; build the corpus anew"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Passage:  # pyright: ignore[reportIncompatibleMethodOverride] - no slices
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Passage(**json.loads(self.lines[int(self.offsets[index]) : int(self.offsets[index + 1])]))
