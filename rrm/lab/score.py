"""The process score of a lab run that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rrm.trajectory import Message


def failing_score(found: int, hops: int, answer: str | None, messages: Sequence[Message]) -> float:
    """The score of a run without the right answer: for the hops it found, less for a guess that no result holds."""
    guessed = answer not in (None, "unknown") and not any(
        re.search(rf"\b{re.escape(str(answer))}\b", m.text()) for m in messages if m.role == "tool"
    )
    return round(max(0.0, min(0.3, 0.4 * found / hops) - 0.2 * guessed), 1)
