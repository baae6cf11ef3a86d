"""Expand input paths: folders into their data files, missing paths into errors."""

from __future__ import annotations

import codecs
import functools
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from rrm.data.printing import nearest_file
from rrm.errors import ReadError
from rrm.readers.archive import MAGIC, Archive
from rrm.readers.base import DATA_SUFFIXES
from rrm.readers.hub import HubSet, hub_set, is_hub

log = logging.getLogger(__name__)
_OBJECTS = re.compile(rb'\s*(?:\[\s*)?\{\s*"')
"""Beginning of a JSON object or a list of them; other files begin with a brace or a bracket, too."""


def expand(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str | ReadError]:
    """Yield files in order, folders as their data files (recursive, sorted); `-` and `hf:…` as they are."""
    for entry in paths:
        path = os.fspath(entry)
        if os.path.isdir(path) and path != "-" and not is_hub(path):
            yield from _folder(path)
        else:
            yield missing(path) or path  # a file, or a pipe such as /dev/stdin or <(zcat …)


def missing(path: str) -> ReadError | None:
    """Return the error for a missing input, with the nearest name that exists; None for one that is there.

    A hub data set is checked by its name alone.
    """
    if is_hub(path):
        return None if isinstance(named := hub_set(path), HubSet) else named
    if path == "-" or os.path.exists(path):
        return None
    return ReadError(path, None, f"no such file or folder{_nearest(Path(path))}")


def _folder(folder: str) -> Iterator[str | ReadError]:
    """Yield a folder's files, except hidden ones, copies and those that hold no transcripts."""
    closed: list[ReadError] = []

    def refused(error: OSError) -> None:
        closed.append(ReadError(str(error.filename), None, f"this folder cannot be read: {error.strerror}"))

    walk = os.walk(folder, onerror=refused)
    files = sorted(p for directory, _, names in walk for name in names if _is_file(p := Path(directory, name)))
    yield from sorted(closed, key=str)
    visible = [p for p in files if not any(segment.startswith(".") for segment in p.relative_to(folder).parts)]
    # OpenHands' pages hold the events of the folder beside theirs a second time
    pages = {p for p in visible if p.parent.name == "event_cache" and (p.parent.parent / "events").is_dir()}
    first = [p for p in visible if p.parent == Path(folder) or p not in pages]
    data = [p for p in first if not p.suffix or p.suffix.lower() in DATA_SUFFIXES or _holds_json(p)]
    if len(data) < len(files):
        others = {p.name for p in files} - {p.name for p in data}
        say_left_out(folder, len(others), others)
    if not data and not closed:
        yield ReadError(
            folder, None, f"this folder holds no transcripts ({' '.join(DATA_SUFFIXES)}, or JSON by its first bytes)"
        )
    yield from map(str, data)


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; unreadable ones count, so that reading reports them."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:  # a link to nothing
        return False
    except OSError:
        return True


def _holds_json(path: Path) -> bool:
    """Return whether a file of any suffix (`run.traj`) is JSON objects, parquet, or a zip of data files."""
    try:
        with open(path, "rb") as file:
            head = file.read(512)
            if head.startswith(MAGIC):
                return any(map(names_data, Archive(str(path), file).names))
    except ValueError:
        return path.suffix.lower() in (".zip", ".eval")  # it is said where it is read; others are of who knows what
    except OSError:
        return True  # it is said where it is read
    return head.startswith(b"PAR1") or _OBJECTS.match(head.removeprefix(codecs.BOM_UTF8)) is not None


def names_data(member: str) -> bool:
    """Return whether an archive's member has a data file's name and is not hidden."""
    path = PurePosixPath(member)
    hidden = any(segment.startswith((".", "__MACOSX")) and segment != ".." for segment in path.parts)
    return path.suffix.lower() in DATA_SUFFIXES and not hidden


def say_left_out(source: str, count: int, names: Iterable[str]) -> None:
    """Tell of a folder's files, or an archive's members, that are not read, with some names."""
    files = "1 file is not a data file and was" if count == 1 else f"{count} files are not data files and were"
    _say_once(f"{source}: {files} left out: {', '.join(sorted(names)[:5])}")


@functools.lru_cache(maxsize=256)
def _say_once(message: str) -> None:
    """Tell once, also where a run reads its input twice (to count, to report)."""
    log.info("%s", message)


def _nearest(path: Path) -> str:
    """Hint at the nearest existing name beside a missing path."""
    parent = path.parent
    if not parent.is_dir():
        return f"; the folder {parent} does not exist"
    near = nearest_file(path.name, sorted(os.listdir(parent)))
    return f"; did you mean {parent / near}?" if near else ""
