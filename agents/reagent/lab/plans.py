"""A plan: how a lab task is solved call by call, and how it goes wrong. Demonstrations are played from it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rrm.data.trajectory import ToolCall


@dataclass(frozen=True)
class Move:
    """One call and what it gives."""

    call: ToolCall
    value: str
    says: str
    """The result in a sentence, as the agent's thought."""
    parts: dict[str, str] = field(default_factory=dict)
    """What a finding's template has places for: `a` (whom the call is about) and `rel` (what it asks)."""


class ScriptedPlan(Protocol):
    """The moves of one task. Values are the text the agent reads and writes."""

    start: str
    length: int
    answer: str
    wordings: Mapping[str, Sequence[str]]
    """Templates of findings: `search` for a right call, `malformed`, `gave_up`, `stops_early`, `follows`, `wrong_entity`
    (places `a`, `c`, `rel`), `wrong_relation` (`a`, `rel`, `other`). `reagent.lab.wordings.FINDING` has them for search."""

    def move(self, step: int, value: str) -> Move:
        """The right call at `step` (from 0) for who holds `value`; wrong values lead to wrong values."""
        ...

    def wrong(self, step: int, value: str, rng: random.Random) -> Move:
        """A well-formed call that is the wrong one."""
        ...

    def retrieval(self) -> ToolCall:
        """The one call of an agent that only calls once: with the question as it stands."""
        ...


def fault(needed: Move, made: Move) -> tuple[str, dict[str, str]]:
    """Key and parts of the finding on a wrong call."""
    if made.parts["a"] != needed.parts["a"]:
        return "wrong_entity", {**needed.parts, "c": made.parts["a"]}
    return "wrong_relation", {**needed.parts, "other": made.parts["rel"]}


def spread(hops: int | Sequence[int], index: int) -> int:
    """Hop counts dealt out in turn, so that each is equally frequent."""
    counts = [hops] if isinstance(hops, int) else list(hops)
    return counts[index % len(counts)]
