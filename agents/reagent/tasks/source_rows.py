"""Reads published files into rows, and rows into the parts of a task; errors name file and line.

JSON, JSONL and parquet, plain or gzipped, and `hf:owner/name:split` are read as transcripts are (`rrm.readers.sources`); CSV is read here.
No code of a data set is run."""

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
"""Longest cell of a CSV file; Python's default is too short for encrypted texts and data URIs."""


@dataclass(frozen=True)
class SourceRow:
    """One record of a published file, and its position."""

    data: Mapping[str, Any]
    path: str
    line: int | None

    def error(self, reason: str) -> ReadError:
        return ReadError(self.path, self.line, reason)

    def get(self, *names: str) -> Any:
        """The first of these fields that is there and is not null; None without any."""
        return next((self.data[name] for name in names if self.data.get(name) is not None), None)

    def text(self, *names: str) -> str:
        """The first of these fields as text that is not blank, or a whole number. Raises ReadError: none."""
        value = self.get(*names)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            there = ", ".join(sorted(self.data)) or "none"
            raise self.error(f"no text under {' or '.join(map(repr, names))}; the row's fields are: {there}")
        return value

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts; none where it is absent. Raises ReadError: it is something else."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.error(f"{name!r} must be a list of texts")
        return list(value)

    def lowered(self) -> SourceRow:
        """The row with its field names in lower case, nested objects included."""
        return SourceRow(_lowered(self.data), self.path, self.line)


def _lowered(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): _lowered(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def read_rows(path: str | Path) -> Iterator[SourceRow]:
    """The records of a published file, one a line or in one list.
    Raises ReadError: no such file, broken from some line on, or something in it that is no record."""
    where = str(path)
    if where.removesuffix(".gz").lower().endswith(".csv"):
        yield from _csv(where)
        return
    for value in values(where):
        if isinstance(value, ReadError):
            raise value
        if isinstance(value, Archive):
            raise ReadError(where, None, "a zip archive: unpack it and name the file in it")
        records = value.data if value.whole and isinstance(value.data, list) else [value.data]
        for number, data in enumerate(records, 1):
            line = number if records is value.data else value.line
            if not isinstance(data, dict):
                raise ReadError(where, line, f"a record must be an object, this is a {type(data).__name__}")
            yield SourceRow(data, where, line)


def _csv(path: str) -> Iterator[SourceRow]:
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
    title: str
    text: str


def write_passages(path: str | Path, passages: Iterable[GivenPassage]) -> int:
    """Write passages as JSONL, `{"id", "title", "text"}`, numbered from 0; returns how many."""
    rows = ({"id": str(number), "title": p.title, "text": p.text} for number, p in enumerate(passages))
    return write_lines(path, (json.dumps(row) for row in rows))


def distinct(passages: Iterable[GivenPassage]) -> Iterator[GivenPassage]:
    return iter(dict.fromkeys(passages))


def titled(row: SourceRow, pairs: Any, name: str) -> list[tuple[str, Any]]:
    """(title, value) pairs of a field in HotpotQA's form, `[[title, value], …]`, or that of its copies.
    The latter is `{title: […], <other>: […]}`. Raises ReadError: neither."""
    if isinstance(pairs, dict) and isinstance(pairs.get("title"), list) and len(pairs) == 2:
        other = next(value for key, value in pairs.items() if key != "title")
        pairs = list(zip(pairs["title"], other, strict=False)) if isinstance(other, Sequence) else None
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise row.error(f"{name!r} must be a list of pairs that begin with a title")
    return [(pair[0], pair[1]) for pair in pairs]
