"""What is said about formats: which one each file is in, and for an item that nobody knows, which one it is nearest to.

A reader's `MARKS` are paths that its format has, as people would write them: `messages[].role` is a `role` in an element of the list
`messages`, `object=response` a field with that value, `a|b` either. They only word an error; `sniff` alone decides.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import Reader, key_list

LOOK = 50
"""Elements of a list that are looked at for a mark."""
FILES = 1000
"""Files whose formats are named one by one; beyond, they are counted."""


@dataclass
class FileFormats:
    """Which formats the rows of each file were read in."""

    files: dict[str, dict[str, int]] = field(default_factory=dict)
    """file -> format -> rows, of the first `FILES` files"""
    rows_of_other_files: int = 0
    """Rows of further files."""

    def add(self, trajectory: Trajectory) -> None:
        """Count one row."""
        file = trajectory.source.file if trajectory.source else ""
        if file not in self.files and len(self.files) >= FILES:
            self.rows_of_other_files += 1
            return
        name = (trajectory.source.format if trajectory.source else None) or "unknown"
        counts = self.files.setdefault(file, {})
        counts[name] = counts.get(name, 0) + 1

    def lines(self, most: int) -> Iterator[tuple[str, int]]:
        """(`file: format`, rows) for at most `most` files, then one line for the others; none for a single file."""
        if len(self.files) < 2:
            return
        named = list(self.files.items())
        for file, counts in named[:most]:
            formats = ", ".join(name if len(counts) == 1 else f"{name} {rows:,}" for name, rows in counts.items())
            yield f"{file}: {formats}", sum(counts.values())
        if rest := self.rows_of_other_files + sum(sum(counts.values()) for _, counts in named[most:]):
            yield "(in other files)", rest

    def counted(self, rows: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The rows themselves, each counted as it goes by."""
        for row in rows:
            self.add(row)
            yield row


def unknown(value: Any, readers: Iterable[Reader]) -> str:
    """The error for an item of no known format: what it is, the nearest format with what is missing, and all there are."""
    what = f"an object with {key_list(value)}" if isinstance(value, dict) else f"a JSON {type(value).__name__}"
    what = (
        "plain text without the marks of `react` or `search_tags`"
        if isinstance(value, str)
        else "an empty object"
        if value == {}
        else what
    )
    near = _nearest(value, readers)
    return (
        f"no known transcript format: {what}{f'; nearest: {near}' if near else ''}; name its parts with --map messages=PATH, or "
        f"give --format{known(readers)}"
    )


def known(readers: Iterable[Reader]) -> str:
    """How such an error ends: all formats there are. Where several errors are shown together it can be left out."""
    return f" (known: {', '.join(reader.NAME for reader in readers)})"


def _nearest(value: Any, readers: Iterable[Reader]) -> str | None:
    """The format most of whose marks are there, with those that are and are not; None where none is."""
    best: tuple[float, str] | None = None
    keys: dict[str, str] = {}
    for reader in readers:
        marks: tuple[str, ...] = getattr(reader, "MARKS", ())
        keys |= {_first(one): reader.NAME for mark in marks for one in mark.split("|")}  # the later, the more general
        found = [mark for mark in marks if holds(value, mark)]
        share = len(found) / len(marks) if found else 0.0
        if found and (best is None or share > best[0]):
            missing = [f"`{_shown(value, m)}`" for m in marks if m not in found]
            lacks = f"lacks {', '.join(missing)}" if missing else f"--format {reader.NAME} says what is wrong with it"
            best = share, f"{reader.NAME} (it has {', '.join(f'`{_shown(value, m)}`' for m in found)}; {lacks})"
    if best is not None or not isinstance(value, dict):
        return best and best[1]
    for key in list(value)[:LOOK]:
        if near := difflib.get_close_matches(key[:80], keys, n=1, cutoff=0.8):
            return f"{keys[near[0]]} (`{key[:40]}` may be its `{near[0]}`)"
    return None


def _first(path: str) -> str:
    """The key that a mark's path begins with."""
    return re.split(r"[^\w]", path)[0]


def _shown(value: Any, mark: str) -> str:
    """Of a mark's alternatives the one that is there; else one whose beginning is, else the first."""
    paths = mark.split("|")
    begun = [p for p in paths if isinstance(value, dict) and _first(p) in value]
    begun = begun or [p for p in paths if isinstance(value, list) and p.startswith("[]")]
    return next((p for p in paths if holds(value, p)), (begun or paths)[0])


def holds(value: Any, mark: str) -> bool:
    """Whether a mark is there: `a.b[].c`, `a=word`, or one of several between `|`."""
    if "|" in mark:
        return any(holds(value, one) for one in mark.split("|"))
    path, _, word = mark.partition("=")
    at = [value]
    for part in path.split("."):
        name = part.removesuffix("[]")
        at = [v[name] for v in at if isinstance(v, dict) and v.get(name) is not None] if name else at
        if name != part:
            at = [e for v in at if isinstance(v, list) for e in v[:LOOK]]
    return any(str(v) == word for v in at) if word else bool(at)
