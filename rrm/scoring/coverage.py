"""Coverage: the share of each transcript that a judge read, summed up over a run."""

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
LOW, HALF = 0.9, 0.5  # shares of a transcript's tokens below which rows are counted
SHOWN = 3  # transcripts named in `lowest`


class Coverage:
    """Shares in [0, 1], one a transcript. Thread-safe: the thread that reads inputs adds resumed rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares = array("d")
        # heap of the lowest shares, the largest of them on top; of equal ones the first come stay
        self._least: list[tuple[float, int, str]] = []

    def add(self, id: str, share: float) -> None:
        with self._lock:
            self._shares.append(share)
            entry = (-share, -len(self._shares), id)
            if len(self._least) < SHOWN:
                heapq.heappush(self._least, entry)
            else:
                heapq.heappushpop(self._least, entry)

    def found(self) -> dict[str, Any] | None:
        """Return `median`, `rows`, counts `below_0.9` and `below_0.5`, `lowest` (id → share); None: no row."""
        if not self._shares:
            return None
        shares = np.frombuffer(self._shares)
        return {
            "median": round(float(np.median(shares)), 4),
            "below_0.9": int((shares < LOW).sum()),
            "below_0.5": int((shares < HALF).sum()),
            "rows": len(shares),
            "lowest": {id: round(-share, 4) for share, _, id in sorted(self._least, reverse=True) if -share < LOW},
        }

    def report(self, about: Mapping[str, Any], judge: Any = None) -> dict[str, Any] | None:
        """Return `found()`, with a warning where little was read; `about`: of `Judge.describe`."""
        figures = self.found()
        if figures is not None and (figures["median"] < LOW or figures["below_0.5"]):
            log.warning(
                "the judge read %s of the median transcript (%d of %d below 90%%, %d below half; least of %s): what decided a run may "
                "stand in the rest; %s",
                percent(figures["median"]),
                figures["below_0.9"],
                figures["rows"],
                figures["below_0.5"],
                ", ".join(f"{printable(id, 80)!r} {percent(share)}" for id, share in figures["lowest"].items()),
                to_read_more(
                    about,
                    served=hasattr(judge, "address"),
                    steps="steps" in getattr(getattr(judge, "settings", None), "modes", ()),
                ),
            )
        return figures


def percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%"


def to_read_more(about: Mapping[str, Any], *, served: bool = False, steps: bool = False) -> str:
    """Advise how to read more. `served`: behind `rrm serve`; `steps`: trained in that, reads to the end."""
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
