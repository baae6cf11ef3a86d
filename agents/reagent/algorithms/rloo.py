"""RLOO (2402.14740, eq. 8): a row's return minus the mean of the other rows' of its group."""

from reagent.algorithms.base import AlgoBatch, AlgoConfig, AlgoOutput
from reagent.algorithms.groups import comparable, leave_one_out, returns_of
from reagent.algorithms.masks import spread


def rloo(rows: AlgoBatch, options: AlgoConfig) -> AlgoOutput:
    """R − mean of the others, or the same of every turn's reward-to-go; never scaled, zero where there is nobody else.

    Second attempts are left out of the baseline of the first attempts they have read: they depend on its actions.
    """
    returns, present = returns_of(rows, options.per_turn)
    relative = leave_one_out(returns, present, comparable(rows.group, rows.attempt, rows.stage))
    return AlgoOutput(spread(relative, rows.turn_index, rows.masks.loss))
