"""Process rewards of calls, and the outcome's (DESIGN §5)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from reagent.config_types import Finite, NotNegative, Whole
from rrm.config import Section
from rrm.errors import ConfigError

Verdict = Literal["useful", "useless", "repeated", "failed", "malformed"]


class RewardWeights(Section):
    """Rewards of a step and of the outcome: R_env = Σ process + outcome (DESIGN §5).
    By default only the outcome pays, and a run without an answer costs a little: 0.05 for each useful call was worth more than an answer."""

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
