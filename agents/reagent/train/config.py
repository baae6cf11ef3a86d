"""The agent side's config: what `reagent train` and `reagent eval` read from configs/agents/*.yaml.

Field names are the ones users of cleanrl, verl and TRL know. Unknown keys are errors (see `rrm.config`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from reagent.feedback.settings import FeedbackConfig
from rrm.config import BaseSettings, LoraSettings, Section, find_config, read_config
from rrm.engines.base import SamplingParams

Algorithm = Literal["ppo", "grpo", "rloo", "reinforce++", "reinforce++-baseline"]


class EnvironmentConfig(Section):
    """Which environment, and which of its tasks."""

    name: str = "search"
    """A registered environment (reagent.env.registry), or `module:factory`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the environment's factory: reward weights, limits, parser."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Passed to the task maker for training tasks (hops, …)."""
    eval: dict[str, Any] = Field(default_factory=dict)
    """Passed to the task maker for held-out tasks."""
    train_tasks: int = 4096
    """Distinct training tasks; they are drawn in order, anew from the start when used up."""
    label_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of them that is graded, drawn by task; the others are played ungraded, and earn what a judge's feedback pays."""
    eval_tasks: int = 200


class PolicyConfig(BaseSettings):
    """The policy to start from."""

    base: str = "lab"
    """`lab` and `lab-reflective` (shipped), `smollm2`, a directory, or a hub id."""
    chat_template: str | None = None
    """A template's name in reagent.rollout.templates; null keeps the tokenizer's own."""
    lora: LoraSettings | None = None
    """null trains every weight."""
    gradient_checkpointing: bool = False

    @field_validator("lora")
    @classmethod
    def _no_dropout(cls, lora: LoraSettings | None) -> LoraSettings | None:
        if lora is not None and lora.dropout:
            raise ValueError("policy.lora.dropout must be 0: the update must compute what the rollout sampled from")
        return lora


class RolloutConfig(Section):
    """How episodes are made."""

    tasks_per_update: int = 16
    group_size: int = 4
    """Episodes of each task; the group that group methods compare."""
    max_turns: int = 8
    max_new_tokens: int = 64
    """Most tokens of one turn."""
    max_episode_tokens: int = 768
    max_observation_tokens: int = 256
    temperature: float = 1.0

    @property
    def limits(self) -> dict[str, Any]:
        """What ends an episode and what is cut, as `reagent.rollout.rollout.rollout` takes it."""
        return {
            "max_turns": self.max_turns,
            "max_episode_tokens": self.max_episode_tokens,
            "max_observation_tokens": self.max_observation_tokens,
        }

    def sampling(self, *, seed: int, temperature: float | None = None) -> SamplingParams:
        """How one turn is sampled; `temperature` in place of the training's."""
        chosen = self.temperature if temperature is None else temperature
        return SamplingParams(max_new_tokens=self.max_new_tokens, temperature=chosen, seed=seed)


class OptimConfig(Section):
    """One update's optimisation."""

    learning_rate: float = 1e-4
    value_learning_rate: float | None = None
    """Of the value head; null: the policy's."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    warmup_updates: int = 0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0
    epochs: int = 1
    """Passes over an update's episodes."""
    minibatches: int = 1
    """Optimiser steps a pass; episodes are dealt out anew each pass."""
    microbatch_tokens: int = 16384
    """Most tokens (padding included) of one forward and backward."""


class LossConfig(Section):
    """The objective. `action_mask` and `advantage_mask` off are ablations (DESIGN: neither mask, no advantage mask)."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = Field(default=None, gt=1)
    """Bounds the loss of a token with a negative advantage A by −dual_clip · A (3 is usual); null: off."""
    importance_cap: float | None = Field(default=None, gt=0)
    """Weighs tokens with π_train/π_rollout, at most this much (2 is usual), for a rollout engine whose numbers differ from
    the training forward's; null: off."""
    aggregation: Literal["token-mean", "sequence-mean"] = "token-mean"
    vf_coef: float = 0.5
    vf_clip: float | None = 0.2
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    gamma: float = 1.0
    gae_lambda: float = 0.95
    bootstrap: bool = False
    """PPO: where a limit cut an episode off, V of the state it ended in stands for what was still to come, not 0."""
    whiten: bool = True
    """PPO and REINFORCE++: whiten advantages over all action tokens of all processes."""
    advantage_scale: Literal["group", "batch", "none"] = "group"
    """GRPO: what a group's centred returns are divided by."""
    credit: Literal["episode", "turn"] = "episode"
    """Group methods: compare whole episodes, or every turn's reward-to-go (for environments with process rewards)."""
    action_mask: bool = True
    advantage_mask: bool = True


class EvalConfig(Section):
    """Evaluation on held-out tasks during training and by `reagent eval`."""

    every: int = 0
    """Updates between evaluations; 0: only after the last."""
    samples: int = 1
    """Episodes of each task (for pass@k)."""
    temperature: float = 0.0


class AgentConfig(Section):
    """Everything `reagent train` needs."""

    name: str = "agent"
    seed: int = 0
    output_dir: str = "runs/agent"
    algorithm: Algorithm = "ppo"
    max_updates: int = 50
    save_every: int = 10
    sample_episodes: int = 2
    """Episodes of each update written to episodes.jsonl."""
    report_to: list[str] = Field(default_factory=list)
    """Trackers by accelerate's names: tensorboard, wandb, trackio."""
    cpu: bool = False
    threads: int | None = None
    mixed_precision: Literal["no", "bf16"] = "no"
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    optim: OptimConfig = Field(default_factory=OptimConfig)
    loss: LossConfig = Field(default_factory=LossConfig)
    feedback: FeedbackConfig = Field(default_factory=FeedbackConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)

    @model_validator(mode="after")
    def _group_methods_need_groups(self) -> AgentConfig:
        if self.algorithm in ("grpo", "rloo", "reinforce++-baseline") and self.rollout.group_size < 2:
            raise ValueError(f"algorithm={self.algorithm} compares episodes of one task: set rollout.group_size ≥ 2")
        if not self.loss.action_mask and self.loss.advantage_mask and self.algorithm in ("ppo", "reinforce++"):
            raise ValueError(
                "loss.action_mask=false with loss.advantage_mask=true leaves observation tokens without an advantage: "
                "set loss.advantage_mask=false too"
            )
        if self.loss.bootstrap and self.algorithm != "ppo":
            raise ValueError(
                f"loss.bootstrap takes values, which algorithm={self.algorithm} has none of: use it with ppo"
            )
        return self


def load_agent_config(name: str, overrides: Sequence[str] | None = None) -> AgentConfig:
    """Read a config by shipped name (configs/agents) or path and apply `a.b=c` overrides.

    Raises:
        ConfigError: as `rrm.config.read_config`.
    """
    return read_config(find_config(name, "agents"), AgentConfig, overrides or ())
