"""The transcripts that are labelled: on disk, with an index in memory."""

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
    digest: str
    id: str
    steps: int
    offset: int
    """Bytes before its line in the copy."""


class TranscriptPool:
    """Transcripts of different contents, in order or shuffled by seed; a context whose copy ends with it."""

    def __init__(self, trajectories: Iterable[Trajectory], shuffle: int | None = None) -> None:
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115  # closed on exit
        self.items: list[PoolEntry] = []
        self.repeated = 0
        """Transcripts left out because one of the same content is there."""
        self._places: dict[str, int] = {}
        offset = 0
        for trajectory in trajectories:
            digest = trajectory.digest
            if digest in self._places:
                self.repeated += 1
                continue
            self._places[digest] = len(self.items)
            self.items.append(PoolEntry(digest, trajectory.own_id, len(trajectory.steps), offset))
            offset += self._copy.write(trajectory.to_json().encode("ascii") + b"\n")
        if shuffle is not None:
            random.Random(shuffle).shuffle(self.items)
            self._places = {item.digest: index for index, item in enumerate(self.items)}

    def keep(self, digests: Sequence[str]) -> None:
        """Leave only these, in their order; raises ConfigError where one is missing."""
        if missing := [digest for digest in digests if digest not in self._places]:
            raise ConfigError(
                f"{len(missing)} of {len(digests)} chosen runs are not among these transcripts (e.g. digest {missing[0]}): name the "
                "files they were chosen from"
            )
        self.items = [self.items[self._places[digest]] for digest in digests]
        self._places = {item.digest: index for index, item in enumerate(self.items)}

    def __enter__(self) -> TranscriptPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._copy.close()

    def __len__(self) -> int:
        return len(self.items)

    def place(self, digest: str) -> int | None:
        """Return the index of the transcript, from 0; None where it is not here."""
        return self._places.get(digest)

    def view(self, index: int) -> dict[str, Any]:
        """Return a transcript for the page: without outcome, reference answer or anything else in `meta`."""
        self._copy.seek(self.items[index].offset)
        return transcript(Trajectory.from_json(self._copy.readline().decode("ascii")), Room())
