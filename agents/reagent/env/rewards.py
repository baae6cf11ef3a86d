"""Process rewards of calls, and the outcome's (DESIGN §5)."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from reagent.config_types import Count, Finite, NotNegative, Whole
from rrm.config import Section
from rrm.errors import ConfigError

Verdict = Literal["useful", "useless", "repeated", "failed", "malformed"]


class RewardWeights(Section):
    """Rewards of a step and of the outcome: R_env = Σ process + outcome (DESIGN §5).
    By default only the outcome pays, and a run without an answer costs a little: 0.05 for each useful call was worth more than an answer. What long
    episodes cost is `rollout.overlong`."""

    useful: Finite = 0.0
    """A call that ran, gave something, and was not made before."""
    useless: Finite = 0.0
    """A call that ran and gave nothing."""
    repeated: Finite = 0.0
    """A call that already gave a result in this episode; repeating one that failed is no repetition."""
    failed: Finite = 0.0
    """A call the tool failed on: not the agent's fault."""
    malformed: Finite = -0.1
    """A turn with a call that cannot be run, without call or answer, or cut at its token limit."""
    max_malformed: Whole | None = 4
    """Malformed turns an episode pays for, so that they cost no more than an outcome; null charges all."""
    max_useful: Whole | None = 4
    """Useful calls an episode is paid for, so that calling on never beats answering; null pays for all."""
    outcome: NotNegative = 1.0
    """Multiplies the answer's grade."""
    unanswered: Finite = -0.1
    """Outcome of an episode that reached its turn limit without an answer."""


class OverlongPenalty(Section):
    """Soft overlong punishment (DAPO, 2503.14476, eq. 13): an episode's last turn earns −`penalty` · p, where p rises from 0 to 1 over the last
    `buffer_tokens` sampled tokens before `max_tokens`."""

    max_tokens: Count
    """L_max: sampled tokens of an episode from which on p is 1."""
    buffer_tokens: Count
    """L_cache."""
    penalty: NotNegative = 1.0

    @model_validator(mode="after")
    def _buffer_fits(self) -> Self:
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(f"buffer_tokens={self.buffer_tokens} must be at most max_tokens={self.max_tokens}")
        return self

    @property
    def free_tokens(self) -> int:
        """Sampled tokens that cost nothing."""
        return self.max_tokens - self.buffer_tokens

    def reward(self, tokens: int) -> float:
        return -self.penalty * min(max(tokens - self.free_tokens, 0) / self.buffer_tokens, 1.0)


NO_PROCESS_REWARDS = RewardWeights(malformed=0.0, unanswered=0.0)


def as_weights(rewards: RewardWeights | Mapping[str, Any] | None) -> RewardWeights:
    """Weights from a mapping with some of them. Raises ConfigError: an unknown weight, or no number."""
    if isinstance(rewards, RewardWeights):
        return rewards
    try:
        return RewardWeights.model_validate(dict(rewards or {}))
    except ValidationError as error:
        names = ", ".join(RewardWeights.model_fields)
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise ConfigError(f"rewards: {problems}; there are: {names}") from error
