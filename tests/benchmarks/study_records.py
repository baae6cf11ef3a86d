"""Records of SmolLM2's studies as they should be, in parts, for the tests of the bars that read them."""

from __future__ import annotations

import copy
from typing import Any

from benchmarks import record

HERE = (record.commit() or "0123456789ab").rstrip("+")
MADE = {"command": "python -m benchmarks.x", "commit": HERE, "environment": {"torch": "2"}, "seeds": {"grpo": 2}}
RUN = {"commits": [HERE], "updates": 40}


def rows(right: int, of: int = 500) -> list[dict[str, Any]]:
    """Answers to questions, of which the first so many are right."""
    return [
        {"id": f"q{n:03d}", "source": "2wiki", "f1": float(n < right), "em": float(n < right), "correct": float(n < right),
         "answer": "x", "searches": 1, "calls": 1, "malformed": 0, "tokens": 9}
        for n in range(of)
    ]  # fmt: skip


def changed(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A record with another value at a place."""
    found = copy.deepcopy(found)
    *way, last = path
    at = found
    for key in way:
        at = at[key]
    at[last] = value
    return found
