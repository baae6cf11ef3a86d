"""Prices of tokens, and a cost tracker with a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rrm.data.usage import Usage
from rrm.errors import ConfigError

PER = 1e6  # prices are per so many tokens


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency."""

    prompt: float
    written: float
    cached: float | None = None
    """Price of prompt tokens from the server's cache; None: as any other's."""

    @classmethod
    def parse(cls, text: str) -> Prices:
        """Parse `IN,OUT` or `IN,OUT,CACHED`; ConfigError where it is not two or three numbers ≥ 0."""
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
        cached = self.prompt if self.cached is None else self.cached
        new = usage.prompt_tokens - usage.cached_tokens
        return (new * self.prompt + usage.cached_tokens * cached + usage.completion_tokens * self.written) / PER


@dataclass(frozen=True)
class WorkSize:
    """Size of one piece of work or several."""

    sent: int = 0  # characters sent; 0: unknown, its cost is estimated from replies alone
    replies: int = 1

    def __add__(self, other: WorkSize) -> WorkSize:
        return WorkSize(self.sent + other.sent, self.replies + other.replies)

    def __sub__(self, other: WorkSize) -> WorkSize:
        return WorkSize(self.sent - other.sent, self.replies - other.replies)


class CostTracker:
    """Sum what an engine uses, and stop it at a cost limit (`earlier` included).

    Work under way is estimated by its size, at the cost so far of a character sent and of a reply. Raises ConfigError for a
    limit without prices or below 0.
    """

    def __init__(self, prices: Prices | None = None, max_cost: float | None = None) -> None:
        if max_cost is not None and not (math.isfinite(max_cost) and max_cost >= 0):
            raise ConfigError(f"--max-cost {max_cost}: write a number from 0, in the currency of --price")
        if max_cost is not None and prices is None:
            raise ConfigError("--max-cost needs the price of tokens: give --price IN,OUT[,CACHED] too")
        self.prices, self.max_cost = prices, max_cost
        self.usage = Usage()  # of all requests for this output
        self.earlier = 0.0  # cost before, of this output and of others paid by this tracker
        self.blind = False  # a complete reply came without its usage: the cost is unknown
        self.assumed = 0.0  # upper bound of the cost of failed requests
        self.under_way = WorkSize(replies=0)  # work begun and not ended
        self._output, self._others = "", dict[str, float]()  # the current output, and the cost of other outputs
        self._forget()

    def _forget(self) -> None:
        # pieces of work that ended (a transcript with all its readings), and their size
        self._ended, self._work = 0, WorkSize(replies=0)
        self._ended_cost = self._read_cost = 0.0  # their cost, and the share for what was sent

    def begin(self, earlier: Usage | None, output: str = "") -> None:
        """Begin an output that has cost `earlier`; costs of other outputs stay, the limit is of all."""
        self._others[self._output] = self.spent - self.assumed - math.fsum(self._others.values())
        self._others.pop(output, None)
        before = (earlier.cost or 0.0) if earlier is not None else 0.0
        self._output, self.usage = output, Usage()
        self.earlier = before + math.fsum(self._others.values())
        self._forget()

    @property
    def spent(self) -> float:
        """Cost so far, with earlier cost and the upper bound of failed requests."""
        return self.earlier + (self.usage.cost or 0.0) + self.assumed

    def priced(self, usage: Usage) -> Usage:
        if self.prices is None or usage.cost is not None:
            return usage
        return usage.model_copy(update={"cost": self.prices.of(usage)})

    def read_of(self, usage: Usage) -> float:
        """Cost of the prompt tokens of a usage; 0 without prices."""
        return 0.0 if self.prices is None else self.prices.of(usage.model_copy(update={"completion_tokens": 0}))

    def pay(self, usage: Usage, *, whole: bool = True, at_most: Usage | None = None) -> Usage:
        """Count a request's usage; returns it with its cost.

        Args:
            whole: a complete reply came; of a failure no usage is expected.
            at_most: upper bound of a failed request's usage: counts for the limit, and for no row.
        """
        self.blind = self.blind or (whole and usage.unreported > 0)
        if self.prices is not None and at_most is not None:
            self.assumed += self.prices.of(at_most)
        usage = self.priced(usage)
        self.usage += usage
        return usage

    def end(self, cost: float, work: WorkSize | None = None, read: float = 0.0) -> None:
        """End a piece of work; `read` is the part of its cost for what was sent."""
        work = work or WorkSize()
        self._ended, self._work = self._ended + 1, self._work + work
        self._ended_cost += cost
        self._read_cost += read if work.sent else 0.0

    def waits(self, under_way: int) -> bool:
        """Tell whether to wait: before the first cost, one more than have ended is under way at most."""
        return self.max_cost is not None and not self._ended_cost and under_way > self._ended

    def foreseen(self, work: WorkSize) -> float:
        sent = work.sent * self._read_cost / max(self._work.sent, 1)
        return sent + work.replies * (self._ended_cost - self._read_cost) / max(self._work.replies, 1)

    def closed(self, under_way: WorkSize | int = 0, following: WorkSize | None = None) -> bool:
        """Tell whether the limit is reached, or will be by work under way or a large `following` piece."""
        if self.max_cost is None:
            return False
        begun = WorkSize(replies=under_way) if isinstance(under_way, int) else under_way
        expected = self.earlier + self.assumed + self._ended_cost + self.foreseen(begun)
        if following is not None:
            expected += max(self.foreseen(following) - self._ended_cost / max(self._ended, 1), 0.0)
        return self.blind or max(self.spent, expected) >= self.max_cost

    def affords(self, usage: Usage) -> bool:
        """Tell whether the limit allows an unforeseen request of this usage, beside work under way."""
        if self.max_cost is None:
            return True
        expected = max(self.spent, self.earlier + self.assumed + self._ended_cost + self.foreseen(self.under_way))
        return expected + (self.priced(usage).cost or 0.0) < self.max_cost

    def why_closed(self) -> str:
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
