"""OPO (2505.23585, §3.2): A = R − Σ l R / Σ l over the group, l a row's trained tokens.

The baseline of least variance where the squared norm of a row's gradient grows with its length."""

import torch

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput
from reagent.algorithms.groups import comparable, leave_one_out, returns_of
from reagent.algorithms.masks import spread


def opo(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """OPO's credit by episode or turn; a row's own reward is in its baseline, as in the paper."""
    returns, present = returns_of(rows, options.per_turn)
    own = torch.eye(len(returns), dtype=torch.bool, device=returns.device)
    compared = comparable(rows.group, rows.attempt, rows.stage) | own
    relative = leave_one_out(returns, present, compared, rows.masks.loss.sum(1))
    return AlgoOutput(spread(relative, rows.turn_index, rows.masks.loss))
