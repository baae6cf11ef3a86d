"""Advantages for multi-turn agents: GAE over the action tokens, GRPO, RLOO, REINFORCE++ and its baseline variant.

Legend
    B, T    rows and tokens of a right-padded batch
    N       most action tokens of a row; i counts a row's action tokens only
    K       most turns of a row; k counts turns from 0
    action_mask  (B, T) true exactly on sampled tokens
    turn_index   (B, T) -1 on the prompt and on padding, k on turn k's output and on the observation that answers it
    known        (B,)   false where a row's reward is unknown: the row teaches nothing and counts in no statistic
    group        (B,)   any integer per group; all rows of a group must be in the same call (one process)
    attempt      (B,)   number within the group; a second attempt has the number of the first one its prompt holds
    stage        (B,)   0 for first attempts, 1 for second ones

`compute_advantages` is the one call a trainer makes; the functions above it are its parts, each usable alone. All are
pure, carry no gradient, and never read a number outside their mask, so garbage in padding or in failed rows is inert.

Papers: GAE arXiv 1506.02438, Agent-R1 (the two masks) 2511.14460, GRPO 2402.03300, RLOO 2402.14740, REINFORCE++ 2501.03262.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rrm.errors import ConfigError

Algorithm = Literal["ppo", "grpo", "rloo", "reinforce++", "reinforce++-baseline"]
Scale = Literal["group", "batch", "none"]
Reduce = Callable[[Tensor], Tensor]
"""Element-wise sum over processes, e.g. `functools.partial(accelerator.reduce, reduction="sum")`. Every process must make
the same calls in the same order, also one that holds no tokens: `whiten` and `scale="batch"` reduce twice each."""


class Advantages(NamedTuple):
    """What a loss needs of a batch."""

    advantages: Tensor
    """(B, T), zero off `loss_mask`."""
    returns: Tensor | None
    """(B, T) value targets (unwhitened A + V) on the tokens GAE ran over, else zero; None for methods without values."""
    loss_mask: Tensor
    """(B, T) bool: the tokens the loss is taken over."""
    unknown_rows: int
    """Rows of this call that were left out because their reward is unknown."""


class Masks(NamedTuple):
    """The two masks of Agent-R1 §3, as sets of tokens. Both (B, T) bool."""

    credit: Tensor
    """Tokens that carry credit: GAE and discounting run over these and skip all others."""
    loss: Tensor
    """Tokens whose log-probability is trained."""


def local_only(tensor: Tensor) -> Tensor:
    """The `Reduce` of a single process: nothing to add."""
    return tensor


# ---- compaction -----------------------------------------------------------------------------------------------------


def compact_index(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row's chosen tokens are, gathered to the left in order.

    Args:
        mask: (B, T) bool.

    Returns:
        index (B, N) long, positions in the row, and valid (B, N) bool. N is the longest row's count (may be 0). Where not
        valid, index points at distinct unchosen tokens, so that `scatter` may write zeros there.
    """
    counts = mask.sum(dim=1)  # (B,)
    longest = int(counts.max().item()) if counts.numel() else 0
    index = torch.argsort(mask.int(), dim=1, descending=True, stable=True)[:, :longest]
    return index, torch.arange(longest, device=mask.device) < counts[:, None]


def gather(tensor: Tensor, index: Tensor, valid: Tensor) -> Tensor:
    """(B, T) -> (B, N): the chosen tokens' numbers to the left, zeros behind them (whatever `tensor` holds elsewhere)."""
    return torch.where(valid, tensor.gather(1, index), 0)


def scatter(compacted: Tensor, index: Tensor, valid: Tensor, length: int) -> Tensor:
    """(B, N) -> (B, T = length): the inverse of `gather`, zeros on every token that was not chosen."""
    out = compacted.new_zeros(compacted.shape[0], length)
    return out.scatter(1, index, torch.where(valid, compacted, 0))


def credit_masks(action_mask: Tensor, turn_index: Tensor, *, action: bool = True, advantage: bool = True) -> Masks:
    """Which tokens carry credit and which are trained, for the design and for its ablations.

    | action mask | advantage mask | credit runs over     | loss on              |
    |-------------|----------------|----------------------|----------------------|
    | on          | on             | action tokens        | action tokens        |
    | on          | off            | all response tokens  | action tokens        |
    | off         | off            | all response tokens  | all response tokens  |

    The response is everything after the prompt, observations included.

    Raises:
        ConfigError: action mask off with the advantage mask on; observations would be trained without an advantage.
    """
    if advantage and not action:
        raise ConfigError(
            "action_mask=false needs advantage_mask=false: with the advantage mask on, observation tokens have no "
            "advantage to be trained with"
        )
    sampled, response = action_mask.bool(), turn_index >= 0
    return Masks(credit=sampled if advantage else response, loss=sampled if action else response)


# ---- token-level credit ---------------------------------------------------------------------------------------------


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
    """Generalised advantage estimation over the compacted tokens of `mask` (GAE eq. 16; Agent-R1's advantage mask).

    δ_i = r_i + γ V_{i+1} − V_i,  A_i = δ_i + γλ A_{i+1},  i = 1..n over the row's masked tokens only: what follows the last
    token of a turn is the first token of the next one, and an observation takes neither a discount nor credit.

    Args:
        token_rewards: (B, T).
        values: (B, T), values[b, t] = V of the state in which token t is sampled (the value head one position earlier).
        mask: (B, T) bool.
        bootstrap: (B,) V_{n+1}, for episodes that were cut off; zero on rows that terminated. None: zero everywhere.

    Returns:
        advantages and value targets A + V, both (B, T) and zero off the mask.
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
    """(B, T): Σ_{j ≥ i} γ^{j−i} r_j over the row's masked tokens (GAE with V = 0 and λ = 1), zero off the mask."""
    return gae(token_rewards, torch.zeros_like(token_rewards), mask, gamma=gamma, gae_lambda=1.0)[0]


@torch.no_grad()
def kl_penalised_rewards(
    token_rewards: Tensor, logprobs: Tensor, ref_logprobs: Tensor, action_mask: Tensor, kl_coef: float
) -> Tensor:
    """(B, T): r_t − β (log π(a_t) − log π_ref(a_t)) on action tokens, zero elsewhere (REINFORCE++ eq. 5; InstructGPT).

    Args:
        logprobs: (B, T) of the policy that sampled, i.e. before the update.
    """
    return torch.where(action_mask, token_rewards - kl_coef * (logprobs - ref_logprobs), 0)


@torch.no_grad()
def moments(x: Tensor, mask: Tensor, reduce: Reduce = local_only) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance (ddof = 0) and count of x over the mask and over all processes, 0-d tensors.

    Two passes (the mean first), each one `reduce`, so uneven counts and large means lose nothing. An empty mask
    everywhere gives 0, 0, 0.
    """
    total, count = reduce(torch.stack([torch.where(mask, x, 0).sum(), mask.sum().to(x)]))
    mean = total / count.clamp(min=1)
    (squares,) = reduce(torch.where(mask, (x - mean) ** 2, 0).sum()[None])
    return mean, squares / count.clamp(min=1), count


@torch.no_grad()
def whiten(advantages: Tensor, mask: Tensor, reduce: Reduce = local_only, eps: float = 1e-8) -> Tensor:
    """(B, T): (A − mean) / sqrt(var + eps) with the mean and variance (ddof = 0) of all masked tokens of all processes.

    Zero off the mask; a single token becomes 0.
    """
    mean, variance, _ = moments(advantages, mask, reduce)
    return torch.where(mask, (advantages - mean) * torch.rsqrt(variance + eps), 0)


# ---- group methods --------------------------------------------------------------------------------------------------


@torch.no_grad()
def episode_returns(token_rewards: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's whole reward as (B, 1), and (B, 1) bool: whether the row has an action that could have earned it."""
    return torch.where(action_mask, token_rewards, 0).sum(1, keepdim=True), action_mask.any(dim=1, keepdim=True)


@torch.no_grad()
def turn_returns(token_rewards: Tensor, action_mask: Tensor, turn_index: Tensor) -> tuple[Tensor, Tensor]:
    """Each turn's reward-to-go, its own reward and all later ones, undiscounted.

    Returns:
        returns (B, K) and present (B, K) bool, the turns in which the row has an action token.
    """
    rows, n_turns = len(turn_index), int(turn_index.max().clamp(min=0).item()) + 1 if turn_index.numel() else 1
    turn = turn_index.clamp(min=0).long()  # prompt and padding hold no action token, so they add nothing to turn 0
    earned = token_rewards.new_zeros(rows, n_turns).scatter_add(1, turn, torch.where(action_mask, token_rewards, 0))
    tokens = torch.zeros_like(earned).scatter_add(1, turn, action_mask.to(earned))
    return earned.flip(1).cumsum(1).flip(1), tokens > 0


@torch.no_grad()
def spread(per_turn: Tensor, turn_index: Tensor, mask: Tensor) -> Tensor:
    """(B, K) -> (B, T): every masked token gets its turn's number (K = 1: its row's), all others zero."""
    turn = turn_index.clamp(min=0, max=per_turn.shape[1] - 1).long()
    return torch.where(mask, per_turn.gather(1, turn), 0)


class GroupStatistics(NamedTuple):
    """Statistics over all present (row, turn) returns of each row's group. All (B, 1)."""

    mean: Tensor
    std: Tensor
    """ddof = 1; 0 for a single return."""
    flat: Tensor
    """bool: fewer than two rows, or all returns equal: the group says nothing about which row was better."""
    total: Tensor
    count: Tensor


@torch.no_grad()
def group_statistics(returns: Tensor, present: Tensor, group: Tensor) -> GroupStatistics:
    """Mean, std and more of each row's group, over the entries of `returns` (B, K) where `present` (B, K)."""
    names, member = torch.unique(group, return_inverse=True)  # member (B,): the row's group as 0..G-1

    def by_group(per_row: Tensor) -> Tensor:  # (B,) -> (G,)
        return per_row.new_zeros(len(names)).index_add(0, member, per_row)

    def extreme(fill: float, how: str) -> Tensor:  # -> (G,)
        per_row = getattr(torch.where(present, returns, fill), how)(dim=1)
        return returns.new_full((len(names),), fill).scatter_reduce(0, member, per_row, how)

    count = by_group(present.sum(1).to(returns))
    total = by_group(torch.where(present, returns, 0).sum(1))
    rows = by_group(present.any(1).to(returns))
    mean = total / count.clamp(min=1)
    squares = by_group(torch.where(present, (returns - mean[member, None]) ** 2, 0).sum(1))
    std = (squares / (count - 1).clamp(min=1)).sqrt()
    # Equal rewards reach their sum by different roundings: a spread of a few ulps is none, or (R − mean)/(std + eps)
    # would turn rounding noise into an advantage.
    low, high = extreme(float("inf"), "amin"), extreme(-float("inf"), "amax")
    flat = (rows < 2) | (high - low <= 8 * torch.finfo(returns.dtype).eps * torch.maximum(low.abs(), high.abs()))
    return GroupStatistics(*(per_group[member, None] for per_group in (mean, std, flat, total, count)))


@torch.no_grad()
def comparable(group: Tensor, attempt: Tensor | None = None, stage: Tensor | None = None) -> Tensor:
    """(B, B) bool, [i, j]: row j may stand in row i's baseline. It is another row of i's group, and none that comes out of
    row i: a second attempt, whose prompt holds row i, depends on row i's actions.

    Args:
        attempt, stage: both or neither; see the module's legend. None: no row comes out of another.
    """
    others = (group[:, None] == group[None]) & ~torch.eye(len(group), dtype=torch.bool, device=group.device)
    if attempt is None or stage is None:
        return others
    return others & ~((attempt[:, None] == attempt[None]) & (stage[:, None] < stage[None]))


@torch.no_grad()
def leave_one_out(returns: Tensor, present: Tensor, compared: Tensor) -> Tensor:
    """(B, K): G_{i,k} minus its baseline, the mean of G_{j,k} over the rows j that row i is compared with and that reached
    turn k; where none did, the mean of their whole returns. DESIGN: no source has this baseline turn by turn.

    No action of row i is in its baseline, nor is how many turns it took, so E[baseline · ∇log π] = 0: unbiased also where
    the policy decides when to stop (leave-one-out: Kool et al. 2019, RLOO 2402.14740 §2.2; reward-to-go: an action earns
    nothing that came before it). Taken as a mean of differences, so that equal rows come out as 0 to the last bit; a
    difference that rounding alone can make counts as none.

    Args:
        returns, present: (B, K), from `episode_returns` or `turn_returns`; the first column is the whole return.
        compared: (B, B), from `comparable`.

    Returns:
        (B, K); zero where not present and where there is nobody to be compared with.
    """
    known, size = present.any(1), torch.where(present, returns, 0).abs().amax(1)  # (B,)
    noise = 8 * torch.finfo(returns.dtype).eps * torch.maximum(size[:, None], size[None])  # (B, B)
    columns = []
    for k in range(returns.shape[1]):
        reached = compared & present[:, k]  # (B, B)
        others = torch.where(reached.any(1, keepdim=True), reached, compared & known)
        theirs = torch.where(present[:, k], returns[:, k], returns[:, 0])
        difference = returns[:, k, None] - theirs  # (B, B)
        kept = torch.where(others & (difference.abs() > noise), difference, 0)
        columns.append(kept.sum(1) / others.sum(1).clamp(min=1))
    return torch.where(present, torch.stack(columns, 1), 0)


@torch.no_grad()
def grpo(
    returns: Tensor,
    present: Tensor,
    group: Tensor,
    *,
    compared: Tensor | None = None,
    scale: Scale = "group",
    eps: float = 1e-6,
    reduce: Reduce = local_only,
) -> Tensor:
    """Group-relative advantages (GRPO §4.1.2): (R − mean_g) / (std + eps).

    GRPO's own process supervision (§4.1.3: standardised step rewards, added up) is another thing and is not here.

    Args:
        returns, present: (B, K), from `episode_returns` or `turn_returns`.
        compared: (B, B) for credit turn by turn: then what is divided by the std is `leave_one_out`'s difference.
        scale: `group` divides by the standard deviation (ddof = 1) of the group's returns, all its rows' turns with
            K > 1; `batch` by that of every return of the batch on all processes (ddof = 1), `none` not at all (Dr. GRPO,
            2503.20783).

    Returns:
        (B, K); zero where not present, in a group of one row, and in a group whose rows' returns are all equal.
    """
    stats = group_statistics(returns, present, group)
    if compared is None:
        centred = torch.where(present & ~stats.flat, returns - stats.mean, 0)
    else:
        centred = leave_one_out(returns, present, compared)
    if scale == "none":
        return centred
    if scale == "group":
        return centred / (stats.std + eps)
    _, variance, count = moments(returns, present, reduce)
    return centred / ((variance * count / (count - 1).clamp(min=1)).sqrt() + eps)


@torch.no_grad()
def flat_rows(relative: Tensor, group: Tensor) -> Tensor:
    """(B,) bool: rows of groups in which every relative return (B, K) is 0: nothing says which row was better."""
    differs = (relative != 0).any(1)
    return ~((group[:, None] == group[None]) & differs).any(1)


# ---- the algorithms -------------------------------------------------------------------------------------------------


def compute_advantages(
    algorithm: Algorithm,
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
    reduce: Reduce = local_only,
) -> Advantages:
    """Advantages of a batch of episodes under one algorithm.

    Args:
        token_rewards, action_mask, turn_index, group: see the module's legend; rewards sit on action tokens.
        known: (B,) bool, None for all.
        attempt, stage: (B,) where the batch holds second attempts, for `rloo` and `per_turn`; see `comparable`.
        values: (B, T), `ppo` only (required); see `gae`. `bootstrap`: (B,), see `gae`.
        logprobs, ref_logprobs: (B, T), `reinforce++` with kl_coef > 0 only: the KL penalty that goes into its reward. The
            other algorithms have their KL in the loss.
        gamma, gae_lambda: per token; `gamma` serves ppo and reinforce++, `gae_lambda` ppo.
        use_whitening: ppo and both reinforce++; grpo and rloo are never whitened.
        scale: grpo only.
        per_turn: for grpo, rloo and reinforce++-baseline, credit each turn with its reward-to-go (process rewards) rather
            than with the episode's whole reward, against the other rows that reached the turn: see `leave_one_out`.
        use_action_mask, use_advantage_mask: off only for ablations, see `credit_masks`; the second serves ppo and
            reinforce++ alone.

    Raises:
        ConfigError: unknown algorithm or scale, or masks that do not go together.
        ValueError: shapes that differ, an input that the algorithm needs is missing, an action token before the first
            turn, or a known row with a reward that is not finite or not on an action token.
    """
    if algorithm not in get_args(Algorithm):
        raise ConfigError(f"algorithm={algorithm!r}: choose one of {', '.join(get_args(Algorithm))}")
    if scale not in get_args(Scale):
        raise ConfigError(f"advantage_scale={scale!r}: choose one of {', '.join(get_args(Scale))}")
    known = torch.ones_like(group, dtype=torch.bool) if known is None else known.bool()
    check_batch(token_rewards, action_mask, turn_index, group, known)
    action = action_mask.bool() & known[:, None]
    turn_index = torch.where(known[:, None], turn_index, -1)
    credit_per_token = algorithm in ("ppo", "reinforce++")  # the others know no credit between a row's tokens to mask
    advantage_mask = use_advantage_mask if credit_per_token else use_action_mask
    masks = credit_masks(action, turn_index, action=use_action_mask, advantage=advantage_mask)
    targets = flat = None

    if algorithm == "ppo":
        if values is None:
            raise ValueError("ppo needs values (B, T); pass the value head's output, aligned as gae() says")
        advantages, targets = gae(
            token_rewards, values, masks.credit, gamma=gamma, gae_lambda=gae_lambda, bootstrap=bootstrap
        )
    elif algorithm == "reinforce++":
        if kl_coef and (logprobs is None or ref_logprobs is None):
            raise ValueError("reinforce++ with kl_coef > 0 needs logprobs and ref_logprobs (B, T)")
        rewards = torch.where(action, token_rewards, 0)
        if logprobs is not None and ref_logprobs is not None and kl_coef:
            rewards = kl_penalised_rewards(token_rewards, logprobs, ref_logprobs, action, kl_coef)
        advantages = discounted_returns(rewards, masks.credit, gamma=gamma)
    else:
        returns, present = (
            turn_returns(token_rewards, action, turn_index) if per_turn else episode_returns(token_rewards, action)
        )
        compared = comparable(group, attempt, stage)
        if algorithm == "rloo":
            relative = leave_one_out(returns, present, compared)
        else:  # reinforce++-baseline is the group mean alone, then whitening
            relative = grpo(
                returns,
                present,
                group,
                compared=compared if per_turn else None,
                scale=scale if algorithm == "grpo" else "none",
                reduce=reduce,
            )
        if algorithm == "reinforce++-baseline":
            flat = flat_rows(relative, group)
        advantages = spread(relative, turn_index, masks.loss)

    if use_whitening and algorithm not in ("grpo", "rloo"):
        advantages = whiten(advantages, masks.loss, reduce)
    if flat is not None:  # whitening moves every token by the batch's mean, also those of groups that say nothing
        advantages = torch.where(flat[:, None], 0, advantages)
    return Advantages(torch.where(masks.loss, advantages, 0), targets, masks.loss, int((~known).sum().item()))


def check_batch(token_rewards: Tensor, action_mask: Tensor, turn_index: Tensor, group: Tensor, known: Tensor) -> None:
    """Refuse a batch that would be silently misread; see `compute_advantages` for the errors."""
    shape = tuple(token_rewards.shape)
    if len(shape) != 2 or tuple(action_mask.shape) != shape or tuple(turn_index.shape) != shape:
        raise ValueError(
            f"token_rewards {shape}, action_mask {tuple(action_mask.shape)} and turn_index {tuple(turn_index.shape)} "
            "must all be (B, T)"
        )
    if tuple(group.shape) != shape[:1] or tuple(known.shape) != shape[:1]:
        raise ValueError(f"group {tuple(group.shape)} and known {tuple(known.shape)} must be (B,) = ({shape[0]},)")
    action = action_mask.bool()
    for what, wrong in (
        ("an action token where turn_index is -1 (prompt or padding)", action & (turn_index < 0)),
        ("a reward that is not finite; mark the row as not known", ~torch.isfinite(token_rewards) & known[:, None]),
        ("a reward on a token that is no action", (token_rewards != 0) & ~action & known[:, None]),
    ):
        if bool(wrong.any()):
            row, token = wrong.nonzero()[0].tolist()
            raise ValueError(f"row {row}, token {token}: {what}")
