"""GRPO (2402.03300, §4.1.2): A = (R − mean_g) / (std_g + ε), the same on all of a row's tokens; without the division it is
Dr. GRPO's (2503.20783). Credit turn by turn is this project's: GRPO's own process supervision (§4.1.3: standardised step
rewards, added up) is another thing and is not here."""

from __future__ import annotations

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput, Scale
from reagent.algorithms.groups import comparable, leave_one_out, returns_of
from reagent.algorithms.masks import spread
from reagent.algorithms.whitening import Reduce, moments, no_reduce


def grpo_credit(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """GRPO's credit of a batch."""
    returns, present = returns_of(rows, options.per_turn)
    compared = comparable(rows.group, rows.attempt, rows.stage)
    how = {"per_turn": options.per_turn, "scale": options.scale, "reduce": options.reduce}
    relative = grpo(returns, present, rows.group, compared=compared, **how)
    return AlgoOutput(spread(relative, rows.turn_index, rows.masks.loss))


@torch.no_grad()
def grpo(
    returns: Tensor,
    present: Tensor,
    group: Tensor,
    *,
    compared: Tensor | None = None,
    per_turn: bool = False,
    scale: Scale = "group",
    eps: float = 1e-6,
    reduce: Reduce = no_reduce,
) -> Tensor:
    """Group-relative advantages (B, K) of `returns` (B, K) where `present`; see `reagent.algorithms.groups` for both.

    Args:
        compared: (B, B), from `comparable`; None: every other row of the group.
        per_turn: `leave_one_out`'s difference stands for R − mean_g. So it does in a group with a first attempt that another of its rows
            has read: the mean over all of them would hold what that attempt's actions led to.
        scale: `group` divides by the group's std (ddof = 1) over all its rows' turns, `batch` by that of every return of
            the batch on all processes, `none` not at all.

    Zero in a group of one row and in a group whose returns are all equal.
    """
    mine = group[:, None] == group[None]  # (B, B)
    rows = (mine & present.any(1)).sum(1, keepdim=True)  # (B, 1)
    others = comparable(group)
    compared = others if compared is None else compared
    centred = leave_one_out(returns, present, compared)
    if not per_turn:  # R − mean_g = (1 − 1/n)(R − mean of the others), taken as the latter so that equal returns are 0 to the last bit
        known = present.any(1)
        read = (others & ~compared & known).any(1) & known
        centred = torch.where((mine & read).any(1, keepdim=True), centred, centred * (rows - 1) / rows.clamp(min=1))
    if scale == "none":
        return centred
    if scale == "batch":
        _, variance, count = moments(returns, present, reduce)
        return centred / ((variance * count / (count - 1).clamp(min=1)).sqrt() + eps)
    member, kept = mine.to(returns), torch.where(present, returns, 0)
    count = member @ present.sum(1, keepdim=True).to(returns)  # (B, 1) returns in the row's group
    mean = member @ kept.sum(1, keepdim=True) / count.clamp(min=1)
    squares = member @ torch.where(present, (returns - mean) ** 2, 0).sum(1, keepdim=True)
    return centred / ((squares / (count - 1).clamp(min=1)).sqrt() + eps)
