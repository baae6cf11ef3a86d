"""Losses for policy-gradient training of agents: clipped policy and value losses, KL, entropy, and what to log of them.

Legend
    B, T, H, V   rows, tokens of a right-padded batch, hidden size, vocabulary
    mask         (B, T) bool, the tokens the loss is over (`Advantages.loss_mask`)
    denominator  what a sum is divided by: the count of the *whole* batch, over all micro-batches and processes

Every loss here is a sum over its own rows divided by the global denominator, so the micro-batches of an update add up to
the loss of the whole batch exactly, however it is split (along rows). A trainer therefore sums `loss_denominator` over
micro-batches and processes once, and undoes the averaging its data-parallel wrapper does to gradients by multiplying with
the number of processes.

Papers: PPO arXiv 1707.06347, dual clip 1912.09729, DAPO (low/high clip, token mean) 2503.14476, Dr. GRPO 2503.20783,
KL estimators joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from reagent.algorithms.advantages import Reduce, local_only, moments
from rrm.errors import ConfigError

Aggregation = Literal["token-mean", "sequence-mean", "constant-length"]
KLEstimator = Literal["k1", "k2", "k3"]
Entropy = Literal["none", "value", "gradient"]


# ---- log-probabilities ----------------------------------------------------------------------------------------------


def entropy_from_logits(logits: Tensor) -> Tensor:
    """(…, V) -> (…): −Σ p log p in nats, of finite logits."""
    logprobs = torch.log_softmax(logits, dim=-1)
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def _chunk_logprobs(
    hidden: Tensor, head: Callable[[Tensor], Tensor], targets: Tensor, temperature: float, entropy: Entropy
) -> tuple[Tensor, Tensor]:
    """(M, H), (M,) -> log-probability and entropy of each target, (M,) each, in fp32 or better."""
    logits = head(hidden)  # (M, V)
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    logprobs = logits.gather(-1, targets[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
    if entropy == "none":
        return logprobs, torch.zeros_like(logprobs)
    return logprobs, entropy_from_logits(logits if entropy == "gradient" else logits.detach())


def token_logprobs(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    input_ids: Tensor,
    mask: Tensor,
    *,
    temperature: float = 1.0,
    entropy: Entropy = "none",
    chunk_size: int = 1024,
) -> tuple[Tensor, Tensor]:
    """log π(input_ids[b, t] | input_ids[b, :t]) and the entropy of that distribution, at the tokens of `mask` only.

    Logits exist only for the masked tokens, `chunk_size` of them at a time; where a gradient is wanted a chunk's logits
    are computed again in the backward pass instead of being kept, so memory is O(chunk_size · V), not O(B · T · V).

    Args:
        hidden: (B, T, H) last hidden states; hidden[b, t − 1] predicts token t.
        head: (M, H) -> (M, V) logits, e.g. the model's `lm_head` (with its soft-capping, if it has one).
        input_ids: (B, T).
        mask: (B, T) bool, false in column 0: nothing predicts a row's first token.
        temperature: the rollout's; the logits are divided by it, so that sampling and training agree.
        entropy: `none` leaves zeros, `value` computes it without a gradient, `gradient` with one.

    Returns:
        logprobs and entropy, (B, T) each in fp32 (fp64 for fp64 logits), zero off the mask. With an empty mask the
        logprobs still depend on `hidden` and `head`, with zero gradients, so that every data-parallel process takes part in
        the backward pass.

    Raises:
        ValueError: mask set in column 0, shapes that differ, or a temperature that is not positive (greedy decoding has
            no policy gradient; sample with temperature > 0).
    """
    if tuple(hidden.shape[:2]) != tuple(mask.shape) or input_ids.shape != mask.shape:
        raise ValueError(
            f"hidden {tuple(hidden.shape)}, input_ids {tuple(input_ids.shape)} and mask {tuple(mask.shape)} must agree in (B, T)"
        )
    if bool(mask[:, 0].any()):
        raise ValueError(
            "mask is set on a row's first token, which nothing predicts: start the row with a prompt token"
        )
    if temperature <= 0:
        raise ValueError(f"temperature={temperature}: training needs the positive temperature the rollout sampled with")
    chosen = hidden[:, :-1][mask[:, 1:]]  # (M, H)
    targets = input_ids[mask]  # (M,), the same row-major order
    parts: list[tuple[Tensor, Tensor]] = []
    for start in range(0, max(len(targets), 1), chunk_size):
        part, ids = chosen[start : start + chunk_size], targets[start : start + chunk_size]
        if torch.is_grad_enabled():
            result = checkpoint(
                _chunk_logprobs, part, head, ids, temperature, entropy, use_reentrant=False, preserve_rng_state=False
            )
        else:
            result = _chunk_logprobs(part, head, ids, temperature, entropy)
        assert isinstance(result, tuple)
        parts.append(result)
    logprobs, entropies = (torch.cat(column) for column in zip(*parts, strict=True))
    blank = torch.zeros(mask.shape, dtype=logprobs.dtype, device=logprobs.device)
    return blank.masked_scatter(mask, logprobs), blank.masked_scatter(mask, entropies)


# ---- aggregation ----------------------------------------------------------------------------------------------------


def loss_denominator(mask: Tensor, aggregation: Aggregation, constant_length: int | None = None) -> Tensor:
    """This micro-batch's share of the global denominator, a 0-d float tensor; sum it over micro-batches and processes.

    `token-mean`: masked tokens. `sequence-mean`: rows with a masked token. `constant-length`: those rows × constant_length
    (Dr. GRPO: a constant such as the token budget, so that long rows are not down-weighted).

    Raises:
        ConfigError: unknown aggregation, or `constant-length` without a positive constant_length.
    """
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
    """(B, T) -> 0-d: this micro-batch's share of the batch's loss.

    `token-mean` and `constant-length`: Σ over masked tokens / denominator. `sequence-mean`: Σ over rows of the row's mean
    / denominator. The denominator is `loss_denominator` summed over the whole batch.

    Raises:
        ValueError: denominator is not positive: no token anywhere is left to learn from; skip the update.
    """
    if not denominator > 0:
        raise ValueError(f"loss denominator is {denominator}: the batch has no token to learn from; skip this update")
    kept = torch.where(mask, per_token, 0)
    if aggregation == "sequence-mean":
        return (kept.sum(dim=1) / mask.sum(dim=1).clamp(min=1)).sum() / denominator
    return kept.sum() / denominator


# ---- per-token losses -----------------------------------------------------------------------------------------------


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """(B, T) log π − log π_old, zero off the mask *before* any exp: exp of padding could be inf, and 0 · inf is NaN."""
    return torch.where(mask, logprobs - old_logprobs, 0)


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate as a loss: −min(ρA, clip(ρ, 1 − clip_low, 1 + clip_high) A), ρ = π/π_old (PPO eq. 7).

    Args:
        clip_low, clip_high: DAPO's decoupled bounds ("clip higher"); PPO's ε where equal.
        dual_clip: c > 1 bounds the loss of a bad token (A < 0) by −cA however large ρ is (dual-clip PPO eq. 5); None: off.

    Returns:
        per-token loss (B, T), zero off the mask, and clipped (B, T) bool: tokens whose gradient a clip has stopped.

    Raises:
        ConfigError: dual_clip ≤ 1.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ConfigError(f"dual_clip={dual_clip}: it must exceed 1 (3 is usual), or be null")
    ratio = log_ratio(logprobs, old_logprobs, mask).exp()
    plain = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    loss = torch.maximum(plain, bounded)
    clipped = bounded > plain
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        over = (advantages < 0) & (loss > ceiling)
        loss, clipped = torch.where(over, ceiling, loss), clipped | over
    return torch.where(mask, loss, 0), clipped & mask


def value_loss(
    values: Tensor, returns: Tensor, mask: Tensor, *, old_values: Tensor | None = None, vf_clip: float | None = None
) -> Tensor:
    """½ max((V − R)², (V_clip − R)²) per token (B, T), zero off the mask; V_clip = V_old + clip(V − V_old, ±vf_clip).

    Without vf_clip: ½ (V − R)².

    Raises:
        ValueError: vf_clip without old_values.
    """
    error = torch.where(mask, values - returns, 0)
    if vf_clip is None:
        return 0.5 * error**2
    if old_values is None:
        raise ValueError("vf_clip needs old_values (B, T), the values that the advantages were computed from")
    near = old_values + (values - old_values).clamp(-vf_clip, vf_clip)
    return 0.5 * torch.maximum(error**2, torch.where(mask, near - returns, 0) ** 2)


def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, estimator: KLEstimator = "k3") -> Tensor:
    """Estimate KL(π ‖ π_ref) per token from tokens sampled from π, (B, T), zero off the mask; with r = π_ref/π:

    | estimator | value        | gradient as a loss, in expectation over π                                          |
    |-----------|--------------|------------------------------------------------------------------------------------|
    | k1        | −log r       | ∇KL(π ‖ π_ref), because k2's gradient is used: its own, ∇log π, averages to nothing |
    | k2        | ½ (log r)²   | ∇KL(π ‖ π_ref), exactly                                                            |
    | k3        | r − 1 − log r| ∇KL(π_ref ‖ π), the other direction; equal to first order where r is near 1 (GRPO)  |

    k1 and k3 are unbiased as values, k2 is biased; k2 and k3 are never negative. Tokens sampled by an older policy bias
    all three.

    Raises:
        ConfigError: unknown estimator.
    """
    difference = log_ratio(logprobs, ref_logprobs, mask)  # −log r
    if estimator == "k1":
        half_square = 0.5 * difference**2
        return difference.detach() + half_square - half_square.detach()
    if estimator == "k2":
        return 0.5 * difference**2
    if estimator == "k3":
        return torch.expm1(-difference) + difference
    raise ConfigError(f"kl_estimator={estimator!r}: choose one of {', '.join(get_args(KLEstimator))}")


@torch.no_grad()
def importance_weights(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, cap: float = 2.0) -> Tensor:
    """min(π_train/π_rollout, cap) per token, (B, T), 1 off the mask (Ionides 2008, "Truncated Importance Sampling").

    Corrects for a rollout engine whose probabilities differ from the training forward's (kernels, precision) under the
    same weights. The per-token policy loss is multiplied by it.
    """
    return log_ratio(old_logprobs, rollout_logprobs, mask).exp().clamp(max=cap)


# ---- metrics --------------------------------------------------------------------------------------------------------


@dataclass
class LossMetrics:
    """What one micro-batch saw, in a form that adds up: over micro-batches, epochs and processes (`merge_metrics`)."""

    losses: dict[str, float] = field(default_factory=dict)
    """Shares of the batch's losses (already over the global denominator)."""
    sums: dict[str, float] = field(default_factory=dict)
    """Sums over masked tokens; `tokens` is their count."""
    maxima: dict[str, float] = field(default_factory=dict)


def merge_metrics(parts: Sequence[LossMetrics]) -> dict[str, float]:
    """One batch's metrics from its micro-batches (of all processes): losses added, sums turned into means over tokens.

    Keys, as far as their inputs were there: loss, policy_loss, value_loss, entropy, kl, clip_fraction, approx_kl,
    ratio_mean, ratio_deviation (the largest |ρ − 1|), importance_mean, tokens.
    """
    losses: dict[str, float] = {}
    sums: dict[str, float] = {}
    maxima: dict[str, float] = {}
    for part in parts:
        for into, of in ((losses, part.losses), (sums, part.sums)):
            for name, number in of.items():
                into[name] = into.get(name, 0.0) + number
        for name, number in part.maxima.items():
            maxima[name] = max(maxima.get(name, number), number)
    tokens = sums.pop("tokens", 0.0)
    return losses | {name: total / max(tokens, 1.0) for name, total in sums.items()} | maxima | {"tokens": tokens}


@torch.no_grad()
def ratio_metrics(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, clipped: Tensor) -> LossMetrics:
    """Clip fraction, approximate KL(π_old ‖ π) = mean(ρ − 1 − log ρ) and the ratio's mean and largest deviation from 1."""
    log_rho = log_ratio(logprobs, old_logprobs, mask)  # 0 off the mask, so every term below is 0 there
    excess = torch.expm1(log_rho)  # ρ − 1
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
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor, reduce: Reduce = local_only) -> Tensor:
    """1 − Var(R − V)/Var(R) over the masked tokens of all processes, 0-d; 0 where the returns do not vary."""
    _, residual, _ = moments(returns - values, mask, reduce)
    _, variance, _ = moments(returns, mask, reduce)
    return torch.where(variance > 0, 1 - residual / torch.where(variance > 0, variance, 1), 0)


# ---- the whole loss -------------------------------------------------------------------------------------------------


def agent_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    denominator: float,
    *,
    aggregation: Aggregation = "token-mean",
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
    """L = policy + vf_coef · value + kl_coef · KL − entropy_coef · entropy (PPO eq. 9), each term over the same tokens.

    Args:
        logprobs, old_logprobs, advantages: (B, T); the old ones from the training forward before the update.
        denominator: `loss_denominator` of the whole batch.
        entropy: (B, T) from `token_logprobs`; logged where given, in the loss where entropy_coef is not 0.
        ref_logprobs: (B, T); KL is logged where given, in the loss where kl_coef is not 0. (REINFORCE++ has its KL in the
            reward: leave kl_coef 0 here.)
        values, returns: (B, T), both or neither (methods without a value head).
        importance: (B, T) from `importance_weights`, multiplies the policy term.

    Returns:
        the loss, 0-d, and its metrics.

    Raises:
        ValueError: a coefficient is not 0 but its input is missing.
    """
    for name, coefficient, tensor in (("entropy", entropy_coef, entropy), ("ref_logprobs", kl_coef, ref_logprobs)):
        if coefficient and tensor is None:
            raise ValueError(f"{name} (B, T) is missing and its coefficient is {coefficient}; pass it, or set 0")
    if (values is None) != (returns is None):
        raise ValueError("values and returns go together: pass both (ppo) or neither")
    per_token, clipped = policy_loss(
        logprobs, old_logprobs, advantages, mask, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
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
