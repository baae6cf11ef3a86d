"""Estimate the padding of micro-batches from the mean and spread of episodes' lengths.

Lengths are taken as normal, at their expected order statistics (Blom)."""

from dataclasses import dataclass
from statistics import NormalDist

from reagent.train.config import AgentConfig


@dataclass(frozen=True)
class Padded:
    own: float
    learning: float
    """Tokens of one pass over an update's rows, batched within each minibatch."""
    forwards: float
    """Tokens of one forward without gradients, all rows batched together."""
    widest: float
    """Tokens of the largest micro-batch in training."""


def padded(config: AgentConfig, rows: int, mean: float, spread: float | None) -> Padded:
    """Padding of a process's `rows` of `mean` tokens; without `spread` none, and `widest` is the limit."""
    most, budget = config.rollout.max_episode_tokens, config.optim.microbatch_tokens
    parts = min(config.optim.minibatches, rows)
    sizes = [len(range(first, rows, parts)) for first in range(parts)]

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
    """Standard deviation of the lengths of `rows` by their mean and longest; None of a single row."""
    return max(longest - mean, 0.0) / normal_score(rows, rows) if rows > 1 else None


def normal_score(i: int, n: int) -> float:
    """Expectation of the i-th smallest of n standard normal numbers, i from 1 (Blom 1958)."""
    return NormalDist().inv_cdf((i - 0.375) / (n + 0.25))


def _dealt(lengths: list[float], budget: int) -> float:
    import torch

    from reagent.rollout.batch import microbatches

    groups = microbatches(torch.tensor(lengths, dtype=torch.float64), range(len(lengths)), budget)
    return sum(len(group) * lengths[group[0]] for group in groups)
