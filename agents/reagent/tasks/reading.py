"""Published files to rows, and rows to what a task needs, with errors that name file and line.

JSON, JSONL and parquet, each plain or gzipped, and `hf:owner/name:split` are read as transcripts are
(`rrm.readers.sources`); CSV, in which some sets are published, is read here. No code of a data set is run.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrm.data.output import write_lines
from rrm.data.sizes import BLOCK, bounded, inflated
from rrm.errors import ReadError
from rrm.readers.archive import Archive
from rrm.readers.sources import values

_CELL_CHARS = 16 * 1024 * 1024
"""Longest cell of a CSV file: encrypted texts and data URIs are longer than Python's default allows."""


@dataclass(frozen=True)
class SourceRow:
    """One record of a published file, and where it stood."""

    data: Mapping[str, Any]
    path: str
    line: int | None

    def error(self, reason: str) -> ReadError:
        """An error that names this row."""
        return ReadError(self.path, self.line, reason)

    def get(self, *names: str) -> Any:
        """The first of these fields that is there and is not null; None without any."""
        return next((self.data[name] for name in names if self.data.get(name) is not None), None)

    def text(self, *names: str) -> str:
        """The first of these fields as text that is not blank; whole numbers count as text. Raises ReadError: none is there, or it is
        something else."""
        found = self.get(*names)
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        if not isinstance(found, str) or not found.strip():
            there = ", ".join(sorted(self.data)) or "none"
            raise self.error(f"no text under {' or '.join(map(repr, names))}; the row's fields are: {there}")
        return found

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts; none where it is absent. Raises ReadError: it is something else."""
        found = self.get(name)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.error(f"{name!r} must be a list of texts")
        return list(found)

    def lowered(self) -> SourceRow:
        """The row with its field names in lower case, and those of the objects in it."""
        return SourceRow(_lowered(self.data), self.path, self.line)


def _lowered(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): _lowered(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def read_rows(path: str | Path) -> Iterator[SourceRow]:
    """The records of a published file, of each line or of the one list it holds. Raises ReadError: no such file, broken from some line on,
    or something in it that is no record."""
    where = str(path)
    if where.removesuffix(".gz").lower().endswith(".csv"):
        yield from _csv(where)
        return
    for value in values(where):
        if isinstance(value, ReadError):
            raise value
        if isinstance(value, Archive):
            raise ReadError(where, None, "a zip archive: unpack it and name the file in it")
        found = value.data if value.whole and isinstance(value.data, list) else [value.data]
        for number, data in enumerate(found, 1):
            line = number if found is value.data else value.line
            if not isinstance(data, dict):
                raise ReadError(where, line, f"a record must be an object, this is a {type(data).__name__}")
            yield SourceRow(data, where, line)


def _csv(path: str) -> Iterator[SourceRow]:
    """Rows of a CSV file with a header; every value is text, empty ones None."""
    limit = csv.field_size_limit(_CELL_CHARS)
    try:
        with open(path, "rb") as file:
            blocks = iter(lambda: file.read(BLOCK), b"")
            blocks = inflated(blocks) if path.lower().endswith(".gz") else blocks
            text = b"".join(bounded(blocks, "the file")).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        for number, data in enumerate(reader, 1):
            if None in data or None in data.values():
                raise ReadError(path, number, f"row {number} has other columns than the header: {reader.fieldnames}")
            yield SourceRow({key: value or None for key, value in data.items()}, path, number)
    except OSError as error:
        raise ReadError(path, None, f"cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReadError(path, None, f"not a CSV file in UTF-8: {error}") from error
    except ValueError as error:  # damaged, or beyond `most_bytes`
        raise ReadError(path, None, f"cannot be unpacked: {error}") from error
    finally:
        csv.field_size_limit(limit)


@dataclass(frozen=True)
class GivenPassage:
    """A text that a question comes with: a paragraph of an encyclopedia."""

    title: str
    text: str


def write_passages(path: str | Path, passages: Iterable[GivenPassage]) -> int:
    """Passages as JSONL, `{"id", "title", "text"}`, numbered from 0; returns how many."""
    rows = ({"id": str(number), "title": p.title, "text": p.text} for number, p in enumerate(passages))
    return write_lines(path, (json.dumps(row) for row in rows))


def distinct(passages: Iterable[GivenPassage]) -> Iterator[GivenPassage]:
    """Each passage once, in order of appearance."""
    return iter(dict.fromkeys(passages))


def titled(row: SourceRow, pairs: Any, name: str) -> list[tuple[str, Any]]:
    """(title, what stands beside it) of a field in HotpotQA's form, `[[title, value], …]`, or in that of its parquet copies, `{title: […],
    <other>: […]}`. Raises ReadError: neither."""
    if isinstance(pairs, dict) and isinstance(pairs.get("title"), list) and len(pairs) == 2:
        other = next(value for key, value in pairs.items() if key != "title")
        pairs = list(zip(pairs["title"], other, strict=False)) if isinstance(other, Sequence) else None
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise row.error(f"{name!r} must be a list of pairs that begin with a title")
    return [(pair[0], pair[1]) for pair in pairs]
