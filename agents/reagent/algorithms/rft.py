"""RFT, rejection-sampling fine-tuning (2308.01825, §3.3; RAFT, 2304.06767): next-token loss on the episodes that succeed.

    L = −Σ_i Σ_t log π(a_t) / Σ_i l_i    over rows i with R_i ≥ ½, l a row's trained tokens

As an advantage, where one step uses each episode once (π/π_old = 1): A = Σ l / Σ_i l_i on these rows, Σ l over all rows, else 0."""

import torch

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput
from reagent.algorithms.groups import episode_returns

KEPT = 0.5
"""Least whole reward of an episode that is learned."""


def rft(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    returns, _ = episode_returns(rows.token_rewards, rows.action)
    succeeded = rows.masks.loss & (returns >= KEPT)
    every, learned = options.reduce(torch.stack([rows.masks.loss.sum(), succeeded.sum()]).to(returns))
    return AlgoOutput(succeeded * (every / learned.clamp(min=1)))
