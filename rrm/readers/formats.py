"""Count the formats of files, and name the nearest format for an unknown item.

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
"""Elements of a list searched for a mark."""
FILES = 1000
"""Files whose formats are named one by one; beyond, they are counted."""


@dataclass
class FileFormats:
    """Formats that the rows of each file were read in."""

    files: dict[str, dict[str, int]] = field(default_factory=dict)
    """file -> format -> rows, of the first `FILES` files"""
    rows_of_other_files: int = 0

    def add(self, trajectory: Trajectory) -> None:
        file = trajectory.source.file if trajectory.source else ""
        if file not in self.files and len(self.files) >= FILES:
            self.rows_of_other_files += 1
            return
        name = (trajectory.source.format if trajectory.source else None) or "unknown"
        counts = self.files.setdefault(file, {})
        counts[name] = counts.get(name, 0) + 1

    def lines(self, most: int) -> Iterator[tuple[str, int]]:
        """Yield (`file: format`, rows) of `most` files, then one for the rest; nothing for a single file."""
        if len(self.files) < 2:
            return
        named = list(self.files.items())
        for file, counts in named[:most]:
            formats = ", ".join(name if len(counts) == 1 else f"{name} {rows:,}" for name, rows in counts.items())
            yield f"{file}: {formats}", sum(counts.values())
        if rest := self.rows_of_other_files + sum(sum(counts.values()) for _, counts in named[most:]):
            yield "(in other files)", rest

    def counted(self, rows: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Yield the rows, counting each."""
        for row in rows:
            self.add(row)
            yield row


def unknown(value: Any, readers: Iterable[Reader]) -> str:
    """Word the error for an unknown item: its type, the nearest format, what is missing, all formats."""
    description = f"an object with {key_list(value)}" if isinstance(value, dict) else f"a JSON {type(value).__name__}"
    description = (
        "plain text without the marks of `react` or `search_tags`"
        if isinstance(value, str)
        else "an empty object"
        if value == {}
        else description
    )
    near = _nearest(value, readers)
    return (
        f"no known transcript format: {description}{f'; nearest: {near}' if near else ''}; name its parts with --map messages=PATH, or "
        f"give --format{known(readers)}"
    )


def known(readers: Iterable[Reader]) -> str:
    """Word the error's end, a list of all formats; omitted where several errors are shown together."""
    return f" (known: {', '.join(reader.NAME for reader in readers)})"


def _nearest(value: Any, readers: Iterable[Reader]) -> str | None:
    """Describe the format with most marks, those present and those missing; None where none is."""
    best: tuple[float, str] | None = None
    keys: dict[str, str] = {}
    for reader in readers:
        marks: tuple[str, ...] = getattr(reader, "MARKS", ())
        keys |= {_first(path): reader.NAME for mark in marks for path in mark.split("|")}  # the later, the more general
        present = [mark for mark in marks if holds(value, mark)]
        share = len(present) / len(marks) if present else 0.0
        if present and (best is None or share > best[0]):
            missing = [f"`{_alternative(value, m)}`" for m in marks if m not in present]
            lacks = f"lacks {', '.join(missing)}" if missing else f"--format {reader.NAME} says what is wrong with it"
            best = share, f"{reader.NAME} (it has {', '.join(f'`{_alternative(value, m)}`' for m in present)}; {lacks})"
    if best is not None or not isinstance(value, dict):
        return best and best[1]
    for key in list(value)[:LOOK]:
        if near := difflib.get_close_matches(key[:80], keys, n=1, cutoff=0.8):
            return f"{keys[near[0]]} (`{key[:40]}` may be its `{near[0]}`)"
    return None


def _first(path: str) -> str:
    return re.split(r"[^\w]", path)[0]


def _alternative(value: Any, mark: str) -> str:
    """Return a mark's alternative that is there; else one whose beginning is, else the first."""
    paths = mark.split("|")
    begun = [p for p in paths if isinstance(value, dict) and _first(p) in value]
    begun = begun or [p for p in paths if isinstance(value, list) and p.startswith("[]")]
    return next((p for p in paths if holds(value, p)), (begun or paths)[0])


def holds(value: Any, mark: str) -> bool:
    """Return whether a mark is there: `a.b[].c`, `a=word`, or one of several between `|`."""
    if "|" in mark:
        return any(holds(value, alternative) for alternative in mark.split("|"))
    path, _, word = mark.partition("=")
    matches = [value]
    for step in path.split("."):
        name = step.removesuffix("[]")
        matches = [v[name] for v in matches if isinstance(v, dict) and v.get(name) is not None] if name else matches
        if name != step:
            matches = [e for v in matches if isinstance(v, list) for e in v[:LOOK]]
    return any(str(v) == word for v in matches) if word else bool(matches)
