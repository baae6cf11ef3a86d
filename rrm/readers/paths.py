"""Which files the inputs name: folders, and what in them is data; inputs that are not there."""

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
"""How a JSON object, or a list of them, begins; other files begin with a brace or a bracket, too."""


def expand(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str | ReadError]:
    """Files in the given order, folders replaced by their data files (recursive, sorted); `-` and `hf:…` pass through."""
    for given in paths:
        path = os.fspath(given)
        if os.path.isdir(path) and path != "-" and not is_hub(path):
            yield from _folder(path)
        else:
            yield missing(path) or path  # a file, or a pipe such as /dev/stdin or <(zcat …)


def missing(path: str) -> ReadError | None:
    """What is wrong with an input that is not there, with the nearest name that is; None for one that is.

    A data set on the hub is not asked for here, only its name is checked.
    """
    if is_hub(path):
        return None if isinstance(named := hub_set(path), HubSet) else named
    if path == "-" or os.path.exists(path):
        return None
    return ReadError(path, None, f"no such file or folder{_nearest(Path(path))}")


def _folder(folder: str) -> Iterator[str | ReadError]:
    """The folder's files, but hidden ones, copies and those whose first bytes or name say that they hold no transcripts."""
    closed: list[ReadError] = []

    def refused(error: OSError) -> None:
        closed.append(ReadError(str(error.filename), None, f"this folder cannot be read: {error.strerror}"))

    walk = os.walk(folder, onerror=refused)
    files = sorted(p for place, _, names in walk for name in names if _is_file(p := Path(place, name)))
    yield from sorted(closed, key=str)
    visible = [p for p in files if not any(part.startswith(".") for part in p.relative_to(folder).parts)]
    # OpenHands' pages hold the events of the folder beside theirs a second time
    pages = {p for p in visible if p.parent.name == "event_cache" and (p.parent.parent / "events").is_dir()}
    first = [p for p in visible if p.parent == Path(folder) or p not in pages]
    data = [p for p in first if not p.suffix or p.suffix.lower() in DATA_SUFFIXES or _holds_json(p)]
    if len(data) < len(files):
        others = {p.name for p in files} - {p.name for p in data}
        say_left_out(folder, len(others), others)
    if not data and not closed:
        yield ReadError(
            folder, None, f"no data files in this folder ({' '.join(DATA_SUFFIXES)}, or JSON by its first bytes)"
        )
    yield from map(str, data)


def _is_file(path: Path) -> bool:
    """Whether a name is a file's, or what it is cannot be seen: that is said where it is read."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:  # a link to nothing
        return False
    except OSError:
        return True


def _holds_json(path: Path) -> bool:
    """Whether a file under another name (`run.traj`) begins as JSON objects do, or as parquet, or is a zip of data files."""
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
    """Whether a member of an archive has a data file's name; hidden ones have none."""
    path = PurePosixPath(member)
    hidden = any(part.startswith((".", "__MACOSX")) and part != ".." for part in path.parts)
    return path.suffix.lower() in DATA_SUFFIXES and not hidden


def say_left_out(place: str, count: int, names: Iterable[str]) -> None:
    """A warning that names some files of a folder, or members of an archive, that are not read."""
    _say_once(f"{place}: {count} files are not data files and were left out: {sorted(names)[:5]}")


@functools.lru_cache(maxsize=256)
def _say_once(message: str) -> None:
    """A warning that a run which reads its input twice (to count, to report) gives once."""
    log.warning("%s", message)


def _nearest(path: Path) -> str:
    """A hint with the nearest name that exists beside a path that does not."""
    parent = path.parent
    if not parent.is_dir():
        return f"; the folder {parent} does not exist"
    near = nearest_file(path.name, sorted(os.listdir(parent)))
    return f"; did you mean {parent / near}?" if near else ""
