"""Usage of a server: requests, tokens, and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """Usage of some requests, as the server reports it."""

    model_config = ConfigDict(frozen=True)

    requests: int = Field(default=0, ge=0)  # failed tries included
    prompt_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)  # of the prompts', from the server's cache, if reported
    completion_tokens: int = Field(default=0, ge=0)  # thinking included
    reasoning_tokens: int = Field(default=0, ge=0)  # of these, as reported or as the reply's tokens show
    # requests that may have been charged without reported usage: time-outs, broken replies
    unreported: int = Field(default=0, ge=0)
    # in the currency of the prices; None without prices
    cost: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Usage(**counts, cost=round(sum(costs), 12) if costs else None)

    def less(self, other: Usage) -> Usage:
        counts = {name: max(getattr(self, name) - getattr(other, name), 0) for name in COUNTS}
        cost = None if self.cost is None else max(round(self.cost - (other.cost or 0.0), 12), 0.0)
        return Usage(**counts, cost=cost)


COUNTS = tuple(name for name in Usage.model_fields if name != "cost")


def total_of(usages: Iterable[Usage | None]) -> Usage | None:
    total: Usage | None = None
    for usage in usages:
        if usage is not None:
            total = usage if total is None else total + usage
    return total


def read_usage(reported: Any) -> Usage:
    """Parse one request's usage from an OpenAI-compatible server's `usage`, whatever that holds.

    Servers that leave thinking out of `completion_tokens` (Gemini, xAI) include it in `total_tokens`.
    """
    if not isinstance(reported, Mapping):
        return Usage(requests=1, unreported=1)
    prompt, written = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    if prompt is None or written is None:
        return Usage(requests=1, unreported=1)
    total = _count(reported.get("total_tokens")) or 0
    written = max(written, total - prompt)
    cached = (
        _detail(reported, "prompt_tokens_details", "cached_tokens")
        or _count(reported.get("prompt_cache_hit_tokens"))
        or 0
    )
    thought = (
        _detail(reported, "completion_tokens_details", "reasoning_tokens")
        or _count(reported.get("reasoning_tokens"))
        or 0
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


def _detail(reported: Mapping[str, Any], group: str, name: str) -> int | None:
    details = reported.get(group)
    return _count(details.get(name)) if isinstance(details, Mapping) else None
