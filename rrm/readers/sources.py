"""Decode files into JSON values: gzip, zip, encodings, JSON or JSONL, parquet, told by content.

JSONL is streamed line by line; a JSON document is loaded whole. Every non-blank line ends up in a `Value` or in a
`ReadError` (one error may stand for the rest of a file that cannot be decoded, and says so).
"""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rrm.data.jsonl import DECODER
from rrm.data.sizes import TooManyBytes, bounded, check_weight, inflated, most_bytes
from rrm.errors import ReadError
from rrm.readers.archive import BLOCK, MAGIC, Archive
from rrm.readers.base import describe, printable, stem
from rrm.readers.hub import hub_rows, is_hub
from rrm.readers.jsontext import check_depth, decode, json_problem, parse_json, plain
from rrm.readers.parquet import bounded_parquet
from rrm.readers.paths import names_data, say_left_out

LINE = 64
"""Bytes that a line takes in memory beside its own."""
LOOK_AHEAD = 20  # lines looked at to tell broken JSONL from an indented document
BINARY = {
    b"PK\x03\x04": "a zip archive inside another file: unpack it",
    b"\x28\xb5\x2f\xfd": "zstd: decompress it",
    b"BZh": "bzip2: decompress it",
    b"\xfd7zXZ": "xz: decompress it",
    b"\x89PNG": "an image",
    b"%PDF": "a PDF",
}
BOMS = (  # UTF-32 first: its little-endian mark starts with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Value:
    line: int | None
    data: Any
    whole: bool = False
    """The file holds nothing else, so this may be a container of runs rather than a run."""


Line = tuple[int, bytes] | ReadError


def values(path: str) -> Iterator[Value | Archive | ReadError]:
    """Yield the JSON values of one file, standard input or hub data set, in order; of a zip the archive,
    which is open until the next step."""
    if is_hub(path):
        row = 0
        for row, record in enumerate(hub_rows(path), 1):
            yield record if isinstance(record, ReadError) else _row(path, row, record)
        if row == 0:
            yield ReadError(path, None, "the data set's split has no rows: nothing to read")
        return
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as raw:
            first, blocks = _peek(iter(lambda: raw.read(BLOCK), b""))
            if first.startswith(MAGIC):
                seekable = path != "-" and raw.seekable()  # a pipe is held whole
                yield Archive(path, raw if seekable else io.BytesIO(b"".join(blocks)))
            else:
                yield from _values(path, first, blocks)
    except OSError as error:
        yield ReadError(path, None, f"cannot be read: {error.strerror or error}")
    except ValueError as error:
        yield ReadError(path, None, describe(error))


def members(archive: Archive) -> Iterator[tuple[str, Iterator[Value | ReadError]]]:
    """Yield (place, values) of each data file in a zipped folder, sorted."""
    data = sorted(name for name in archive.names if names_data(name))
    for name in data:
        yield archive.place(name), _member(archive, name)
    if len(data) < len(archive.names):
        say_left_out(archive.path, len(archive.names) - len(data), map(printable, {*archive.names} - {*data}))
    if not data:
        yield archive.path, iter([ReadError(archive.path, None, "a zip archive without data files: nothing to read")])


def _member(archive: Archive, name: str) -> Iterator[Value | ReadError]:
    try:
        yield from _values(archive.place(name), *_peek(archive.blocks(name)))
    except ValueError as error:
        yield ReadError(archive.place(name), None, describe(error))


def load(archive: Archive, name: str) -> Any:
    """Parse a member that is one JSON document; `ValueError` or `RecursionError` where it cannot be read."""
    return parse_json(decode(b"".join(archive.blocks(name))))


def _values(path: str, first: bytes, blocks: Iterator[bytes]) -> Iterator[Value | ReadError]:
    name = stem(path) if path == "-" else path
    if first.startswith(b"\x1f\x8b"):
        name = name[:-3] if name.lower().endswith(".gz") else name
        first, blocks = _peek(inflated(blocks))
    if first.startswith(b"PAR1"):
        yield from _parquet(path, blocks)
        return
    binary = next((text for magic, text in BINARY.items() if first.startswith(magic)), None)
    encoding = next((name for bom, name in BOMS if first.startswith(bom)), None)
    if binary or (encoding is None and b"\0" in first[:16]):
        yield ReadError(path, None, f"not text but {binary or 'binary data'}")
        return
    if encoding:
        blocks = _to_utf8(blocks, encoding)
    elif first.startswith(codecs.BOM_UTF8):
        blocks = itertools.chain([next(blocks)[len(codecs.BOM_UTF8) :]], blocks)
    yield from _json(path, _lines(path, blocks), is_jsonl=name.lower().endswith((".jsonl", ".ndjson")))


def _peek(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first block (at least 16 bytes where there are as many), and the whole stream again."""
    first = next(blocks, b"")
    while len(first) < 16 and (more := next(blocks, b"")):
        first += more
    return first, itertools.chain([first], blocks)


def _to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Convert UTF-16 or UTF-32 (with a byte order mark) to UTF-8; lone surrogates stay."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    try:
        for block in blocks:
            yield decoder.decode(block).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid {encoding.upper()} from here on: {error.reason}") from error


def _lines(path: str, blocks: Iterable[bytes]) -> Iterator[Line]:
    """Yield numbered lines, blank ones too; a broken stream or too long a line ends them in an error."""
    number, tail, size, most = 0, list[bytes](), 0, most_bytes()
    try:
        for block in blocks:
            pieces = block.split(b"\n")
            for piece in pieces[:-1]:
                tail.append(piece)
                number += 1
                yield number, b"".join(tail)
                tail.clear()
                size = 0
            tail.append(pieces[-1])
            size += len(pieces[-1])
            if size > most:
                raise TooManyBytes("this line")
    except ValueError as error:
        lost = sum(map(len, tail))
        unfinished = f"; an unfinished line of {lost:,} bytes was left out" if lost else ""
        yield ReadError(path, number + 1, f"{describe(error)}{unfinished}")
        return
    if last := b"".join(tail):
        yield number + 1, last


def _blank(line: Line) -> bool:
    return not isinstance(line, ReadError) and not line[1].strip()


def _json(path: str, lines: Iterator[Line], is_jsonl: bool) -> Iterator[Value | ReadError]:
    """Decide between JSONL (streamed) and a JSON document (whole) by the first lines, then read it."""
    head = next((line for line in lines if not _blank(line)), None)
    if head is None:
        yield ReadError(path, None, "the file is empty: nothing to read")
        return
    if isinstance(head, ReadError):
        yield head
        return
    parsed = _parse_line(path, head)
    if isinstance(parsed, Value):
        second = next((line for line in lines if not _blank(line)), None)
        yield parsed if second is not None else Value(parsed.line, parsed.data, whole=True)
        yield from _jsonl(path, itertools.chain([second] if second is not None else [], lines))
        return
    ahead: list[Line] = [head]
    if head[1].strip() not in (b"{", b"[", b"[{"):
        ahead += itertools.islice(lines, LOOK_AHEAD)
        if is_jsonl or any(_is_object(path, line) for line in ahead[1:]):
            yield from _jsonl(path, itertools.chain(ahead, lines))
            return
    try:
        document = list(_bounded_lines(itertools.chain(ahead, lines)))
    except TooManyBytes as error:
        yield ReadError(path, None, str(error))
        return
    yield from _document(path, document, is_jsonl)


def _bounded_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield a document's lines, which are held in memory.

    Raises:
        TooManyBytes: longer than `most_bytes`, each line counted with its memory.
    """
    size, most = 0, most_bytes()
    for line in lines:
        size += 0 if isinstance(line, ReadError) else len(line[1]) + LINE
        if size > most:
            raise TooManyBytes("this document")
        yield line


def _jsonl(path: str, lines: Iterable[Line]) -> Iterator[Value | ReadError]:
    for line in lines:
        if isinstance(line, ReadError):
            yield line
        elif not _blank(line):
            yield _parse_line(path, line)


def _is_object(path: str, line: Line) -> bool:
    if isinstance(line, ReadError) or not line[1].lstrip().startswith(b"{"):
        return False
    return isinstance(_parse_line(path, line), Value)


def _parse_line(path: str, line: tuple[int, bytes]) -> Value | ReadError:
    try:
        check_weight(line[1], "this line")
        return Value(line[0], parse_json(decode(line[1])))
    except (ValueError, RecursionError) as error:
        return ReadError(path, line[0], describe(error))


def _document(path: str, lines: list[Line], is_jsonl: bool) -> Iterator[Value | ReadError]:
    """Read a file as one JSON document, several in a row, or plain text; a fault in it is one error."""
    broken = lines.pop() if lines and isinstance(lines[-1], ReadError) else None
    if isinstance(broken, ReadError):
        yield broken  # what came before is still read below
    good = [line for line in lines if not isinstance(line, ReadError)]
    try:
        text = decode(b"\n".join(line[1] for line in good))
        check_weight(text, "this document")
    except ValueError as error:
        if is_jsonl or any(_is_object(path, line) for line in good):
            yield from _jsonl(path, good)
        else:
            yield ReadError(path, None, describe(error))
        return
    documents, problem, problem_line = _sequence(text, good[0][0] if good else 1)
    if not documents and (is_jsonl or any(_is_object(path, line) for line in good)):
        yield from _jsonl(path, good)
    elif not documents and text.lstrip()[:1] not in ("{", "["):
        yield Value(None, text, whole=True)  # plain text: a ReAct transcript, perhaps
    else:
        alone = len(documents) == 1 and problem is None
        yield from (Value(line, data, whole=alone) for line, data in documents)
        if problem is not None and broken is None:  # else that it was cut off is said
            yield ReadError(path, problem_line, problem)


def _sequence(text: str, first: int) -> tuple[list[tuple[int, Any]], str | None, int | None]:
    """Parse JSON values in a row: (line, value) pairs, the error that stopped it, its line."""
    parsed = list[tuple[int, Any]]()
    position = len(text) - len(text.lstrip())
    line, counted = first, 0
    while position < len(text):
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, position = DECODER.raw_decode(text, position)
            check_depth(value)
        except json.JSONDecodeError as error:
            return parsed, json_problem(error, first), line
        except (ValueError, RecursionError) as error:
            return parsed, describe(error), line
        parsed.append((line, value))
        while position < len(text) and text[position].isspace():
            position += 1
    return parsed, None, None


def _parquet(path: str, blocks: Iterable[bytes]) -> Iterator[Value | ReadError]:
    """Yield a parquet file's rows in batches; a file is read in place, a pipe is loaded whole."""
    import pyarrow as pa

    row = 0
    try:
        local = path != "-" and os.path.isfile(path) and not path.lower().endswith(".gz")
        with bounded_parquet(path if local else io.BytesIO(b"".join(bounded(blocks, "this file")))) as records:
            for row, record in enumerate(records, 1):
                yield _row(path, row, record)
    except (pa.ArrowException, OSError, ValueError) as error:
        yield ReadError(path, row + 1, f"the parquet data cannot be read from here on: {printable(str(error))}")
        return
    if row == 0:
        yield ReadError(path, None, "the parquet file has no rows: nothing to read")


def _row(path: str, row: int, record: Any) -> Value | ReadError:
    try:
        check_depth(record)
        return Value(row, plain(record))
    except (ValueError, RecursionError) as error:
        return ReadError(path, row, describe(error))
