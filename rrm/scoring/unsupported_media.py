"""What of a transcript no judge is shown: images, audio and other parts of messages that are no text, counted over a run's inputs."""

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
"""Which judges see."""


def is_picture(kind: str) -> bool:
    """Whether parts of this kind are what a judge that sees may be shown."""
    return "image" in kind


@dataclass
class Unshown:
    """Transcripts that hold more than text, and how many parts of each kind; `rows` counts all that went by."""

    sees: bool = False
    """Whether the judge is shown pictures: each row then says which (`Feedback.images`), and they are not counted here."""
    rows: int = 0
    transcripts: int = 0
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, trajectory: Trajectory) -> None:
        """Count one transcript."""
        kinds = [
            kind
            for message in trajectory.messages
            for kind in message.other_parts()
            if not (self.sees and is_picture(kind))
        ]
        self.rows += 1
        self.transcripts += bool(kinds)
        self.parts.update(printable(kind, 40) for kind in kinds)

    def counted(self, rows: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The rows themselves, each counted as it goes by."""
        for row in rows:
            self.add(row)
            yield row

    def found(self) -> dict[str, Any] | None:
        """The summary of `unsupported_media`: `transcripts` that hold such parts, and `parts` by kind; None where there is none."""
        return {"transcripts": self.transcripts, "parts": dict(self.parts.most_common())} if self.transcripts else None

    def report(self) -> dict[str, Any] | None:
        """`found`, with a warning."""
        if not self.transcripts:
            return None
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.parts.most_common(5))
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
    """`Unshown.report` of rows that are all there; without `warn` `Unshown.found`."""
    unshown = Unshown(sees)
    for row in rows:
        unshown.add(row)
    return unshown.report() if warn else unshown.found()
