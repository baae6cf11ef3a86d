"""Generalised advantage estimation (1506.02438) over the tokens that carry credit: PPO's advantages."""

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput
from reagent.algorithms.masks import compact_index, gather, scatter
from reagent.algorithms.whitening import whiten


def ppo(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """PPO's credit (1707.06347): GAE, value targets, then whitening. Raises ValueError: no values."""
    if rows.values is None:
        raise ValueError("ppo needs values (B, T); pass the value head's output, aligned as gae() says")
    advantages, targets = gae(
        rows.token_rewards,
        rows.values,
        rows.masks.credit,
        gamma=options.gamma,
        gae_lambda=options.gae_lambda,
        bootstrap=rows.bootstrap,
    )
    return AlgoOutput(whiten(advantages, rows.masks.loss, options.reduce) if options.whiten else advantages, targets)


@torch.no_grad()
def gae(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    gae_lambda: float = 0.95,
    bootstrap: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Estimate advantages over the compacted tokens of `mask` (GAE eq. 16; Agent-R1's advantage mask).

    δ_i = r_i + γ V_{i+1} − V_i,  A_i = δ_i + γλ A_{i+1},  i = 1..n over the row's masked tokens: an observation takes
    neither a discount nor credit. Returns advantages and value targets A + V, both (B, T) and zero off the mask.

    Args:
        values: (B, T), V of the state in which token t is sampled (the value head one position earlier).
        bootstrap: (B,) V_{n+1} of episodes that were cut off; zero on rows that terminated.
    """
    index, valid = compact_index(mask)
    rewards, before = gather(token_rewards, index, valid), gather(values.to(token_rewards), index, valid)  # (B, N)
    end = before.new_zeros(len(before)) if bootstrap is None else bootstrap.to(before)  # (B,)
    following, advantage = end, torch.zeros_like(end)  # V_{i+1}, A_{i+1}
    compacted = torch.zeros_like(before)
    for i in reversed(range(before.shape[1])):
        here = valid[:, i]
        delta = rewards[:, i] + gamma * following - before[:, i]
        advantage = torch.where(here, delta + gamma * gae_lambda * advantage, advantage)
        following = torch.where(here, before[:, i], following)
        compacted[:, i] = advantage
    length = mask.shape[1]
    return scatter(compacted, index, valid, length), scatter(compacted + before, index, valid, length)


def discounted_returns(token_rewards: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    """(B, T): Σ_{j ≥ i} γ^{j−i} r_j over the row's masked tokens, zero off the mask."""
    return gae(token_rewards, torch.zeros_like(token_rewards), mask, gamma=gamma, gae_lambda=1.0)[0]
