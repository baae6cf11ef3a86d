"""RLOO (2402.14740, eq. 8): a row's return minus the mean of the other rows' of its group."""

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput
from reagent.algorithms.groups import comparable, leave_one_out, returns_of
from reagent.algorithms.masks import spread


def rloo(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """RLOO's credit by episode or turn; never scaled, zero without other rows."""
    returns, present = returns_of(rows, options.per_turn)
    relative = leave_one_out(returns, present, comparable(rows.group, rows.attempt, rows.stage))
    return AlgoOutput(spread(relative, rows.turn_index, rows.masks.loss))
