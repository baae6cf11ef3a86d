"""Log-probabilities and entropy of chosen tokens, without a whole batch's logits in memory.

B, T, H, V: rows, tokens of a right-padded batch, hidden size, vocabulary; M masked tokens."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Entropy = Literal["none", "value", "gradient"]


def entropy_from_logits(logits: Tensor) -> Tensor:
    """(…, V) finite logits -> (…): −Σ p log p, in nats."""
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
    """log π(input_ids[b, t] | input_ids[b, :t]) and that distribution's entropy, at the tokens of `mask`.

    Logits exist for `chunk_size` tokens at a time and are recomputed in the backward pass: memory is O(chunk_size · V). With an
    empty mask logprobs still depend on `hidden` and `head`: every data-parallel process takes part in the backward pass.

    Args:
        hidden: (B, T, H) last hidden states; hidden[b, t − 1] predicts token t.
        head: (M, H) -> (M, V) logits, with its soft-capping if it has one.
        mask: (B, T) bool, false in column 0: nothing predicts a row's first token.
        temperature: the rollout's; divides the logits.
        entropy: `none` leaves zeros, `value` computes it without a gradient, `gradient` with one.

    Raises:
        ValueError: mask set in column 0, shapes that differ, or a temperature that is not positive.
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
        chunk, ids = chosen[start : start + chunk_size], targets[start : start + chunk_size]
        if torch.is_grad_enabled():
            result = checkpoint(
                _chunk_logprobs, chunk, head, ids, temperature, entropy, use_reentrant=False, preserve_rng_state=False
            )
        else:
            result = _chunk_logprobs(chunk, head, ids, temperature, entropy)
        assert isinstance(result, tuple)
        parts.append(result)
    logprobs, entropies = (torch.cat(column) for column in zip(*parts, strict=True))
    blank = torch.zeros(mask.shape, dtype=logprobs.dtype, device=logprobs.device)
    return blank.masked_scatter(mask, logprobs), blank.masked_scatter(mask, entropies)
