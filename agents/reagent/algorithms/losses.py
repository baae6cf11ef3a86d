"""Per-token losses: clipped policy loss, value loss, KL, importance weights.

(B, T) each; `mask` (B, T) bool, the tokens of the loss. Papers: PPO 1707.06347, dual clip 1912.09729, DAPO 2503.14476, GSPO
2507.18071, CISPO 2506.13585, KL estimators joschu.net/blog/kl-approx.html."""

from typing import Literal, get_args

import torch
from torch import Tensor

from rrm.errors import ConfigError

KLEstimator = Literal["k1", "k2", "k3"]
PolicyLoss = Literal["ppo", "gspo", "cispo"]
MAX_LOG_RATIO = 20.0
"""Bound on what is exponentiated, so that inf · 0 never makes a NaN."""


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """(B, T) log π − log π_old, zero off the mask *before* any exp: exp of padding may be inf."""
    return torch.where(mask, logprobs - old_logprobs, 0)


def bounded(log_ratio: Tensor) -> Tensor:
    """`log_ratio` within ±`MAX_LOG_RATIO`; no gradient from beyond."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    kind: PolicyLoss = "ppo",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The policy loss per token, with the bounds l = 1 − clip_low and h = 1 + clip_high:

    | kind  | loss                                                                                                  |
    |-------|-------------------------------------------------------------------------------------------------------|
    | ppo   | −min(ρA, clip(ρ, l, h) A), ρ = π/π_old (PPO eq. 7)                                                    |
    | gspo  | the same of s · π/sg(π), s = exp(mean of log ρ over the row's tokens) (GSPO-token, §4.3)               |
    | cispo | −sg(clip(ρ, l, h)) A log π: no clip stops a gradient (CISPO, §3.1)                                    |

    Returns the loss (B, T) and clipped (B, T) bool: tokens whose gradient (`cispo`: weight) a clip has bounded. Raises ConfigError.

    Args:
        clip_low, clip_high: DAPO's decoupled bounds; PPO's ε where equal.
        dual_clip: c > 1 bounds the loss of a token with A < 0 by −cA (dual-clip PPO eq. 5); None: off.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ConfigError(f"dual_clip={dual_clip}: it must exceed 1 (3 is usual), or be null")
    log_rho = log_ratio(logprobs, old_logprobs, mask)
    if kind == "gspo":
        row_mean = (log_rho.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)).detach()
        log_rho = row_mean + log_rho - log_rho.detach()
    ratio = bounded(log_rho).exp()
    if kind == "cispo":
        if dual_clip is not None:
            raise ConfigError("dual_clip bounds a loss that is a ratio, and cispo has none: set dual_clip=null")
        weight = ratio.detach().clamp(1 - clip_low, 1 + clip_high)
        return torch.where(mask, -weight * advantages * torch.where(mask, logprobs, 0), 0), (weight != ratio) & mask
    plain = -ratio * advantages
    clamped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    loss = torch.maximum(plain, clamped)
    clipped = clamped > plain
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        over = (advantages < 0) & (loss > ceiling)
        loss, clipped = torch.where(over, ceiling, loss), clipped | over
    return torch.where(mask, loss, 0), clipped & mask


def value_loss(
    values: Tensor, returns: Tensor, mask: Tensor, *, old_values: Tensor | None = None, vf_clip: float | None = None
) -> Tensor:
    """½ max((V − R)², (V_clip − R)²) per token (B, T), V_clip = V_old + clip(V − V_old, ±vf_clip).

    Without vf_clip: ½ (V − R)². Raises ValueError: vf_clip without old_values."""
    error = torch.where(mask, values - returns, 0)
    if vf_clip is None:
        return 0.5 * error**2
    if old_values is None:
        raise ValueError("vf_clip needs old_values (B, T), the values that the advantages were computed from")
    near = old_values + (values - old_values).clamp(-vf_clip, vf_clip)
    return 0.5 * torch.maximum(error**2, torch.where(mask, near - returns, 0) ** 2)


def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, estimator: KLEstimator = "k3") -> Tensor:
    """Estimate KL(π ‖ π_ref) per token sampled from π, (B, T); with r = π_ref/π:

    | estimator | value        | gradient as a loss, in expectation over π                                          |
    |-----------|--------------|------------------------------------------------------------------------------------|
    | k1        | −log r       | ∇KL(π ‖ π_ref), because k2's gradient is used: its own, ∇log π, averages to nothing |
    | k2        | ½ (log r)²   | ∇KL(π ‖ π_ref), exactly                                                            |
    | k3        | r − 1 − log r| ∇KL(π_ref ‖ π), the other direction; equal to first order where r is near 1 (GRPO)  |

    k1 and k3 are unbiased as values, k2 and k3 never negative; 0 off the mask. Tokens of an older policy bias all three. Raises
    ConfigError: unknown estimator.
    """
    difference = log_ratio(logprobs, ref_logprobs, mask)  # −log r
    if estimator == "k1":
        half_square = 0.5 * difference**2
        return difference.detach() + half_square - half_square.detach()
    if estimator == "k2":
        return 0.5 * difference**2
    if estimator == "k3":
        clamped = difference.clamp(
            min=-MAX_LOG_RATIO
        )  # in both terms: the second alone would push π further from π_ref
        return torch.expm1(-clamped) + clamped
    raise ConfigError(f"kl_estimator={estimator!r}: choose one of {', '.join(get_args(KLEstimator))}")


@torch.no_grad()
def importance_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, cap: float = 2.0) -> Tensor:
    """min(π_train/π_rollout, cap) per token, (B, T), 1 off the mask (Ionides 2008).

    Corrects the policy loss for a rollout engine whose probabilities differ under the same weights."""
    return bounded(log_ratio(old_logprobs, rollout_logprobs, mask)).exp().clamp(max=cap)
