"""Limits the size of all input from outside: `most_bytes` for a line, a batch, an unpacked file, a reply."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from rrm.errors import ConfigError

VARIABLE = "RRM_MOST_BYTES"
MOST_BYTES = 1 << 28
NODE = 64
"""Bytes that a value of JSON takes in memory beside its text."""
GROWS = 4
"""Times `most_bytes` that the values of one JSON text may take."""
BLOCK = 1 << 18


class TooManyBytes(ValueError):
    """More than is read."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has more than {most_bytes():,} bytes: not read; a larger {VARIABLE} reads it")


def most_bytes() -> int:
    """The limit: `RRM_MOST_BYTES`, or 256 MiB.

    Raises:
        ConfigError: the variable is no count of bytes.
    """
    said = os.environ.get(VARIABLE, "").strip()
    if not said:
        return MOST_BYTES
    if not said.isdecimal() or not int(said):
        raise ConfigError(f"{VARIABLE}={said:.40}: write a count of bytes, such as {MOST_BYTES}")
    return int(said)


def bounded(blocks: Iterable[bytes], what: str) -> Iterator[bytes]:
    """The blocks, of which the first that goes beyond the limit raises `TooManyBytes`."""
    size, most = 0, most_bytes()
    for block in blocks:
        size += len(block)
        if size > most:
            raise TooManyBytes(what)
        yield block


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, of which one beyond the limit raises `TooManyBytes`."""
    most = most_bytes()
    while line := file.readline(most + 1):
        if len(line) > most:
            raise TooManyBytes("this line")
        yield line


def weight(text: bytes | str) -> int:
    """About how many bytes the values of a JSON text take, most of all where they are small: 20 MiB of `{},` take half a gigabyte."""
    marks = map(text.count, (b",", b"{", b"[")) if isinstance(text, bytes) else map(text.count, ",{[")
    return len(text) + NODE * sum(marks)


def check_weight(text: bytes | str, what: str, most: int | None = None) -> None:
    """Refuse a JSON text whose values would take too much.

    Args:
        most: bytes; None: `GROWS` times the limit.

    Raises:
        ValueError: they would.
    """
    limit = GROWS * most_bytes() if most is None else most
    if (found := weight(text)) > limit:
        raise ValueError(f"{what} holds so many values that they take about {found:,} bytes, more than {limit:,}")


def inflated(blocks: Iterable[bytes], coding: str = "gzip") -> Iterator[bytes]:
    """Pieces of what `gzip` (several members too) or `deflate` packed, none larger than `BLOCK`.

    Raises:
        ValueError: it is damaged, or ends early.
    """
    wbits = 31 if coding == "gzip" else 15
    member, done = zlib.decompressobj(wbits), False
    for block in blocks:
        while block:
            if done and not block.strip(b"\0"):
                break  # zero padding after the last member, as tape tools write it
            if done:
                member = zlib.decompressobj(wbits)
            try:
                yield member.decompress(block, BLOCK)
            except zlib.error as error:
                raise ValueError(f"the {coding} data is damaged from here on ({error})") from error
            done = member.eof
            block = member.unused_data if done else member.unconsumed_tail  # which a member that ended still has
    if not done:
        raise ValueError(f"the {coding} data ends early: what follows is missing, fetch the file again")
