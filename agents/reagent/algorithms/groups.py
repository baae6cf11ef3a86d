"""What group methods compare: whole episodes or each turn's reward-to-go, and the baseline that leaves a row's own out."""

from typing import Any

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch

EQUAL = 1e-6
"""Rewards that differ by no more are equal."""


def differs(one: Any, other: Any, size: Any = 1.0) -> Any:
    """Whether rewards differ by more than rounding makes them; of numbers or, element by element, of tensors. `size`: of the largest
    reward; 1 for what is smaller."""
    return abs(one - other) > EQUAL * size


@torch.no_grad()
def returns_of(rows: AlgoBatch, per_turn: bool) -> tuple[Tensor, Tensor]:
    """`turn_returns` or `episode_returns` of a batch."""
    if per_turn:
        return turn_returns(rows.token_rewards, rows.action, rows.turn_index)
    return episode_returns(rows.token_rewards, rows.action)


@torch.no_grad()
def episode_returns(token_rewards: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's whole reward as (B, 1), and (B, 1) bool: whether the row has an action that could have earned it."""
    whole = _exact(torch.where(action_mask, token_rewards, 0)).sum(1, keepdim=True)
    return whole.to(token_rewards), action_mask.any(dim=1, keepdim=True)


@torch.no_grad()
def turn_returns(token_rewards: Tensor, action_mask: Tensor, turn_index: Tensor) -> tuple[Tensor, Tensor]:
    """Each turn's reward-to-go, its own reward and all later ones, undiscounted.

    Returns:
        returns (B, K) and present (B, K) bool, the turns in which the row has an action token.
    """
    rows, n_turns = len(turn_index), int(turn_index.max().clamp(min=0).item()) + 1 if turn_index.numel() else 1
    turn = turn_index.clamp(min=0).long()  # prompt and padding hold no action token, so they add nothing to turn 0
    paid = _exact(torch.where(action_mask, token_rewards, 0))
    earned = paid.new_zeros(rows, n_turns).scatter_add(1, turn.to(paid.device), paid)
    tokens = token_rewards.new_zeros(rows, n_turns).scatter_add(1, turn, action_mask.to(token_rewards))
    return earned.flip(1).cumsum(1).flip(1).to(token_rewards), tokens > 0


def _exact(rewards: Tensor) -> Tensor:
    """For a sum that does not depend on its order: rewards that cancel would leave a rounding error that passes for a
    difference. On the CPU, as not every device has float64."""
    return rewards.cpu().double()


@torch.no_grad()
def comparable(group: Tensor, attempt: Tensor | None = None, stage: Tensor | None = None) -> Tensor:
    """(B, B) bool, [i, j]: row j may stand in row i's baseline. It is another row of i's group, and none that comes out of
    row i: a second attempt, whose prompt holds row i, depends on row i's actions.

    Args:
        attempt, stage: both or neither; see `reagent.algorithms.masks`. None: no row comes out of another.
    """
    others = (group[:, None] == group[None]) & ~torch.eye(len(group), dtype=torch.bool, device=group.device)
    if attempt is None or stage is None:
        return others
    return others & ~((attempt[:, None] == attempt[None]) & (stage[:, None] < stage[None]))


@torch.no_grad()
def leave_one_out(returns: Tensor, present: Tensor, compared: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B, K): G_{i,k} minus its baseline, the mean of G_{j,k} over the rows j that row i is compared with and that reached
    turn k; where none did, the mean of their whole returns. DESIGN: no source has this baseline turn by turn.

    No action of row i is in its baseline, nor is how many turns it took, so E[baseline · ∇log π] = 0: unbiased also where
    the policy decides when to stop (leave-one-out: Kool et al. 2019, RLOO 2402.14740 §2.2; reward-to-go: an action earns
    nothing that came before it). Taken as a mean of differences, so that equal rows come out as 0 to the last bit; a
    difference that rounding alone can make counts as none (`differs`).

    Args:
        returns, present: (B, K), from `episode_returns` or `turn_returns`; the first column is the whole return.
        compared: (B, B), from `comparable`; a row may be compared with itself, too.
        weights: (B,) of the rows in the mean; None: all count the same.

    Returns:
        (B, K); zero where not present and where there is nobody to be compared with.
    """
    known, size = present.any(1), torch.where(present, returns, 0).abs().amax(1)  # (B,)
    size = torch.maximum(size[:, None], size[None]).clamp(min=1)  # (B, B)
    own = torch.eye(len(returns), dtype=torch.bool, device=returns.device)
    columns = []
    for k in range(returns.shape[1]):
        reached = compared & present[:, k]  # (B, B)
        others = torch.where((reached & ~own).any(1, keepdim=True), reached, compared & known)
        theirs = torch.where(present[:, k], returns[:, k], returns[:, 0])
        difference = returns[:, k, None] - theirs  # (B, B)
        kept = torch.where(others & differs(returns[:, k, None], theirs, size), difference, 0)
        counted = others if weights is None else others * weights
        columns.append((counted * kept).sum(1) / counted.sum(1).clamp(min=1))
    return torch.where(present, torch.stack(columns, 1), 0)
