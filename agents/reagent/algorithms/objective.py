"""Turns per-token losses into a batch's loss and its metrics.

A loss is a sum over its own rows divided by a denominator of the *whole* batch, over all micro-batches and processes: sum
`loss_denominator` over both once, and multiply by the number of processes where a wrapper averages gradients.

(B, T) each; `mask` (B, T) bool, the tokens of the loss. Papers: PPO 1707.06347, DAPO (token mean) 2503.14476, Dr. GRPO 2503.20783."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from reagent.algorithms.losses import KLEstimator, PolicyLoss, bounded, kl_penalty, log_ratio, policy_loss, value_loss
from reagent.algorithms.whitening import Reduce, moments, no_reduce
from rrm.errors import ConfigError

Aggregation = Literal["token-mean", "sequence-mean", "constant-length"]


def loss_denominator(mask: Tensor, aggregation: Aggregation, constant_length: int | None = None) -> Tensor:
    """This micro-batch's share of the global denominator, a 0-d float tensor.

    `token-mean`: masked tokens. `sequence-mean`: rows with a masked token. `constant-length`: those rows × constant_length
    (Dr. GRPO). Raises ConfigError: unknown aggregation, or `constant-length` without a positive constant_length."""
    if aggregation not in get_args(Aggregation):
        raise ConfigError(f"aggregation={aggregation!r}: choose one of {', '.join(get_args(Aggregation))}")
    if aggregation == "token-mean":
        return mask.sum().float()
    rows = mask.any(dim=1).sum().float()
    if aggregation == "sequence-mean":
        return rows
    if not constant_length or constant_length < 0:
        raise ConfigError("aggregation=constant-length needs a positive constant_length, e.g. the token budget")
    return rows * constant_length


def aggregate(per_token: Tensor, mask: Tensor, denominator: float, aggregation: Aggregation) -> Tensor:
    """(B, T) -> 0-d: this micro-batch's share of the batch's loss. Raises ValueError: denominator ≤ 0.

    Σ over masked tokens (`sequence-mean`: Σ over rows of the row's mean) / `loss_denominator` of the whole batch."""
    if not denominator > 0:
        raise ValueError(f"loss denominator is {denominator}: the batch has no token to learn from; skip this update")
    masked = torch.where(mask, per_token, 0)
    if aggregation == "sequence-mean":
        return (masked.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).sum() / denominator
    return masked.sum() / denominator


@dataclass
class LossMetrics:
    """Additive metrics of one micro-batch (`merge_metrics`)."""

    losses: dict[str, float] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    """Sums over masked tokens; `tokens` is their count. Losses are over the global denominator."""
    maxima: dict[str, float] = field(default_factory=dict)


def merge_metrics(parts: Sequence[LossMetrics]) -> dict[str, float]:
    """Merge the metrics of a batch's micro-batches on all processes; sums become means over tokens.

    Keys, as far as their inputs were there: loss, policy_loss, value_loss, entropy, kl, clip_fraction, approx_kl,
    ratio_mean, ratio_deviation (the largest |ρ − 1|), importance_mean, tokens."""
    losses: dict[str, float] = {}
    sums: dict[str, float] = {}
    maxima: dict[str, float] = {}
    for micro in parts:
        for into, source in ((losses, micro.losses), (sums, micro.sums)):
            for name, number in source.items():
                into[name] = into.get(name, 0.0) + number
        for name, number in micro.maxima.items():
            maxima[name] = max(maxima.get(name, number), number)
    tokens = sums.pop("tokens", 0.0)
    return losses | {name: total / max(tokens, 1.0) for name, total in sums.items()} | maxima | {"tokens": tokens}


@torch.no_grad()
def ratio_metrics(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, clipped: Tensor) -> LossMetrics:
    """Clip fraction, KL(π_old ‖ π) ≈ mean(ρ − 1 − log ρ), the ratio's mean and largest deviation from 1."""
    log_rho = log_ratio(logprobs, old_logprobs, mask)  # 0 off the mask, so every term below is 0 there
    excess = torch.expm1(bounded(log_rho))  # ρ − 1
    tokens = float(mask.sum())
    return LossMetrics(
        sums={
            "tokens": tokens,
            "clip_fraction": float(clipped.sum()),
            "approx_kl": float((excess - log_rho).sum()),
            "ratio_mean": float(excess.sum()) + tokens,
        },
        maxima={"ratio_deviation": float(excess.abs().max()) if excess.numel() else 0.0},
    )


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor, reduce: Reduce = no_reduce) -> Tensor:
    """1 − Var(R − V)/Var(R) over all processes' masked tokens, 0-d; 0 where returns do not vary."""
    _, residual, _ = moments(returns - values, mask, reduce)
    _, variance, _ = moments(returns, mask, reduce)
    return torch.where(variance > 0, 1 - residual / torch.where(variance > 0, variance, 1), 0)


def agent_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    denominator: float,
    *,
    aggregation: Aggregation = "token-mean",
    kind: PolicyLoss = "ppo",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    entropy: Tensor | None = None,
    entropy_coef: float = 0.0,
    ref_logprobs: Tensor | None = None,
    kl_coef: float = 0.0,
    kl_estimator: KLEstimator = "k3",
    values: Tensor | None = None,
    old_values: Tensor | None = None,
    returns: Tensor | None = None,
    vf_coef: float = 0.5,
    vf_clip: float | None = None,
    importance: Tensor | None = None,
) -> tuple[Tensor, LossMetrics]:
    """L = policy + vf_coef · value + kl_coef · KL − entropy_coef · entropy (PPO eq. 9).

    Inputs are (B, T); `old_logprobs` from the training forward before the update, `entropy` from `token_logprobs`, `importance`
    from `importance_weights`. Entropy and KL are logged where given, in the loss where their coefficient is not 0 (REINFORCE++
    has its KL in the reward). `denominator`: `loss_denominator` of the batch. Raises ValueError: an input is missing."""
    for name, coefficient, tensor in (("entropy", entropy_coef, entropy), ("ref_logprobs", kl_coef, ref_logprobs)):
        if coefficient and tensor is None:
            raise ValueError(f"{name} (B, T) is missing and its coefficient is {coefficient}; pass it, or set 0")
    if (values is None) != (returns is None):
        raise ValueError("values and returns go together: pass both (ppo) or neither")
    per_token, clipped = policy_loss(
        logprobs, old_logprobs, advantages, mask, kind=kind, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )
    metrics = ratio_metrics(logprobs, old_logprobs, mask, clipped)
    if importance is not None:
        per_token = per_token * importance
        metrics.sums["importance_mean"] = float(torch.where(mask, importance, 0).sum())
    loss = aggregate(per_token, mask, denominator, aggregation)
    metrics.losses["policy_loss"] = float(loss.detach())
    if values is not None and returns is not None:
        errors = value_loss(values, returns, mask, old_values=old_values, vf_clip=vf_clip)
        value_part = aggregate(errors, mask, denominator, aggregation)
        metrics.losses["value_loss"] = float(value_part.detach())
        loss = loss + vf_coef * value_part
    if ref_logprobs is not None:
        divergence = kl_penalty(logprobs, ref_logprobs, mask, kl_estimator)
        metrics.sums["kl"] = float(divergence.detach().sum())
        if kl_coef:
            loss = loss + kl_coef * aggregate(divergence, mask, denominator, aggregation)
    if entropy is not None:
        metrics.sums["entropy"] = float(torch.where(mask, entropy, 0).detach().sum())
        if entropy_coef:
            loss = loss - entropy_coef * aggregate(entropy, mask, denominator, aggregation)
    metrics.losses["loss"] = float(loss.detach())
    return loss, metrics
