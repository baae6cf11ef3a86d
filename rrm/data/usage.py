"""What was used of a server: requests, tokens, and the money they cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


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
        return Usage(**counts, cost=round(sum(costs), 12) if costs else None)

    def less(self, other: Usage) -> Usage:
        """What is left of it without a part."""
        counts = {name: max(getattr(self, name) - getattr(other, name), 0) for name in COUNTS}
        cost = None if self.cost is None else max(round(self.cost - (other.cost or 0.0), 12), 0.0)
        return Usage(**counts, cost=cost)


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
