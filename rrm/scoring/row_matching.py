"""Match rows of `rrm score` to transcripts, for all commands.

By content (`source.digest`): files read in another order have other ids. Among rows of one content the id decides. A row
without digest (old, or written by hand) matches by id. A row of other content matches nothing, whatever its id.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rrm.data.feedback import Feedback
from rrm.data.jsonl import read_lines
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.readers.base import printable

R = TypeVar("R")
Key = tuple[str, str | None]  # id and digest of a row


class MatchedRows(Generic[R]):
    """Rows given as (row, id, digest), of equal keys the last; remembers what was asked for, for `strays`."""

    def __init__(self, rows: Iterable[tuple[R, str, str | None]] = ()) -> None:
        self._rows: dict[Key, R] = {(id, digest): row for row, id, digest in rows}
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        for id, digest in self._rows:
            if digest is not None:
                self._ids[digest].append(id)
        self._met: set[str] = set()  # digests asked for
        self._named: set[str] = set()  # ids whose row without digest was found
        self._taken: set[Key] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    def find(self, id: str, digest: str) -> R | None:
        """Return the row of a content; of several, one that `take` has not given out, if any."""
        self._met.add(digest)
        key = self._key(id, digest)
        if key is None:
            return None
        if key[1] is None:
            self._named.add(id)
        return self._rows[key]

    def of(self, trajectory: Trajectory) -> R | None:
        return self.find(trajectory.id, trajectory.digest) if self._rows else None

    def take(self, trajectory: Trajectory) -> R | None:
        if not self._rows:
            return None
        digest = trajectory.digest
        row, key = self.find(trajectory.id, digest), self._key(trajectory.id, digest)
        if key is None or key in self._taken:
            return None
        self._taken.add(key)
        return row

    def _key(self, id: str, digest: str) -> Key | None:
        if (id, digest) in self._rows and (id, digest) not in self._taken:
            return (id, digest)
        same: list[Key] = [(name, digest) for name in self._ids.get(digest, ())]
        if same:
            return next((key for key in same if key not in self._taken), same[-1])
        return (id, None) if (id, None) in self._rows else None

    def by_id(self, trajectory: Trajectory) -> bool:
        """Tell whether a transcript's row has no digest and matches by id alone."""
        key = self._key(trajectory.id, trajectory.digest)
        return key is not None and key[1] is None

    def left(self) -> Iterator[tuple[Key, R]]:
        return ((key, row) for key, row in self._rows.items() if key not in self._taken)

    @property
    def strays(self) -> list[Key]:
        """Keys of rows of no transcript asked for."""
        return [(id, d) for id, d in self._rows if (id not in self._named if d is None else d not in self._met)]


def match_rows(rows: MatchedRows[R], trajectories: Sequence[Trajectory], path: str | Path) -> list[R | None]:
    """Match a row to each transcript, None where there is none; `path` is for messages.

    Raises:
        RRMError: changed content, a row without digest of an id that several transcripts have, or none matches.
    """
    matched, times = [rows.of(t) for t in trajectories], Counter(t.id for t in trajectories)
    strays = rows.strays
    changed = {id for id, digest in strays if digest is not None}
    for t, row in zip(trajectories, matched, strict=True):
        if row is None and t.id in changed:
            raise RRMError(
                f"{path} holds a judgement of {printable(t.id)!r}, but that transcript has changed since: judge it again"
            )
        if row is not None and times[t.id] > 1 and rows.by_id(t):
            raise RRMError(
                f"{path}: the row of {printable(t.id)!r} could be of {times[t.id]} transcripts, as it says no digest of its content: "
                "judge them with `rrm score`, which does"
            )
    if len(strays) == len(rows):
        id = next((id for id, _ in strays), None)
        raise RRMError(
            f"{path} holds {len(rows)} rows and none of these {len(trajectories)} transcripts (ids like {id!r} against "
            f"{trajectories[0].id if trajectories else None!r}): Did you score another file?"
        )
    return matched


def digest_of(row: Mapping[str, Any]) -> str | None:
    """Return the digest in a row's `source`, or None."""
    source = row.get("source")
    digest = source.get("digest") if isinstance(source, Mapping) else None
    return digest if isinstance(digest, str) else None


def feedback_rows(path: str | Path) -> MatchedRows[Feedback]:
    """Read a file's rows; raises `ReadError` for a line that is no row of `rrm score`."""
    return MatchedRows(read_lines(path, _judged, "a row of `rrm score`"))


def _judged(line: str) -> tuple[Feedback, str, str | None]:
    row = json.loads(line)
    feedback = Feedback.model_validate(row)
    return feedback, feedback.id, digest_of(row)


class ScoredRows:
    """Rows of a file, found one transcript at a time; without a file no transcript has one."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.used = path, 0
        self.time_ns = path.stat().st_mtime_ns if path is not None and path.is_file() else time.time_ns()
        self.rows: MatchedRows[Feedback] = MatchedRows() if path is None else feedback_rows(path)

    def of(self, trajectory: Trajectory) -> Feedback | None:
        row = self.rows.of(trajectory)
        self.used += row is not None
        return row

    def check(self) -> None:
        """Raise `RRMError` where there are rows, and no transcript had one."""
        if len(self.rows) and not self.used:
            raise RRMError(
                f"{self.path} holds {len(self.rows)} rows and none of these transcripts: Did you score another file?"
            )
