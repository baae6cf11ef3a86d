"""Size limits of all input from outside: a line, a batch, an unpacked file, a reply."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from rrm.errors import ConfigError

VARIABLE = "RRM_MOST_BYTES"
MOST_BYTES = 1 << 28
NODE = 64  # bytes in memory of a JSON value beside its text
GROWS = 4  # limit of a JSON text's values in memory, times `most_bytes`
BLOCK = 1 << 18


class TooManyBytes(ValueError):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has more than {most_bytes():,} bytes: not read; a larger {VARIABLE} reads it")


def most_bytes() -> int:
    """The limit: `RRM_MOST_BYTES`, or 256 MiB; raises `ConfigError`."""
    value = os.environ.get(VARIABLE, "").strip()
    if not value:
        return MOST_BYTES
    if not value.isdecimal() or not int(value):
        raise ConfigError(f"{VARIABLE}={value:.40}: write a count of bytes, such as {MOST_BYTES}")
    return int(value)


def bounded(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    size, most = 0, most_bytes()
    for block in blocks:
        size += len(block)
        if size > most:
            raise TooManyBytes(name)
        yield block


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    most = most_bytes()
    while line := file.readline(most + 1):
        if len(line) > most:
            raise TooManyBytes("this line")
        yield line


def weight(text: bytes | str) -> int:
    """Estimate the bytes in memory of a JSON text's values: 20 MiB of `{},` take half a gigabyte."""
    marks = map(text.count, (b",", b"{", b"[")) if isinstance(text, bytes) else map(text.count, ",{[")
    return len(text) + NODE * sum(marks)


def check_weight(text: bytes | str, name: str, most: int | None = None) -> None:
    """Raise `ValueError` for a JSON text whose values take over `most` bytes (default: `GROWS` limits)."""
    limit = GROWS * most_bytes() if most is None else most
    if (size := weight(text)) > limit:
        raise ValueError(f"{name} holds so many values that they take about {size:,} bytes, more than {limit:,}")


def inflated(blocks: Iterable[bytes], coding: str = "gzip") -> Iterator[bytes]:
    """Decompress `gzip` or `deflate` in pieces of at most `BLOCK` bytes; raises `ValueError`."""
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
