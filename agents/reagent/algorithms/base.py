"""The interface of every algorithm: one function, `(AlgoBatch, AlgoConfig) → AlgoOutput`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from reagent.algorithms.masks import Masks
from reagent.algorithms.whitening import Reduce, no_reduce

Scale = Literal["group", "batch", "none"]


@dataclass(frozen=True)
class AlgoBatch:
    """A batch as an algorithm reads it; shapes: `reagent.algorithms.masks`."""

    token_rewards: Tensor
    """(B, T), on action tokens."""
    action: Tensor
    """(B, T) bool: sampled tokens of known rows."""
    turn_index: Tensor
    """(B, T), -1 throughout in rows whose reward is unknown."""
    group: Tensor
    masks: Masks
    attempt: Tensor | None = None
    stage: Tensor | None = None
    """(B,) both, where the batch holds second attempts (`reagent.algorithms.groups.comparable`)."""
    values: Tensor | None = None
    bootstrap: Tensor | None = None
    """(B, T) and (B,), for `ppo` (`reagent.algorithms.gae.gae`)."""
    logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    """(B, T) both, of the sampling policy and of the reference, for the penalty in `reinforce++`'s reward."""


@dataclass(frozen=True)
class AlgoConfig:
    """Settings; each algorithm reads its own (docs/algorithms.md)."""

    gamma: float = 1.0
    gae_lambda: float = 0.95
    """Both per token: gamma for ppo and reinforce++, λ for ppo."""
    kl_coef: float = 0.0
    """β of the penalty in reinforce++'s reward; the other algorithms have their KL in the loss."""
    whiten: bool = True
    """ppo and both reinforce++; the others never are."""
    scale: Scale = "group"
    per_turn: bool = False
    """Group methods: credit turns with their reward-to-go (`reagent.algorithms.groups.leave_one_out`)."""
    reduce: Reduce = no_reduce


class AlgoOutput(NamedTuple):
    advantages: Tensor
    returns: Tensor | None = None
    """(B, T) value targets, unwhitened A + V, zero off the tokens GAE ran over; None without values."""


Algorithm = Callable[[AlgoBatch, AlgoConfig], AlgoOutput]
