"""The transcripts that are labelled: on disk, each found by its place; in memory only what says which it is."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError
from rrm.report.images import Room
from rrm.report.rows import transcript


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """What is held of one transcript."""

    digest: str
    id: str
    """The id its file gives it (`Trajectory.own_id`)."""
    steps: int
    at: int
    """Where its line begins in the copy."""


class TranscriptPool:
    """Transcripts of different contents, in the order they are shown. Use as a context: the copy on disk ends with it.

    Args:
        trajectories: read once, and copied line by line into the system's folder for temporary files.
        shuffle: seed of their order; None: as they come.
    """

    def __init__(self, trajectories: Iterable[Trajectory], shuffle: int | None = None) -> None:
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115  # closed on exit
        self.items: list[PoolEntry] = []
        self.repeated = 0
        """Transcripts left out because one of the same content is there."""
        self._places: dict[str, int] = {}
        at = 0
        for trajectory in trajectories:
            digest = trajectory.digest
            if digest in self._places:
                self.repeated += 1
                continue
            self._places[digest] = len(self.items)
            self.items.append(PoolEntry(digest, trajectory.own_id, len(trajectory.steps), at))
            at += self._copy.write(trajectory.to_json().encode("ascii") + b"\n")
        if shuffle is not None:
            random.Random(shuffle).shuffle(self.items)
            self._places = {item.digest: place for place, item in enumerate(self.items)}

    def keep(self, digests: Sequence[str]) -> None:
        """Leave only these, in their order. Raises ConfigError: one of them is not here."""
        if missing := [digest for digest in digests if digest not in self._places]:
            raise ConfigError(
                f"{len(missing)} of {len(digests)} chosen runs are not among these transcripts (e.g. digest {missing[0]}): name the "
                "files they were chosen from"
            )
        self.items = [self.items[self._places[digest]] for digest in digests]
        self._places = {item.digest: place for place, item in enumerate(self.items)}

    def __enter__(self) -> TranscriptPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._copy.close()

    def __len__(self) -> int:
        return len(self.items)

    def place(self, digest: str) -> int | None:
        """Where the transcript of that content stands, from 0; None where it is not here."""
        return self._places.get(digest)

    def view(self, place: int) -> dict[str, Any]:
        """What the page shows of a transcript: never its outcome, its reference answer or anything else in `meta`."""
        self._copy.seek(self.items[place].at)
        return transcript(Trajectory.from_json(self._copy.readline().decode("ascii")), Room())
