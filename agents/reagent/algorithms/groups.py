"""Group comparisons: returns of episodes or turns, and the leave-one-out baseline."""

from typing import Any

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch

EQUAL = 1e-6


def differs(value: Any, other: Any, size: Any = 1.0) -> Any:
    """True where rewards (numbers or tensors) differ by more than rounding; `size`: the largest, or 1."""
    return abs(value - other) > EQUAL * size


@torch.no_grad()
def returns_of(rows: AlgoBatch, per_turn: bool) -> tuple[Tensor, Tensor]:
    if per_turn:
        return turn_returns(rows.token_rewards, rows.action, rows.turn_index)
    return episode_returns(rows.token_rewards, rows.action)


@torch.no_grad()
def episode_returns(token_rewards: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 1) each row's total reward, and (B, 1) bool: whether the row has an action."""
    total = _exact(torch.where(action_mask, token_rewards, 0)).sum(1, keepdim=True)
    return total.to(token_rewards), action_mask.any(dim=1, keepdim=True)


@torch.no_grad()
def turn_returns(token_rewards: Tensor, action_mask: Tensor, turn_index: Tensor) -> tuple[Tensor, Tensor]:
    """Each turn's undiscounted reward-to-go (B, K), and (B, K) bool: the row has an action in the turn."""
    rows, n_turns = len(turn_index), int(turn_index.max().clamp(min=0).item()) + 1 if turn_index.numel() else 1
    turn = turn_index.clamp(min=0).long()  # prompt and padding hold no action token, so they add nothing to turn 0
    paid = _exact(torch.where(action_mask, token_rewards, 0))
    earned = paid.new_zeros(rows, n_turns).scatter_add(1, turn.to(paid.device), paid)
    tokens = token_rewards.new_zeros(rows, n_turns).scatter_add(1, turn, action_mask.to(token_rewards))
    return earned.flip(1).cumsum(1).flip(1).to(token_rewards), tokens > 0


def _exact(rewards: Tensor) -> Tensor:
    """Rewards in float64 on the CPU: else a rounding error of their sum would pass for a difference."""
    return rewards.cpu().double()


@torch.no_grad()
def comparable(group: Tensor, attempt: Tensor | None = None, stage: Tensor | None = None) -> Tensor:
    """(B, B) bool, [i, j]: row j may stand in row i's baseline.

    It is another row of i's group, and no second attempt whose prompt holds row i. `attempt`, `stage`: both or neither."""
    others = (group[:, None] == group[None]) & ~torch.eye(len(group), dtype=torch.bool, device=group.device)
    if attempt is None or stage is None:
        return others
    return others & ~((attempt[:, None] == attempt[None]) & (stage[:, None] < stage[None]))


@torch.no_grad()
def leave_one_out(returns: Tensor, present: Tensor, compared: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B, K): G_{i,k} minus the mean of G_{j,k} over compared rows j that reached turn k.

    Where none reached it, minus the mean of their total returns. No action of row i is in its baseline, nor is its number of
    turns, so E[baseline · ∇log π] = 0 (Kool et al. 2019, RLOO 2402.14740 §2.2); by turn this is this project's own.
    A mean of differences, so that equal rows come out as exactly 0.

    Args:
        returns, present: (B, K), as of `turn_returns`; the first column is the total return.
        compared: (B, B), from `comparable`. `weights`: (B,), None: equal.
    """
    has_actions, size = present.any(1), torch.where(present, returns, 0).abs().amax(1)  # (B,)
    size = torch.maximum(size[:, None], size[None]).clamp(min=1)  # (B, B)
    own = torch.eye(len(returns), dtype=torch.bool, device=returns.device)
    columns = []
    for k in range(returns.shape[1]):
        reached = compared & present[:, k]  # (B, B)
        others = torch.where((reached & ~own).any(1, keepdim=True), reached, compared & has_actions)
        theirs = torch.where(present[:, k], returns[:, k], returns[:, 0])
        difference = returns[:, k, None] - theirs  # (B, B)
        gaps = torch.where(others & differs(returns[:, k, None], theirs, size), difference, 0)
        counted = others if weights is None else others * weights
        columns.append((counted * gaps).sum(1) / counted.sum(1).clamp(min=1))
    return torch.where(present, torch.stack(columns, 1), 0)
