"""Figures by task, of a hundred tasks or a few, as an evaluation has them."""

from __future__ import annotations

from collections.abc import Sequence

TASKS = 20


def succeed(n: int, of: int = 100) -> list[float]:
    """The first n tasks succeed."""
    return [1.0] * n + [0.0] * (of - n)


def by_task(values: Sequence[float]) -> dict[str, float]:
    return {f"t{i}": float(v) for i, v in enumerate(values)}
