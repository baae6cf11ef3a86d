"""Process rewards: what a call was, and what it is worth (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from rrm.config import Section
from rrm.errors import ConfigError

Verdict = Literal["useful", "useless", "repeated", "failed", "malformed"]


class RewardWeights(Section):
    """What a step and the outcome are worth. R_env = Σ process + outcome (DESIGN §5)."""

    useful: float = 0.05
    """A call that ran, gave something, and was not made before."""
    useless: float = 0.0
    """A call that ran and gave nothing."""
    repeated: float = -0.05
    """A call that already gave a result in this episode (to repeat one that failed is no repetition)."""
    failed: float = 0.0
    """A call the tool failed on: not the agent's fault."""
    malformed: float = -0.1
    """A call that cannot be run: broken syntax, unknown tool, wrong arguments; also a turn without call or answer, and one
    that was cut at its token limit."""
    max_useful: int | None = 4
    """Useful calls an episode is paid for, so that calling on and on never beats answering; null pays for all."""
    outcome: float = 1.0
    """Times the grade of the answer."""
    unanswered: float = 0.0
    """Outcome of an episode that reached its turn limit without an answer."""


NO_PROCESS_REWARDS = RewardWeights(useful=0.0, repeated=0.0, malformed=0.0)
"""The outcome alone."""


def as_weights(rewards: RewardWeights | Mapping[str, Any] | None) -> RewardWeights:
    """Weights, a mapping with some of them, or None for the defaults.

    Raises:
        ConfigError: an unknown weight, or one that is no number.
    """
    if isinstance(rewards, RewardWeights):
        return rewards
    try:
        return RewardWeights.model_validate(dict(rewards or {}))
    except ValidationError as error:
        known = ", ".join(RewardWeights.model_fields)
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise ConfigError(f"rewards: {problems}; there are: {known}") from error
