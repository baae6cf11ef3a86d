"""Money for what a server used: the prices of tokens, and a purse with a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rrm.errors import ConfigError
from rrm.usage import Usage

PER = 1e6
"""Prices are per so many tokens."""


@dataclass(frozen=True)
class Prices:
    """Of a million tokens each, in any currency."""

    prompt: float
    written: float
    cached: float | None = None
    """Of prompt tokens that the server had read before; None: as any other's."""

    @classmethod
    def parse(cls, text: str) -> Prices:
        """`IN,OUT` or `IN,OUT,CACHED`.

        Raises:
            ConfigError: not two or three numbers from 0.
        """
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3) or not all(math.isfinite(n) and n >= 0 for n in numbers):
            raise ConfigError(
                f"--price {text!r}: write IN,OUT or IN,OUT,CACHED, the price of a million tokens each, e.g. 0.25,2,0.025"
            )
        return cls(*numbers)

    def of(self, usage: Usage) -> float:
        """The money for what was used."""
        cached = self.prompt if self.cached is None else self.cached
        new = usage.prompt_tokens - usage.cached_tokens
        return (new * self.prompt + usage.cached_tokens * cached + usage.completion_tokens * self.written) / PER


class Purse:
    """Counts what an engine uses, and says when its money is spent.

    Args:
        prices: what tokens cost; None: they are counted alone.
        max_cost: most money to spend, what `earlier` says included; None: no limit.

    Raises:
        ConfigError: a limit without prices, or no number from 0.
    """

    def __init__(self, prices: Prices | None = None, max_cost: float | None = None) -> None:
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost >= 0):
            raise ConfigError(f"--max-cost {max_cost}: write a number from 0, in the currency of --price")
        if max_cost is not None and prices is None:
            raise ConfigError("--max-cost needs the price of tokens: give --price IN,OUT[,CACHED] too")
        self.prices, self.max_cost = prices, max_cost
        self.usage = Usage()
        """Of all requests that were paid here, for this output."""
        self.earlier = 0.0
        """Money spent before, on the same output."""
        self.blind = False
        """Whether a whole reply came without its usage, so that nobody knows what is spent."""
        self._ended, self._ended_cost = 0, 0.0
        """Pieces of work that ended (a transcript with all its readings), and their money."""

    def begin(self, earlier: Usage | None) -> None:
        """Pay for another output from here on, which has cost so much before."""
        self.usage, self.earlier = Usage(), (earlier.cost or 0.0) if earlier is not None else 0.0
        self._ended, self._ended_cost = 0, 0.0

    @property
    def spent(self) -> float:
        """Money, what was spent before included."""
        return self.earlier + (self.usage.cost or 0.0)

    def priced(self, usage: Usage) -> Usage:
        """The usage with its money, where there are prices and it has none yet."""
        if self.prices is None or usage.cost is not None:
            return usage
        return usage.model_copy(update={"cost": self.prices.of(usage)})

    def pay(self, usage: Usage, *, whole: bool = True) -> Usage:
        """Count what a request used; returns it with its money.

        Args:
            whole: whether a whole reply came; of a failure nobody expects its usage.
        """
        self.blind = self.blind or (whole and usage.unreported > 0)
        usage = self.priced(usage)
        self.usage += usage
        return usage

    def end(self, cost: float) -> None:
        """A piece of work that was begun has ended, and cost so much."""
        self._ended, self._ended_cost = self._ended + 1, self._ended_cost + cost

    def waits(self, under_way: int) -> bool:
        """Whether nothing more is to be begun before something has ended: until a piece of work has cost something nobody knows
        what hundreds at once would, so one more than have ended is under way at most."""
        return self.max_cost is not None and not self._ended_cost and under_way > self._ended

    def closed(self, under_way: int = 0) -> bool:
        """Whether nothing more may be begun: the limit is reached, or will be by so many pieces of work that are under way, at what
        one cost so far."""
        if self.max_cost is None:
            return False
        mean = self._ended_cost / max(self._ended, 1)
        expected = self.earlier + self._ended_cost + under_way * mean
        return self.blind or max(self.spent, expected) >= self.max_cost

    def why_closed(self) -> str:
        """What happened, and how to go on."""
        if self.blind:
            return (
                "the server does not say what its replies use, so --max-cost cannot be kept: what was judged is kept; leave the limit "
                "out to go on"
            )
        return (
            f"--max-cost {self.max_cost:g} is reached ({self.spent:.6g} spent): what was judged is kept; run the same command with a "
            "higher --max-cost to go on"
        )
