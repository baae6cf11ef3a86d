"""Padding before it is there: what an update's micro-batches will hold, from the mean and the spread of episodes' lengths.

Rows of a micro-batch are as wide as its longest (`reagent.rollout.batch.microbatches`), so the more rows are together, the more of it
is padding. Lengths are taken as drawn from a normal distribution and stand where n of them are expected to (Blom's order statistics).
"""

from dataclasses import dataclass
from statistics import NormalDist

from reagent.train.config import AgentConfig


@dataclass(frozen=True)
class Padded:
    """Tokens of one process's rows in an update, as micro-batches hold them."""

    own: float
    """Without the padding."""
    learning: float
    """Of one pass over an update's rows, dealt minibatch by minibatch."""
    forwards: float
    """Of one forward of them without gradients, all rows dealt together."""
    widest: float
    """Of the largest micro-batch that is learned from, in all updates of the training."""


def padded(config: AgentConfig, rows: int, mean: float, spread: float | None) -> Padded:
    """What a process's rows come to.

    Args:
        rows: of an update, at least 1; each minibatch is taken to have an even share of them.
        mean: tokens a row; none has more than the config allows.
        spread: standard deviation of the rows' tokens; None: not known. Then no padding is counted, and the widest micro-batch is
            as large as the config allows.
    """
    most, budget = config.rollout.max_episode_tokens, config.optim.microbatch_tokens
    parts = min(config.optim.minibatches, rows)
    sizes = [len(range(part, rows, parts)) for part in range(parts)]

    def length(i: int, n: int) -> float:
        return min(max(mean + (spread or 0.0) * normal_score(i, n), 1.0), most)

    def dealt(n: int) -> float:
        # where the limit cuts the longest rows' expected lengths, the sum is that of the mean all the same
        return max(_dealt([length(i, n) for i in range(1, n + 1)], budget), n * min(mean, most))

    longest = float(most)
    if spread is not None:
        every = rows * config.max_updates
        longest = length(every, every)
    widest = max(budget, longest)
    return Padded(
        own=rows * min(mean, most),
        learning=sum(map(dealt, sizes)),
        forwards=dealt(rows),
        widest=widest if spread is None else min(sizes[0] * longest, widest),
    )


def spread_of(mean: float, longest: float, rows: int) -> float | None:
    """Standard deviation of the lengths of `rows` whose mean and longest are known; None of a single row."""
    return max(longest - mean, 0.0) / normal_score(rows, rows) if rows > 1 else None


def normal_score(i: int, n: int) -> float:
    """Where the i-th smallest of n standard normal numbers is expected, i from 1 (Blom 1958)."""
    return NormalDist().inv_cdf((i - 0.375) / (n + 0.25))


def _dealt(lengths: list[float], budget: int) -> float:
    """Rows times longest of each micro-batch, added up."""
    import torch

    from reagent.rollout.batch import microbatches

    groups = microbatches(torch.tensor(lengths, dtype=torch.float64), range(len(lengths)), budget)
    return sum(len(group) * lengths[group[0]] for group in groups)
