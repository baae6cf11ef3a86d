"""A plan: how a lab task is solved call by call, and how it goes wrong. Demonstrations are played from it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from rrm.trajectory import ToolCall


@dataclass(frozen=True)
class Move:
    """One call, what it gives, and what it asks for in a critique's words."""

    call: ToolCall
    value: str
    wants: str
    """`the boss of Kavomi`."""
    says: str
    """The result in a sentence, as the agent's thought."""


class Plan(Protocol):
    """The moves of one task. Values are the text the agent reads and writes."""

    start: str
    length: int
    answer: str

    def move(self, step: int, value: str) -> Move:
        """The right call at `step` (from 0) for who holds `value`; wrong values lead to wrong values."""
        ...

    def wrong(self, step: int, value: str, rng: random.Random) -> Move:
        """A well-formed call that is the wrong one."""
        ...

    def retrieval(self) -> ToolCall:
        """The one call of an agent that only calls once: with the question as it stands."""
        ...


def spread(hops: int | list[int] | tuple[int, ...], index: int) -> int:
    """Hop counts dealt out in turn, so that each is equally frequent."""
    counts = [hops] if isinstance(hops, int) else list(hops)
    return counts[index % len(counts)]
