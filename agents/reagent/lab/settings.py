"""Settings of the lab's policies, light to import."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["tool_call", "naive_rag", "direct"]
_ONE_TO_FOUR = (3, 2, 1, 4, 2, 3, 2, 1, 3, 4, 2, 3)
HOPS: dict[Kind, tuple[int, ...]] = {"tool_call": _ONE_TO_FOUR, "naive_rag": (1,), "direct": _ONE_TO_FOUR}
"""`naive_rag` sees one hop: with more its one retrieval does not hold the answer."""


@dataclass(frozen=True)
class LabSettings:
    """Settings of a lab policy. The defaults make the shipped one."""

    kind: Kind = "tool_call"
    seed: int = 0
    rows: int = 12000
    """Careful demonstrations; four in ten are calculator's, three in ten of each hold a critique."""
    easy_rows: int = 2000
    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 2e-3
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    intermediate: int = 256
    """Narrow: copying is attention's task."""
    vocab_size: int = 1536
    """Enough for each of the lab's 520 names and 199 numbers to be one token."""
    hurried_rows: int = 2000
    """`tool_call` rows of a second, shorter training with hurried agents (`reagent.lab.build.HURRIED`)."""
    hops: tuple[int, ...] | None = None
    """Hops of the demonstrations, taken in turn; null: `HOPS` of the kind."""

    @property
    def hop_counts(self) -> tuple[int, ...]:
        return self.hops or HOPS[self.kind]


@dataclass(frozen=True)
class ReflectSettings:
    """Settings of `reflect`: second attempts, and the judge's texts. The defaults make the shipped policy."""

    seed: int = 0
    rows: int = 8000
    repeated: int = 4000
    """Rows as in the last stage of the policy's own training."""
    batch_size: int = 8
    learning_rate: float = 1e-3
