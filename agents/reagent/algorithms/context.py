"""Context distillation: how much likelier each token of an attempt is to a policy that was told more.

    Δ_i = log π(a_i | q, c, a_<i) − log π(a_i | q, a_<i)

As an advantage of token i, with no gradient through it, it moves π(· | q) towards π(· | q, c). For a c that is independent of a, E_{a ~ π(· | q)} Δ_i
is −KL of the two next-token distributions, and ∇ of that KL is −E[Δ_i ∇ log π(a_i | q)]. A critique of the very attempt is not: one that names the
action taken, and so makes it likelier (0.5 → 0.9), has E Δ = log 1.8 = +0.59, and what was done is reinforced whatever the critique thinks of it.
Each token answers for itself alone: what it makes of later ones is not in it. Legend: `reagent.algorithms.masks`.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def context_differences(logprobs: Tensor, mask: Tensor, told: Tensor, told_mask: Tensor) -> Tensor:
    """Δ (B, T) on `mask`, zero elsewhere.

    Args:
        logprobs, mask: (B, T) log π after the plain prompts, at the actions.
        told, told_mask: (B, T') the same actions after the longer prompts.

    Raises:
        ValueError: a row has not as many actions in both.
    """
    if not torch.equal(mask.sum(1), told_mask.sum(1)):
        counts = mask.sum(1).tolist(), told_mask.sum(1).tolist()
        raise ValueError(
            f"the same actions must stand after both prompts; there are {counts[0]} and {counts[1]} in the rows"
        )
    moved = torch.zeros_like(logprobs).masked_scatter(mask, told[told_mask])  # row by row, in the actions' order
    return torch.where(mask, moved - logprobs, 0)
