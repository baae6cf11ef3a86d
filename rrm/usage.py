"""What was used of a server: requests, tokens, money; and a limit to the money."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rrm.errors import ConfigError

PER = 1e6
"""Prices are per so many tokens."""


class Usage(BaseModel):
    """What some requests used. Tokens are those that the server says; what nobody said is counted in `unreported`, not estimated."""

    model_config = ConfigDict(frozen=True)

    requests: int = Field(default=0, ge=0)
    """That were sent, tries that failed included."""
    prompt_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    """Of the prompts', those that the server had read before, as far as it says."""
    completion_tokens: int = Field(default=0, ge=0)
    """All that was written, thinking included."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """Of these, those spent on thinking, as far as the server says or the reply's tokens show."""
    unreported: int = Field(default=0, ge=0)
    """Requests that may have been charged and did not say what they used: time-outs, broken replies, servers that do not count."""
    cost: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    """Of the tokens above, in the currency of the prices given; None without prices."""

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Usage(**counts, cost=sum(costs) if costs else None)


COUNTS = tuple(name for name in Usage.model_fields if name != "cost")


def total_of(usages: Iterable[Usage | None]) -> Usage | None:
    """The sum of what is known; None where nothing is."""
    total: Usage | None = None
    for usage in usages:
        if usage is not None:
            total = usage if total is None else total + usage
    return total


def read_usage(said: Any) -> Usage:
    """One request's usage, of the `usage` object of an OpenAI-compatible server's reply, whatever that holds.

    Servers that leave thinking out of `completion_tokens` (Gemini, xAI) have it in `total_tokens`: what is no prompt was written.
    """
    if not isinstance(said, Mapping):
        return Usage(requests=1, unreported=1)
    prompt, written = _count(said.get("prompt_tokens")), _count(said.get("completion_tokens"))
    if prompt is None or written is None:
        return Usage(requests=1, unreported=1)
    total = _count(said.get("total_tokens")) or 0
    written = max(written, total - prompt)
    cached = _detail(said, "prompt_tokens_details", "cached_tokens") or _count(said.get("prompt_cache_hit_tokens")) or 0
    thought = (
        _detail(said, "completion_tokens_details", "reasoning_tokens") or _count(said.get("reasoning_tokens")) or 0
    )
    return Usage(
        requests=1,
        prompt_tokens=prompt,
        cached_tokens=min(cached, prompt),
        completion_tokens=written,
        reasoning_tokens=min(thought, written),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _detail(said: Mapping[str, Any], group: str, name: str) -> int | None:
    details = said.get(group)
    return _count(details.get(name)) if isinstance(details, Mapping) else None


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

    def begin(self, earlier: Usage | None) -> None:
        """Pay for another output from here on, which has cost so much before."""
        self.usage, self.earlier = Usage(), (earlier.cost or 0.0) if earlier is not None else 0.0

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

    def closed(self, in_flight: int = 0) -> bool:
        """Whether nothing more may be begun: the limit is reached, or will be by so many requests that are under way, at what
        one cost so far."""
        if self.max_cost is None:
            return False
        mean = (self.usage.cost or 0.0) / max(self.usage.requests, 1)
        return self.blind or self.spent + in_flight * mean >= self.max_cost

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
