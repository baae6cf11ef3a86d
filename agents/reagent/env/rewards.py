"""Process rewards: what a call was, and what it is worth (DESIGN §5)."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from reagent.config_types import Finite, NotNegative, Whole
from rrm.config import Section
from rrm.errors import ConfigError

Verdict = Literal["useful", "useless", "repeated", "failed", "malformed"]


class RewardWeights(Section):
    """Rewards of a step and of the outcome: R_env = Σ process + outcome (DESIGN §5).

    By default only the outcome pays, and a run without an answer costs a little. A reward of 0.05 for each useful call was worth more
    than an answer.
    """

    useful: Finite = 0.0
    """A call that ran, gave something, and was not made before."""
    useless: Finite = 0.0
    """A call that ran and gave nothing."""
    repeated: Finite = 0.0
    """A call that already gave a result in this episode (to repeat one that failed is no repetition)."""
    failed: Finite = 0.0
    """A call the tool failed on: not the agent's fault."""
    malformed: Finite = -0.1
    """A turn with a call that cannot be run, once however many: broken syntax, unknown tool, wrong arguments; also a turn without call
    or answer, and one that was cut at its token limit."""
    max_malformed: Whole | None = 4
    """Such turns an episode pays for, so that failing on and on costs no more than an outcome; null charges all."""
    max_useful: Whole | None = 4
    """Useful calls an episode is paid for, so that calling on and on never beats answering; null pays for all."""
    outcome: NotNegative = 1.0
    """Times the grade of the answer."""
    unanswered: Finite = -0.1
    """Outcome of an episode that reached its turn limit without an answer."""


NO_PROCESS_REWARDS = RewardWeights(malformed=0.0, unanswered=0.0)
"""The outcome alone."""


def as_weights(rewards: RewardWeights | Mapping[str, Any] | None) -> RewardWeights:
    """Weights, a mapping with some of them, or None for the defaults. Raises ConfigError: an unknown weight, or one that is no number."""
    if isinstance(rewards, RewardWeights):
        return rewards
    try:
        return RewardWeights.model_validate(dict(rewards or {}))
    except ValidationError as error:
        known = ", ".join(RewardWeights.model_fields)
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise ConfigError(f"rewards: {problems}; there are: {known}") from error
