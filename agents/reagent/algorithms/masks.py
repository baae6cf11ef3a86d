"""Credit and loss masks, and the compaction that lets credit skip tokens (Agent-R1 §3, 2511.14460).

    B, T    rows and tokens of a right-padded batch
    N       most action tokens of a row; i counts a row's action tokens only
    K       most turns of a row; k counts turns from 0
    action_mask  (B, T) true exactly on sampled tokens
    turn_index   (B, T) -1 on the prompt and on padding, k on turn k's output and on the observation that answers it
    known        (B,)   false where a row's reward is unknown: the row teaches nothing and counts in no statistic
    group        (B,)   any integer per group; all rows of a group must be in the same call (one process)
    attempt      (B,)   number within the group; a second attempt has the number of the first one its prompt holds
    stage        (B,)   0 for first attempts, 1 for second ones

Nothing here reads a number outside its mask, so garbage in padding is inert.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rrm.errors import ConfigError


class Masks(NamedTuple):
    """The two masks of Agent-R1 §3, (B, T) bool each."""

    credit: Tensor
    loss: Tensor


def compact_index(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Index (B, N) of each row's chosen tokens, in order, and valid (B, N) bool; N may be 0.

    Where not valid, index points at distinct unchosen tokens, so that `scatter` may write zeros there."""
    counts = mask.sum(dim=1)  # (B,)
    longest = int(counts.max().item()) if counts.numel() else 0
    index = torch.argsort(mask.int(), dim=1, descending=True, stable=True)[:, :longest]
    return index, torch.arange(longest, device=mask.device) < counts[:, None]


def gather(tensor: Tensor, index: Tensor, valid: Tensor) -> Tensor:
    """(B, T) -> (B, N): the chosen tokens' numbers to the left, zeros behind them."""
    return torch.where(valid, tensor.gather(1, index), 0)


def scatter(compacted: Tensor, index: Tensor, valid: Tensor, length: int) -> Tensor:
    """(B, N) -> (B, T = length): the inverse of `gather`, zeros elsewhere."""
    out = compacted.new_zeros(compacted.shape[0], length)
    return out.scatter(1, index, torch.where(valid, compacted, 0))


def credit_masks(action_mask: Tensor, turn_index: Tensor, *, action: bool = True, advantage: bool = True) -> Masks:
    """Credit and loss masks for the design and its ablations.

    | action mask | advantage mask | credit runs over     | loss on              |
    |-------------|----------------|----------------------|----------------------|
    | on          | on             | action tokens        | action tokens        |
    | on          | off            | all response tokens  | action tokens        |
    | off         | off            | all response tokens  | all response tokens  |

    The response is everything after the prompt, observations included. Raises ConfigError: only the action mask off.
    """
    if advantage and not action:
        raise ConfigError(
            "action_mask=false needs advantage_mask=false: with the advantage mask on, observation tokens have no "
            "advantage to be trained with"
        )
    sampled, response = action_mask.bool(), turn_index >= 0
    return Masks(credit=sampled if advantage else response, loss=sampled if action else response)


@torch.no_grad()
def spread(per_turn: Tensor, turn_index: Tensor, mask: Tensor) -> Tensor:
    """(B, K) -> (B, T): every masked token gets its turn's number (K = 1: its row's), all others zero."""
    turn = turn_index.clamp(min=0, max=per_turn.shape[1] - 1).long()
    return torch.where(mask, per_turn.gather(1, turn), 0)
