"""The rows that `rrm score` wrote, found again by the transcript that they are of."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rrm.errors import RRMError
from rrm.feedback import Feedback
from rrm.jsonl import read_lines
from rrm.trajectory import Trajectory


class ScoredRows:
    """The rows of a file, by the digest of what was judged; None: no file was given."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.used, self._rows = path, 0, dict[str, Feedback]()
        self.time_ns = path.stat().st_mtime_ns if path is not None and path.is_file() else time.time_ns()
        """When the rows were there."""
        for row, digest in read_lines(path, _judged, "a row of `rrm score`") if path is not None else ():
            self._rows[digest or row.id] = row
            if digest:
                self._rows[f"{digest} {row.id}"] = row

    def of(self, trajectory: Trajectory) -> Feedback | None:
        """What was said of this content, where others have the same under this id; of a row without a digest (an older
        version's), of this id."""
        if not self._rows:
            return None
        digest = trajectory.digest
        row = self._rows.get(f"{digest} {trajectory.id}") or self._rows.get(digest) or self._rows.get(trajectory.id)
        self.used += row is not None
        return row

    def check(self) -> None:
        """`RRMError` where rows were given, and none of them is of any transcript."""
        if self._rows and not self.used:
            rows = len({id(row) for row in self._rows.values()})
            raise RRMError(f"{self.path} holds {rows} rows and none of these transcripts: was another file judged?")


def _judged(line: str) -> tuple[Feedback, str | None]:
    source = json.loads(line).get("source")
    digest = source.get("digest") if isinstance(source, dict) else None
    return Feedback.from_json(line), digest if isinstance(digest, str) else None
