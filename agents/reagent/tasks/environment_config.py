"""The config section `environment`."""

from typing import Any

from pydantic import Field, model_validator

from reagent.config_types import Count, Finite, Share
from reagent.env.rewards import RewardWeights
from rrm.config import Section


class EnvironmentConfig(Section):
    name: str = "search"
    """A registered environment (reagent.tasks.environments), or `module:factory`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the environment's factory: limits, parser, tools."""
    rewards: RewardWeights = Field(default_factory=RewardWeights)
    """Rewards of steps and outcomes. They stay when another environment is named."""
    failure_reward: Finite = 0.0
    """Outcome of an episode whose own answer kept it from being graded; `success` stays unknown."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Passed to the task maker for training tasks (hops, …)."""
    eval: dict[str, Any] = Field(default_factory=dict)
    """Passed to the task maker for held-out tasks."""
    train_tasks: Count = 4096
    """Distinct training tasks; drawn in order, anew from the start when used up."""
    label_share: Share = 1.0
    """Share of them that is graded, drawn by task; the others earn only what a judge's feedback pays."""
    eval_tasks: Count = 200

    @model_validator(mode="before")
    @classmethod
    def _rewards_of_options(cls, value: Any) -> Any:
        """Move `options.rewards`, the place in earlier versions, into `rewards`."""
        old_options = value.get("options") if isinstance(value, dict) else None
        if not isinstance(old_options, dict) or "rewards" not in old_options:
            return value
        options, rewards = dict(old_options), value.get("rewards") or {}
        old_rewards = options.pop("rewards") or {}
        own = rewards.model_dump(exclude_unset=True) if isinstance(rewards, RewardWeights) else rewards
        return value | {
            "options": options,
            "rewards": {**own, **old_rewards} if isinstance(old_rewards, dict) else old_rewards,
        }

    @property
    def made_with(self) -> dict[str, Any]:
        """Arguments of the environment's factory, with rewards where the config names some."""
        named = bool(self.rewards.model_fields_set)
        own = {"rewards": self.rewards} if named else {}
        own |= {"failure_reward": self.failure_reward} if "failure_reward" in self.model_fields_set else {}
        return self.options | own
