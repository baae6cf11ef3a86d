"""REINFORCE++ (2501.03262): KL in the reward, batch whitening, no critic; and its baseline variant."""

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput
from reagent.algorithms.gae import discounted_returns
from reagent.algorithms.groups import comparable, returns_of
from reagent.algorithms.grpo import grpo
from reagent.algorithms.masks import spread
from reagent.algorithms.whitening import whiten


def reinforce_pp(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """Whitened discounted returns of penalised rewards. Raises ValueError: no log-probabilities for KL."""
    rewards = torch.where(rows.action, rows.token_rewards, 0)
    if options.kl_coef:
        if rows.logprobs is None or rows.ref_logprobs is None:
            raise ValueError("reinforce++ with kl_coef > 0 needs logprobs and ref_logprobs (B, T)")
        rewards = kl_penalised_rewards(rewards, rows.logprobs, rows.ref_logprobs, rows.action, options.kl_coef)
    advantages = discounted_returns(rewards, rows.masks.credit, gamma=options.gamma)
    return AlgoOutput(whiten(advantages, rows.masks.loss, options.reduce) if options.whiten else advantages)


def reinforce_pp_baseline(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """R minus the group's mean (by turn: `leave_one_out`), whitened over the tokens of all groups.

    Rows with nobody to compare with and groups of equal returns stay 0: whitening would move them by the batch's mean."""
    returns, present = returns_of(rows, options.per_turn)
    compared = comparable(rows.group, rows.attempt, rows.stage)
    relative = grpo(returns, present, rows.group, compared=compared, per_turn=options.per_turn, scale="none")
    advantages = spread(relative, rows.turn_index, rows.masks.loss)
    if not options.whiten:
        return AlgoOutput(advantages)
    together = rows.group[:, None] == rows.group[None]
    differs = (together & (relative != 0).any(1)).any(1, keepdim=True)  # (B, 1)
    met = present.any(1, keepdim=True) & (compared & present.any(1)).any(
        1, keepdim=True
    )  # (B, 1) somebody to be compared with
    return AlgoOutput(torch.where(differs & met, whiten(advantages, rows.masks.loss & met, options.reduce), 0))


@torch.no_grad()
def kl_penalised_rewards(
    token_rewards: Tensor, logprobs: Tensor, ref_logprobs: Tensor, action_mask: Tensor, kl_coef: float
) -> Tensor:
    """(B, T): r_t − β (log π(a_t) − log π_ref(a_t)) on action tokens (eq. 5), π before the update."""
    return torch.where(action_mask, token_rewards - kl_coef * (logprobs - ref_logprobs), 0)
