"""What a lab policy is built from: light to import, for the command line's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["tool_call", "naive_rag", "direct"]
_RARELY_THREE = (1, 2, 1, 2, 1, 2, 1, 2, 3)
HOPS: dict[Kind, tuple[int, ...]] = {"tool_call": _RARELY_THREE, "naive_rag": (1,), "direct": _RARELY_THREE}
"""Three hops are rare but not unheard of, or RL would never see one succeed; four are left to generalisation. `naive_rag` sees
one: with more its one retrieval does not hold the answer, and it would learn to guess."""


@dataclass(frozen=True)
class LabSettings:
    """How a lab policy is built. The defaults make the shipped one."""

    kind: Kind = "tool_call"
    seed: int = 0
    rows: int = 10000
    """Demonstrations; four in ten are calculator's, three in ten of each environment's hold a critique."""
    easy_rows: int = 2000
    """Demonstrations of a search without distractors, shown first and once."""
    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 2e-3
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    intermediate: int = 256
    """The task is to copy, which is attention's: narrow feed-forward layers cost nothing and save a third of the time."""
    vocab_size: int = 1280
    """Enough for each of the lab's 520 names to be one token."""
    hops: tuple[int, ...] | None = None
    """Of the demonstrations, dealt out in turn; null: `HOPS` of the kind."""

    @property
    def hop_counts(self) -> tuple[int, ...]:
        """`hops`, or what the kind is shown by default."""
        return self.hops or HOPS[self.kind]
