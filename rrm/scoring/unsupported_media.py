"""Count parts of messages that are no text (images, audio, …), which most judges are not shown."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import printable

log = logging.getLogger(__name__)
SEES = "--model vision:FOLDER, and openai:… with --images N, are shown pictures; other judges read words in their place (docs/images.md)"


def is_picture(part_type: str) -> bool:
    return "image" in part_type


@dataclass
class Unshown:
    """Counts of transcripts with parts that are no text, among `rows`."""

    sees: bool = False  # the judge sees pictures: rows name them (`Feedback.images`), and they are not counted
    rows: int = 0
    transcripts: int = 0
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, trajectory: Trajectory) -> None:
        part_types = [
            part_type
            for message in trajectory.messages
            for part_type in message.other_parts()
            if not (self.sees and is_picture(part_type))
        ]
        self.rows += 1
        self.transcripts += bool(part_types)
        self.parts.update(printable(part_type, 40) for part_type in part_types)

    def counted(self, rows: Iterable[Trajectory]) -> Iterator[Trajectory]:
        for row in rows:
            self.add(row)
            yield row

    def found(self) -> dict[str, Any] | None:
        """Return the number of `transcripts` with such parts, and `parts` by kind; None: no such parts."""
        return {"transcripts": self.transcripts, "parts": dict(self.parts.most_common())} if self.transcripts else None

    def report(self) -> dict[str, Any] | None:
        if not self.transcripts:
            return None
        kinds = ", ".join(f"{n} {part_type}" for part_type, n in self.parts.most_common(5))
        log.warning(
            "%d of %d transcripts hold parts that are no text (%s): this judge is not shown them, only words in their place, "
            "and coverage counts text alone%s",
            self.transcripts,
            self.rows,
            kinds,
            f"; {SEES}" if any(map(is_picture, self.parts)) else "",
        )
        return self.found()


def unsupported_media(rows: Iterable[Trajectory], *, warn: bool = True, sees: bool = False) -> dict[str, Any] | None:
    """Return `Unshown.report()` of rows, or without `warn` `Unshown.found()`."""
    unshown = Unshown(sees)
    for row in rows:
        unshown.add(row)
    return unshown.report() if warn else unshown.found()
