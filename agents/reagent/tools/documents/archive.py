"""Zip archives: their lists, and one member at a time, bounded in memory."""

import io
import zipfile
from collections.abc import Callable, Iterator


class Problem(Exception):
    """A document that cannot be read; the message is for the agent."""


MAX_MEMBER = 50_000_000  # bytes of a member, unpacked
MAX_LISTED = 500
OLE = b"\xd0\xcf\x11\xe0"  # how files of Office before 2007 begin, and newer ones with a password


def open_zip(data: bytes) -> zipfile.ZipFile:
    if data.startswith(OLE):
        raise Problem(
            "it has a password, or is of Office before 2007 under another name: save it anew without, and read that"
        )
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise Problem(f"not a zip archive: {error}") from error


def unpacked(archive: zipfile.ZipFile, name: str, limit: int = MAX_MEMBER) -> bytes:
    """A member's bytes. zipfile reads no more than the header's size, so the header can be believed.
    Raises Problem: no such member, or one that is too large, encrypted or broken."""
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise Problem(f"there is no {name!r} in the archive") from error
    if info.flag_bits & 1:
        raise Problem(f"{name} is encrypted")
    if info.file_size > limit:
        raise Problem(f"{name} has {info.file_size} bytes unpacked, and {limit} are read at most")
    try:
        with archive.open(info) as member:
            return member.read(limit)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as error:
        raise Problem(f"{name} cannot be unpacked: {error}") from error


def archive(data: bytes, name: str, extract: Callable[[bytes, str], Iterator[str]]) -> Iterator[str]:
    """The list of an archive; with a name, that member's text. Raises Problem: it cannot be read.
    `extract`: (bytes, suffix) → text in pieces."""
    with open_zip(data) as opened:
        if name:
            if name not in opened.namelist():
                raise Problem(f"there is no {name!r} in the archive; read it without `part` for its list")
            suffix = name.rpartition("/")[2].rpartition(".")[2].lower() if "." in name else ""
            yield from extract(unpacked(opened, name), suffix)
            return
        members = opened.infolist()
        yield f"{len(members)} entries; read one with part=NAME\n"
        for info in members[:MAX_LISTED]:
            yield f"{info.filename}\n" if info.is_dir() else f"{info.filename}  {info.file_size} bytes\n"
        if len(members) > MAX_LISTED:
            yield f"… and {len(members) - MAX_LISTED} more\n"
