"""Money for what a server used: the prices of tokens, and a purse with a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rrm.data.usage import Usage
from rrm.errors import ConfigError

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
            numbers = [float(number) for number in text.split(",")]
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


@dataclass(frozen=True)
class WorkSize:
    """How much a piece of work is, or several together."""

    sent: int = 0
    """Characters that are sent; 0: not known, and its money goes by its replies alone."""
    replies: int = 1
    """Asked for."""

    def __add__(self, other: WorkSize) -> WorkSize:
        return WorkSize(self.sent + other.sent, self.replies + other.replies)

    def __sub__(self, other: WorkSize) -> WorkSize:
        return WorkSize(self.sent - other.sent, self.replies - other.replies)


class CostTracker:
    """Counts what an engine uses, and says when its money is spent.

    What is under way is priced by its size: what a character sent and a reply cost so far.

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
        """Money spent before, on this output and on others that were paid from here."""
        self.blind = False
        """Whether a whole reply came without its usage, so that nobody knows what is spent."""
        self.assumed = 0.0
        """Money that failed requests may have cost at most."""
        self.under_way = WorkSize(replies=0)
        """Work that was begun and has not ended."""
        self._output, self._others = "", dict[str, float]()
        """What is paid for, and the money that other outputs have cost."""
        self._forget()

    def _forget(self) -> None:
        self._ended, self._work = 0, WorkSize(replies=0)
        """Pieces of work that ended (a transcript with all its readings), and how much they were."""
        self._ended_cost = self._read_cost = 0.0
        """Their money, and of that the part for what was sent."""

    def begin(self, earlier: Usage | None, output: str = "") -> None:
        """Pay for an output from here on, which has cost so much before. What other outputs have cost counts on: the limit is of
        all that a command writes."""
        self._others[self._output] = self.spent - self.assumed - math.fsum(self._others.values())
        self._others.pop(output, None)
        before = (earlier.cost or 0.0) if earlier is not None else 0.0
        self._output, self.usage = output, Usage()
        self.earlier = before + math.fsum(self._others.values())
        self._forget()

    @property
    def spent(self) -> float:
        """Money, what was spent before included, and what failed requests may have cost."""
        return self.earlier + (self.usage.cost or 0.0) + self.assumed

    def priced(self, usage: Usage) -> Usage:
        """The usage with its money, where there are prices and it has none yet."""
        if self.prices is None or usage.cost is not None:
            return usage
        return usage.model_copy(update={"cost": self.prices.of(usage)})

    def read_of(self, usage: Usage) -> float:
        """Of a usage's money, what was paid for what was sent; 0 without prices."""
        return 0.0 if self.prices is None else self.prices.of(usage.model_copy(update={"completion_tokens": 0}))

    def pay(self, usage: Usage, *, whole: bool = True, at_most: Usage | None = None) -> Usage:
        """Count what a request used; returns it with its money.

        Args:
            whole: whether a whole reply came; of a failure nobody expects its usage.
            at_most: what a request that failed, and does not say, may have used: a limit counts as much, and no row does.
        """
        self.blind = self.blind or (whole and usage.unreported > 0)
        if self.prices is not None and at_most is not None:
            self.assumed += self.prices.of(at_most)
        usage = self.priced(usage)
        self.usage += usage
        return usage

    def end(self, cost: float, work: WorkSize | None = None, read: float = 0.0) -> None:
        """A piece of work that was begun has ended, and cost so much.

        Args:
            read: of the cost, what was paid for what was sent.
        """
        work = work or WorkSize()
        self._ended, self._work = self._ended + 1, self._work + work
        self._ended_cost += cost
        self._read_cost += read if work.sent else 0.0

    def waits(self, under_way: int) -> bool:
        """Whether nothing more is to be begun before something has ended: until a piece of work has cost something nobody knows
        what hundreds at once would, so one more than have ended is under way at most."""
        return self.max_cost is not None and not self._ended_cost and under_way > self._ended

    def foreseen(self, work: WorkSize) -> float:
        """What so much work will cost, at what was paid so far."""
        sent = work.sent * self._read_cost / max(self._work.sent, 1)
        return sent + work.replies * (self._ended_cost - self._read_cost) / max(self._work.replies, 1)

    def closed(self, under_way: WorkSize | int = 0, following: WorkSize | None = None) -> bool:
        """Whether nothing more may be begun: the limit is reached, or will be by what is under way, or by what follows where that is
        more than another piece of work was.

        Args:
            under_way: work that was begun and has not ended; a number: so many replies.
            following: what would be begun.
        """
        if self.max_cost is None:
            return False
        begun = WorkSize(replies=under_way) if isinstance(under_way, int) else under_way
        expected = self.earlier + self.assumed + self._ended_cost + self.foreseen(begun)
        if following is not None:
            expected += max(self.foreseen(following) - self._ended_cost / max(self._ended, 1), 0.0)
        return self.blind or max(self.spent, expected) >= self.max_cost

    def affords(self, usage: Usage) -> bool:
        """Whether the limit leaves room for a request that nobody foresaw, as much as the given one, beside what is under way."""
        if self.max_cost is None:
            return True
        expected = max(self.spent, self.earlier + self.assumed + self._ended_cost + self.foreseen(self.under_way))
        return expected + (self.priced(usage).cost or 0.0) < self.max_cost

    def why_closed(self) -> str:
        """What happened, and how to go on."""
        if self.blind:
            return (
                "the server does not say what its replies use, so --max-cost cannot be kept: what was judged is kept; leave the limit "
                "out to go on"
            )
        reached = self.max_cost is None or self.spent >= self.max_cost
        failed = f", {self.assumed:.6g} of it at most by requests that failed" if self.assumed else ""
        beyond = "" if reached else ", and the next transcript may go beyond it"
        return (
            f"--max-cost {self.max_cost:g} is reached ({self.spent:.6g} spent{failed}{beyond}): what was judged is kept; run the same command with a "
            "higher --max-cost to go on"
        )
