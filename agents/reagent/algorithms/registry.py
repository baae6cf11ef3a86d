"""The algorithms by name, and the one call a trainer makes.

Another algorithm is one file with one function `(AlgoBatch, AlgoConfig) → AlgoOutput`, one line in `ALGORITHMS`, and its name in
`reagent.algorithms.names`: in `Algorithm`, and in `GROUP_METHODS` or `TOKEN_METHODS` if it is of that kind."""

from typing import NamedTuple, get_args

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch, AlgoConfig, Algorithm, Scale
from reagent.algorithms.gae import ppo
from reagent.algorithms.grpo import grpo_credit
from reagent.algorithms.masks import credit_masks
from reagent.algorithms.names import TOKEN_METHODS
from reagent.algorithms.opo import opo
from reagent.algorithms.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from reagent.algorithms.rft import rft
from reagent.algorithms.rloo import rloo
from reagent.algorithms.whitening import Reduce, no_reduce
from rrm.errors import ConfigError

ALGORITHMS: dict[str, Algorithm] = {
    "ppo": ppo,
    "grpo": grpo_credit,
    "rloo": rloo,
    "reinforce++": reinforce_pp,
    "reinforce++-baseline": reinforce_pp_baseline,
    "opo": opo,
    "rft": rft,
}


class Advantages(NamedTuple):
    advantages: Tensor
    """(B, T) all, zero off `loss_mask`; see `AlgoOutput`."""
    returns: Tensor | None
    loss_mask: Tensor
    unknown_rows: int


def compute_advantages(
    algorithm: str,
    token_rewards: Tensor,
    action_mask: Tensor,
    turn_index: Tensor,
    group: Tensor,
    *,
    known: Tensor | None = None,
    attempt: Tensor | None = None,
    stage: Tensor | None = None,
    values: Tensor | None = None,
    bootstrap: Tensor | None = None,
    logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    gamma: float = 1.0,
    gae_lambda: float = 0.95,
    kl_coef: float = 0.0,
    use_whitening: bool = True,
    scale: Scale = "group",
    per_turn: bool = False,
    use_action_mask: bool = True,
    use_advantage_mask: bool = True,
    reduce: Reduce = no_reduce,
) -> Advantages:
    """Advantages of a batch of episodes under one algorithm.

    Args:
        token_rewards, action_mask, turn_index, group, known, attempt, stage: see `reagent.algorithms.masks`.
        values, bootstrap: `ppo` only; see `gae`.
        logprobs, ref_logprobs: (B, T), `reinforce++` with kl_coef > 0 only.
        gamma, gae_lambda, kl_coef, use_whitening, scale, per_turn: see `AlgoConfig`.
        use_action_mask, use_advantage_mask: off only for ablations, see `credit_masks`.

    Raises:
        ConfigError: unknown algorithm or scale, or masks that do not go together.
        ValueError: shapes that differ, an input that the algorithm needs is missing, an action token before the first
            turn, or a known row with a reward that is not finite or not on an action token.
    """
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"algorithm={algorithm!r}: choose one of {', '.join(ALGORITHMS)}")
    if scale not in get_args(Scale):
        raise ConfigError(f"advantage_scale={scale!r}: choose one of {', '.join(get_args(Scale))}")
    known = torch.ones_like(group, dtype=torch.bool) if known is None else known.bool()
    check_batch(token_rewards, action_mask, turn_index, group, known)
    action = action_mask.bool() & known[:, None]
    turn_index = torch.where(known[:, None], turn_index, -1)
    advantage_mask = use_advantage_mask if algorithm in TOKEN_METHODS else use_action_mask
    masks = credit_masks(action, turn_index, action=use_action_mask, advantage=advantage_mask)
    rows = AlgoBatch(
        token_rewards=token_rewards,
        action=action,
        turn_index=turn_index,
        group=group,
        masks=masks,
        attempt=attempt,
        stage=stage,
        values=values,
        bootstrap=bootstrap,
        logprobs=logprobs,
        ref_logprobs=ref_logprobs,
    )
    options = AlgoConfig(
        gamma=gamma,
        gae_lambda=gae_lambda,
        kl_coef=kl_coef,
        whiten=use_whitening,
        scale=scale,
        per_turn=per_turn,
        reduce=reduce,
    )
    output = ALGORITHMS[algorithm](rows, options)
    advantages = torch.where(masks.loss, output.advantages, 0)
    return Advantages(advantages, output.returns, masks.loss, int((~known).sum().item()))


def check_batch(token_rewards: Tensor, action_mask: Tensor, turn_index: Tensor, group: Tensor, known: Tensor) -> None:
    """Refuse a batch that would be silently misread; errors as in `compute_advantages`."""
    shape = tuple(token_rewards.shape)
    if len(shape) != 2 or tuple(action_mask.shape) != shape or tuple(turn_index.shape) != shape:
        raise ValueError(
            f"token_rewards {shape}, action_mask {tuple(action_mask.shape)} and turn_index {tuple(turn_index.shape)} "
            "must all be (B, T)"
        )
    if tuple(group.shape) != shape[:1] or tuple(known.shape) != shape[:1]:
        raise ValueError(f"group {tuple(group.shape)} and known {tuple(known.shape)} must be (B,) = ({shape[0]},)")
    action = action_mask.bool()
    for problem, wrong in (
        ("an action token where turn_index is -1 (prompt or padding)", action & (turn_index < 0)),
        ("a reward that is not finite; mark the row as not known", ~torch.isfinite(token_rewards) & known[:, None]),
        ("a reward on a token that is no action", (token_rewards != 0) & ~action & known[:, None]),
    ):
        if bool(wrong.any()):
            row, token = wrong.nonzero()[0].tolist()
            raise ValueError(f"row {row}, token {token}: {problem}")
