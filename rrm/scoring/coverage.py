"""How much of each transcript a judge read, summed up over a run: the median, and the runs of which it read least."""

from __future__ import annotations

import heapq
import logging
import threading
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from rrm.data.printing import printable
from rrm.prompt.rendering import CUT_VERSION

log = logging.getLogger(__name__)
LOW, HALF = 0.9, 0.5
"""Below these shares of a transcript's tokens rows are counted: the judge may not have seen what decided the run."""
SHOWN = 3
"""Transcripts that are named: those of which least was read."""


class Coverage:
    """Shares in [0, 1], one a transcript; a few bytes each are held. Rows that stand are noted by the thread that reads the inputs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares = array("d")
        self._least: list[tuple[float, int, str]] = []
        """A heap with the largest share of those shown on top; of equal ones the first come is shown."""

    def add(self, id: str, share: float) -> None:
        """Note what was read of one transcript."""
        with self._lock:
            self._shares.append(share)
            one = (-share, -len(self._shares), id)
            if len(self._least) < SHOWN:
                heapq.heappush(self._least, one)
            else:
                heapq.heappushpop(self._least, one)

    def found(self) -> dict[str, Any] | None:
        """`median`, how many `rows` there are, how many of them are `below_0.9` and `below_0.5`, and the `lowest`: id → share of those below
        0.9 of which least was read. None for no row."""
        if not self._shares:
            return None
        read = np.frombuffer(self._shares)
        return {
            "median": round(float(np.median(read)), 4),
            "below_0.9": int((read < LOW).sum()),
            "below_0.5": int((read < HALF).sum()),
            "rows": len(read),
            "lowest": {id: round(-share, 4) for share, _, id in sorted(self._least, reverse=True) if -share < LOW},
        }

    def report(self, about: Mapping[str, Any], judge: Any = None) -> dict[str, Any] | None:
        """`found`, with a warning where little was read: of the median transcript, or of any less than half.

        Args:
            about: what the judge says of itself (`Judge.describe`).
            judge: the judge, where it is at hand: its modes, and whether `rrm serve` has it.
        """
        found = self.found()
        if found is not None and (found["median"] < LOW or found["below_0.5"]):
            log.warning(
                "the judge read %s of the median transcript (%d of %d below 90%%, %d below half; least of %s): what decided a run may "
                "stand in the rest; %s",
                percent(found["median"]),
                found["below_0.9"],
                found["rows"],
                found["below_0.5"],
                ", ".join(f"{printable(id, 80)!r} {percent(share)}" for id, share in found["lowest"].items()),
                to_read_more(
                    about,
                    served=hasattr(judge, "address"),
                    steps="steps" in getattr(getattr(judge, "settings", None), "modes", ()),
                ),
            )
        return found


def percent(share: float) -> str:
    """A share in words; of a small one two digits, so that little is not told as nothing."""
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%"


def to_read_more(about: Mapping[str, Any], *, served: bool = False, steps: bool = False) -> str:
    """What makes a judge that describes itself so read more of each transcript, else which judges do.

    Args:
        served: it is asked over `rrm serve`, which is told such options; who asks cannot.
        steps: it was trained in `steps`, and reads long runs to their end.
    """
    there = " to rrm serve" if served else ""
    if about.get("prompt_version") == CUT_VERSION:
        return (
            f"raise --transcript-tokens{there}, or take a judge of prompt version 2, which reads long runs to their end, in windows: the default "
            "judge, what rrm train makes in more than `score` alone, a chat model (openai:…)"
        )
    if about.get("max_windows") is not None:
        return f"raise --max-windows{there}, here {about['max_windows']}, or leave it out"
    unread = "a window that it could not read is named in the row's `reason`"
    mend = f"raise --transcript-tokens{there}, serve it with a longer context (--context{there})"
    if steps:
        return f"{unread}: {mend}"
    return (
        f"a judge trained in `score` alone reads one window, and {unread}: {mend}, or take a judge that reads long runs to their end: one "
        "trained in `steps` (the default judge), or a chat model (openai:…)"
    )
