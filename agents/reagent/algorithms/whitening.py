"""Mean, variance and whitening over the masked tokens of all processes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]
"""Element-wise sum over processes, e.g. `functools.partial(accelerator.reduce, reduction="sum")`. Every process must make
the same calls in the same order, also one that holds no tokens: `whiten` and GRPO's `scale="batch"` reduce twice each."""


def no_reduce(tensor: Tensor) -> Tensor:
    """The `Reduce` of a single process: nothing to add."""
    return tensor


@torch.no_grad()
def moments(x: Tensor, mask: Tensor, reduce: Reduce = no_reduce) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance (ddof = 0) and count of x over the mask and over all processes, 0-d tensors.

    Two passes (the mean first), each one `reduce`, so uneven counts and large means lose nothing. An empty mask
    everywhere gives 0, 0, 0.
    """
    total, count = reduce(torch.stack([torch.where(mask, x, 0).sum(), mask.sum().to(x)]))
    mean = total / count.clamp(min=1)
    (squares,) = reduce(torch.where(mask, (x - mean) ** 2, 0).sum()[None])
    return mean, squares / count.clamp(min=1), count


@torch.no_grad()
def whiten(advantages: Tensor, mask: Tensor, reduce: Reduce = no_reduce, eps: float = 1e-8) -> Tensor:
    """(B, T): (A − mean) / sqrt(var + eps) with the mean and variance (ddof = 0) of all masked tokens of all processes.

    Zero off the mask; a single token becomes 0.
    """
    mean, variance, _ = moments(advantages, mask, reduce)
    return torch.where(mask, (advantages - mean) * torch.rsqrt(variance + eps), 0)
