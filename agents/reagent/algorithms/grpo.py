"""GRPO (2402.03300, §4.1.2): A = (R − mean_g) / (std_g + ε); undivided Dr. GRPO (2503.20783).

Credit by turn is this project's, not GRPO's process supervision (§4.1.3)."""

import torch
from torch import Tensor

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput, Scale
from reagent.algorithms.groups import comparable, leave_one_out, returns_of
from reagent.algorithms.masks import spread
from reagent.algorithms.whitening import Reduce, moments, no_reduce


def grpo_credit(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
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
    """Group-relative advantages (B, K); zero in groups of one row or of equal returns.

    Args:
        compared: (B, B), from `comparable`; None: every other row of the group.
        per_turn: `leave_one_out` stands for R − mean_g, as it does in a group with a first attempt that another row has read.
        scale: divides by the std (ddof = 1) of the group's returns (`group`), of the `batch`'s on all processes, or not (`none`).
    """
    has_actions, mine, others = present.any(1), group[:, None] == group[None], comparable(group)  # (B,), (B, B) both
    compared = others if compared is None else compared
    centred = leave_one_out(returns, present, compared)
    if not per_turn:  # R − mean_g = (1 − 1/n)(R − mean of the others), taken as the latter so that equal returns are 0 to the last bit
        rows = (mine & has_actions).sum(1, keepdim=True)  # (B, 1)
        first_attempts = (others & ~compared & has_actions).any(1) & has_actions
        centred = torch.where(
            (mine & first_attempts).any(1, keepdim=True), centred, centred * (rows - 1) / rows.clamp(min=1)
        )
    if scale == "none":
        return centred
    if scale == "batch":
        _, variance, count = moments(returns, present, reduce)
        return centred / ((variance * count / (count - 1).clamp(min=1)).sqrt() + eps)
    member = mine.to(returns)
    count = member @ present.sum(1, keepdim=True).to(returns)  # (B, 1) returns in the row's group
    mean = member @ torch.where(present, returns, 0).sum(1, keepdim=True) / count.clamp(min=1)
    squares = member @ torch.where(present, (returns - mean) ** 2, 0).sum(1, keepdim=True)
    return centred / ((squares / (count - 1).clamp(min=1)).sqrt() + eps)
