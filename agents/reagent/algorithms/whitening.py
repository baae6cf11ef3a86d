"""Mean, variance and whitening over the masked tokens of all processes."""

from collections.abc import Callable

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]
"""Element-wise sum over processes, e.g. `functools.partial(accelerator.reduce, reduction="sum")`.

Every process must make the same calls in the same order: `whiten` and GRPO's `scale="batch"` reduce twice each."""


def no_reduce(tensor: Tensor) -> Tensor:
    return tensor


@torch.no_grad()
def moments(x: Tensor, mask: Tensor, reduce: Reduce = no_reduce) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance (ddof = 0) and count of x over the mask and all processes, 0-d tensors.

    Two passes, so that uneven counts and large means lose nothing. An empty mask everywhere gives 0, 0, 0."""
    total, count = reduce(torch.stack([torch.where(mask, x, 0).sum(), mask.sum().to(x)]))
    mean = total / count.clamp(min=1)
    (squares,) = reduce(torch.where(mask, (x - mean) ** 2, 0).sum()[None])
    return mean, squares / count.clamp(min=1), count


@torch.no_grad()
def whiten(advantages: Tensor, mask: Tensor, reduce: Reduce = no_reduce, eps: float = 1e-8) -> Tensor:
    """(B, T): (A − mean) / sqrt(var + eps) over all processes' masked tokens; zero off the mask."""
    mean, variance, _ = moments(advantages, mask, reduce)
    return torch.where(mask, (advantages - mean) * torch.rsqrt(variance + eps), 0)
