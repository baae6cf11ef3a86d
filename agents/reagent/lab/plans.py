"""Plans: the right and wrong calls of a lab task, from which demonstrations are played."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rrm.data.trajectory import ToolCall


@dataclass(frozen=True)
class Move:
    call: ToolCall
    value: str
    says: str
    parts: dict[str, str] = field(default_factory=dict)
    """Places of a finding's template: `a` (the call's subject) and `rel` (its relation)."""


class ScriptedPlan(Protocol):
    """The moves of one task. Values are the text the agent reads and writes."""

    start: str
    length: int
    answer: str
    wordings: Mapping[str, Sequence[str]]
    """Templates of findings, by key (`reagent.lab.wordings.FINDING` for search)."""

    def move(self, step: int, value: str) -> Move:
        """The right call at `step` (from 0) with `value`; wrong values lead to wrong values."""
        ...

    def wrong(self, step: int, value: str, rng: random.Random) -> Move: ...

    def retrieval(self) -> ToolCall:
        """The one call of `naive_rag`: the question as it stands."""
        ...


def fault(needed: Move, wrong: Move) -> tuple[str, dict[str, str]]:
    if wrong.parts["a"] != needed.parts["a"]:
        return "wrong_entity", {**needed.parts, "c": wrong.parts["a"]}
    return "wrong_relation", {**needed.parts, "other": wrong.parts["rel"]}


def spread(hops: int | Sequence[int], index: int) -> int:
    counts = [hops] if isinstance(hops, int) else list(hops)
    return counts[index % len(counts)]
