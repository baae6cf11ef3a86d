"""Choosing the next token: greedy or by each row's own uniform numbers, so that a batch cannot change a sample."""

from __future__ import annotations

import torch

from rrm.engines.hf.base_model import widest_float

BELOW_ONE = 1 - 2**-24
"""The largest float32 below 1: times a sum it stays below the sum, so a token of mass 0 is never chosen."""


def row_uniforms(seed: int, count: int) -> torch.Tensor:
    """`count` uniform numbers in [0, 1) (float64, on the CPU) of one row; number t decides its token t."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def _nucleus(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all but the smallest set of most likely tokens whose mass reaches `top_p` (the best one always stays)."""
    ordered, order = probs.sort(dim=-1, descending=True)
    outside = ordered.cumsum(-1) - ordered >= top_p
    outside[:, 0] = False
    return probs.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), 0.0)


def choose(
    logits: torch.Tensor, temperature: float, top_p: float, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next token of each row and its log-probability.

    Args:
        logits: (B, V) float32.
        temperature: 0 is greedy; its log-probabilities are those at temperature 1.
        top_p: nucleus mass; 1 is off. The log-probabilities returned are those before the nucleus cut.
        uniforms: (B,) float64 in [0, 1), inverted through each row's cumulative distribution; unused when greedy.

    Returns:
        ids (B,) int64 and log-probabilities (B,) float32.
    """
    if temperature == 0.0:
        best, ids = logits.max(-1)
        return ids, best - logits.logsumexp(-1)
    logprobs = (logits / temperature).log_softmax(-1)
    wide = widest_float(logits.device)
    probs = logprobs.to(wide).exp()
    if top_p < 1.0:
        probs = _nucleus(probs, top_p)
    cumulative = probs.cumsum(-1)
    drawn = uniforms if wide == torch.float64 else uniforms.clamp(max=BELOW_ONE)
    # cast before it moves: a device without float64 cannot receive one
    targets = drawn.to(wide).to(cumulative.device)[:, None] * cumulative[:, -1:]
    # right=True takes the first token whose cumulative mass exceeds the target: one of mass 0 is never chosen.
    ids = torch.searchsorted(cumulative, targets, right=True).clamp_(max=logits.shape[1] - 1)
    return ids[:, 0], logprobs.gather(1, ids)[:, 0]
