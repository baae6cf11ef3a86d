"""The rows that `rrm score` wrote, found again by the transcripts that they are of: the one join of all commands.

A row is of the transcript with the content it was written on (`source.digest`), whatever ids the two have: files read in another
order have other ids. Where several rows are of one content, it is that with the transcript's id too. A row without a digest (an older
version's, or one written by hand) is of the transcript with its id. A row of other content is of no transcript, whatever its id.
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
Key = tuple[str, str | None]
"""A row's id and digest."""


class MatchedRows(Generic[R]):
    """Rows by what they are of. It notes which transcripts were asked about, and so which rows are of none of them.

    Args:
        rows: each with its id and its digest; of several with the same of both (a resumed run) the last counts.
    """

    def __init__(self, rows: Iterable[tuple[R, str, str | None]] = ()) -> None:
        self._rows: dict[Key, R] = {(id, digest): row for row, id, digest in rows}
        self._ids: defaultdict[str, list[str]] = defaultdict(list)
        for id, digest in self._rows:
            if digest is not None:
                self._ids[digest].append(id)
        self._met: set[str] = set()
        """Digests asked about."""
        self._named: set[str] = set()
        """Ids whose row without a digest was found."""
        self._taken: set[Key] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    def find(self, id: str, digest: str) -> R | None:
        """The row of what has this content; of several one that `take` has not given out, where there is one."""
        self._met.add(digest)
        key = self._key(id, digest)
        if key is None:
            return None
        if key[1] is None:
            self._named.add(id)
        return self._rows[key]

    def of(self, trajectory: Trajectory) -> R | None:
        """The row of a transcript."""
        return self.find(trajectory.id, trajectory.digest) if self._rows else None

    def take(self, trajectory: Trajectory) -> R | None:
        """The row of a transcript, each row once."""
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
        """Whether a transcript's row says no digest, and is its by the id alone."""
        key = self._key(trajectory.id, trajectory.digest)
        return key is not None and key[1] is None

    def left(self) -> Iterator[tuple[Key, R]]:
        """The rows that `take` has not given out."""
        return ((key, row) for key, row in self._rows.items() if key not in self._taken)

    @property
    def strays(self) -> list[Key]:
        """The rows that are of no transcript asked about."""
        return [(id, d) for id, d in self._rows if (id not in self._named if d is None else d not in self._met)]


def match_rows(rows: MatchedRows[R], trajectories: Sequence[Trajectory], path: str | Path) -> list[R | None]:
    """The row of each of all transcripts, None where there is none.

    Args:
        path: where the rows are from, for messages.

    Raises:
        RRMError: a row of a transcript whose content has changed since, one without a digest of an id that several transcripts have, or
            no row of any of them.
    """
    found, times = [rows.of(t) for t in trajectories], Counter(t.id for t in trajectories)
    strays = rows.strays
    changed = {id for id, digest in strays if digest is not None}
    for t, row in zip(trajectories, found, strict=True):
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
            f"{trajectories[0].id if trajectories else None!r}): was another file judged?"
        )
    return found


def digest_of(row: Mapping[str, Any]) -> str | None:
    """The digest of what a row was written on; None where it says none."""
    source = row.get("source")
    digest = source.get("digest") if isinstance(source, Mapping) else None
    return digest if isinstance(digest, str) else None


def feedback_rows(path: str | Path) -> MatchedRows[Feedback]:
    """The rows of a file.

    Raises:
        ReadError: a line that is no row of `rrm score`.
    """
    return MatchedRows(read_lines(path, _judged, "a row of `rrm score`"))


def _judged(line: str) -> tuple[Feedback, str, str | None]:
    row = json.loads(line)
    feedback = Feedback.model_validate(row)
    return feedback, feedback.id, digest_of(row)


class ScoredRows:
    """The rows of a file for transcripts that come one after the other; None: no file was given, and no transcript has a row."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.used = path, 0
        self.time_ns = path.stat().st_mtime_ns if path is not None and path.is_file() else time.time_ns()
        """When the rows were there."""
        self.rows: MatchedRows[Feedback] = MatchedRows() if path is None else feedback_rows(path)

    def of(self, trajectory: Trajectory) -> Feedback | None:
        """What was said of this transcript."""
        row = self.rows.of(trajectory)
        self.used += row is not None
        return row

    def check(self) -> None:
        """`RRMError` where rows were given, and none of them is of any transcript."""
        if len(self.rows) and not self.used:
            raise RRMError(
                f"{self.path} holds {len(self.rows)} rows and none of these transcripts: was another file judged?"
            )
