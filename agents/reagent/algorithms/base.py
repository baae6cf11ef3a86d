"""What every algorithm is given, and what it gives back: one hook, `(Rows, Options) → Credit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from reagent.algorithms.masks import Masks
from reagent.algorithms.whitening import Reduce, no_reduce

Scale = Literal["group", "batch", "none"]


@dataclass(frozen=True)
class AlgoBatch:
    """A batch as an algorithm reads it. Legend: `reagent.algorithms.masks`."""

    token_rewards: Tensor
    """(B, T), on action tokens."""
    action: Tensor
    """(B, T) bool: sampled tokens of rows whose reward is known."""
    turn_index: Tensor
    """(B, T), -1 throughout in rows whose reward is unknown."""
    group: Tensor
    """(B,)."""
    masks: Masks
    attempt: Tensor | None = None
    stage: Tensor | None = None
    """(B,) both, where the batch holds second attempts; see `reagent.algorithms.groups.comparable`."""
    values: Tensor | None = None
    """(B, T), for `ppo`; see `reagent.algorithms.gae.gae`."""
    bootstrap: Tensor | None = None
    """(B,), for `ppo`; see `reagent.algorithms.gae.gae`."""
    logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    """(B, T) both, of the policy that sampled and of the reference, for the penalty in `reinforce++`'s reward."""


@dataclass(frozen=True)
class AlgoConfig:
    """Settings; each algorithm reads its own (docs/algorithms.md)."""

    gamma: float = 1.0
    """Per token: ppo, reinforce++."""
    gae_lambda: float = 0.95
    """Per token: ppo."""
    kl_coef: float = 0.0
    """β of the penalty in reinforce++'s reward; the other algorithms have their KL in the loss."""
    whiten: bool = True
    """ppo and both reinforce++; grpo and rloo are never whitened."""
    scale: Scale = "group"
    """grpo: what centred returns are divided by."""
    per_turn: bool = False
    """grpo, rloo, reinforce++-baseline: credit each turn with its reward-to-go (process rewards) rather than with the episode's
    whole reward, against the other rows that reached the turn: see `reagent.algorithms.groups.leave_one_out`."""
    reduce: Reduce = no_reduce


class AlgoOutput(NamedTuple):
    """What an algorithm says of a batch."""

    advantages: Tensor
    """(B, T); what stands off the loss mask is dropped by the caller."""
    returns: Tensor | None = None
    """(B, T) value targets, unwhitened A + V, on the tokens GAE ran over, else zero; None for methods without values."""


Algorithm = Callable[[AlgoBatch, AlgoConfig], AlgoOutput]
