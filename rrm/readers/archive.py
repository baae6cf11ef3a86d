"""Zip archives (Inspect's `.eval`, a zipped folder), read in memory by member, with size limits."""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, runtime_checkable

from rrm.errors import ReadError
from rrm.readers.base import Reader, SourceItem, printable

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of an archive; the second of an empty one."""
BLOCK = 1 << 18
MAX_MEMBER = 1 << 30  # bytes a member may unpack to: it is held as JSON, which takes several times as much
MAX_RATIO = 1_100  # deflate gives 1,032 at most; members that share their bytes, and zstd bombs, give more
FREE = 1 << 30  # bytes that any archive may unpack to, whatever its size
ZSTD = 93  # the method's number in a zip; Inspect writes it, and zipfile reads it from Python 3.14 on
_LOCAL_HEADER = 30  # bytes before a member's name
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, NotImplementedError)


class Archive:
    """Members of one zip archive, by name."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        """Open an archive.

        Args:
            path: what messages call it.
            file: its bytes, seekable; open for as long as members are read.

        Raises:
            ValueError: no zip archive, or a damaged one.
        """
        self.path = path
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
            raise ValueError(f"the zip archive cannot be opened (cut off? fetch it again): {error}") from error
        self._size = file.seek(0, io.SEEK_END)
        self._unpacked = 0
        self._members = {info.filename: info for info in self._zip.infolist() if not info.filename.endswith("/")}

    @property
    def names(self) -> list[str]:
        """Member names in the archive's order; of two of one name the later one counts, as in a zip."""
        return list(self._members)

    def place(self, name: str) -> str:
        """Name a member in messages and sources: `runs.eval!/samples/1_epoch_1.json`."""
        return f"{self.path}!/{printable(name)}"

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield a member's bytes in blocks.

        Raises:
            ValueError: while iterating: damaged, encrypted, packed by an unknown method, or larger than `MAX_MEMBER` or, with
                all that was read before, than `MAX_RATIO` times the archive.
        """
        info = self._members[name]
        if info.flag_bits & 1:
            raise ValueError("the zip member is encrypted: unpack the archive")
        size, crc = 0, 0
        try:
            with self._open(info) as member:
                while block := member.read(BLOCK):
                    size += len(block)
                    crc = zlib.crc32(block, crc)
                    self._unpacked += len(block)
                    if size > MAX_MEMBER:
                        raise ValueError(f"the zip member unpacks to more than {MAX_MEMBER >> 20:,} MiB: not read")
                    if self._unpacked > max(FREE, MAX_RATIO * self._size):
                        raise ValueError(
                            f"the archive unpacks to more than {MAX_RATIO:,} times its size: a bomb, not read"
                        )
                    yield block
        except (*_DAMAGE, OSError) as error:
            raise ValueError(f"the zip member cannot be unpacked: {error}") from error
        if crc != info.CRC:
            raise ValueError("the zip member is damaged: its checksum is another")

    def _open(self, info: zipfile.ZipInfo) -> Any:
        if info.compress_type != ZSTD:
            return self._zip.open(info)
        import pyarrow as pa

        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or not header.startswith(MAGIC[0]):
            raise ValueError("the zip member is damaged: it does not stand where the directory says")
        name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
        start = info.header_offset + _LOCAL_HEADER + name + extra
        self._file.seek(start)
        return pa.CompressedInputStream(pa.BufferReader(self._file.read(min(info.compress_size, MAX_MEMBER))), "zstd")


@runtime_checkable
class Unpacker(Reader, Protocol):
    """A reader of archives that are one document in several members (Inspect's `.eval`)."""

    def unpack(self, archive: Archive, /) -> Iterator[SourceItem | ReadError] | None:
        """Yield an archive's runs one at a time, for `parse`; None where it is not of the format."""
