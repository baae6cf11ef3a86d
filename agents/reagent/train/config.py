"""The config of `reagent train` and `reagent eval` (configs/agents/*.yaml); unknown keys are errors.

Field names are the ones users of cleanrl, verl and TRL know."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import Field, field_validator, model_validator

from reagent.algorithms.names import GROUP_METHODS, TOKEN_METHODS, Algorithm
from reagent.config_types import Count, NotNegative, Positive, Share, Whole
from reagent.env.rewards import OverlongPenalty
from reagent.feedback.settings import FeedbackConfig
from reagent.removed import REMOVED
from reagent.tasks.base import Benchmark
from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.environments import find_environment
from reagent.tasks.registry import TASKS
from reagent.train.guard_settings import GuardsConfig
from rrm.config import BaseSettings, LoraSettings, Section, Sharding, config_folder, find_config, read_config
from rrm.engines.base import SamplingParams
from rrm.engines.vllm_http import servers_of
from rrm.errors import ConfigError

log = logging.getLogger(__name__)
Beta = Annotated[float, Field(ge=0, lt=1)]


class PolicyConfig(BaseSettings):
    base: str = "lab"
    """`lab` and `lab-reflective` (shipped), `smollm2`, a directory, or a hub id."""
    chat_template: str | None = None
    """A template's name in reagent.rollout.templates; null keeps the tokenizer's own."""
    lora: LoraSettings | None = None
    """null trains every weight, and holds them in float32 whatever `dtype` says."""
    gradient_checkpointing: bool = False
    export_dtype: Literal["float32", "base"] = "float32"
    """Type of the exported weights, adapter merged; `base`: `dtype` (bfloat16 loses some 7 % of learning)."""

    @field_validator("lora")
    @classmethod
    def _no_dropout(cls, lora: LoraSettings | None) -> LoraSettings | None:
        if lora is not None and (lora.r < 1 or lora.alpha < 1):
            raise ValueError(f"policy.lora.r and policy.lora.alpha must be at least 1, got {lora.r}, {lora.alpha}")
        if lora is not None and lora.dropout:
            raise ValueError("policy.lora.dropout must be 0: the update must compute what the rollout sampled from")
        return lora


HF = "hf"
IMPORTANCE_CAP = 2.0


class EngineConfig(Section):
    """The engine of rollouts. A string is its `server`: `rollout.engine=vllm:http://localhost:8000`."""

    server: str = HF
    """`hf`, in this process, or vLLM's servers: `vllm:URL[,URL…][#model]` (docs/engines.md)."""
    adapters: str | None = None
    """vllm: the run's folder `adapters` as the server sees it; null: the same path."""
    timeout_s: Positive = 600.0
    """vllm: of one turn."""
    patience_s: NotNegative = 600.0
    """vllm: retries where no server answers; longer than a restart takes."""
    max_gap: Positive | None = 0.5
    """Training stops where server and training forward differ by more nats a token on average."""
    max_start_gap: Positive | None = 0.1
    """The same before the first row, on some short texts: the server must have the policy's weights."""
    max_batch_tokens: Count | None = None
    """hf: tokens (prompts and turns) with keys and values in memory; more rows wait. null: the engine's."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"server": value} if isinstance(value, str) else value

    @field_validator("server")
    @classmethod
    def _known(cls, server: str) -> str:
        try:
            if server != HF:
                servers_of(server)
        except ConfigError as error:
            raise ValueError(f"{error}; or {HF}") from error
        return server

    @property
    def is_remote(self) -> bool:
        return self.server != HF

    @property
    def chosen(self) -> dict[str, Any]:
        return {} if self.max_batch_tokens is None else {"max_batch_tokens": self.max_batch_tokens}


class RolloutConfig(Section):
    tasks_per_update: Count = 16
    group_size: Count = 4
    """Episodes of each task; the group that group methods compare."""
    dynamic_sampling: Whole = 0
    """Group methods: draw up to so many further batches of tasks, until `tasks_per_update` groups differ.
    Groups of equal rewards are left out (DAPO, 2503.14476). 0: off."""
    max_turns: Count = 8
    """This and the two below default to a benchmark's own (`reagent tasks`)."""
    max_new_tokens: Count = 64
    """Most tokens of one turn; a turn that it cuts is no answer."""
    max_episode_tokens: Count = 768
    max_observation_tokens: Whole = 256
    env_timeout_s: Positive = 300.0
    """Seconds an environment's reset or step may take; tools have their own time-outs."""
    temperature: Positive = 0.8
    """Above 0. At 1 small policies slip in every other episode; below 0.7 attempts hardly differ."""
    overlong: OverlongPenalty | None = None
    """`{max_tokens: 512, buffer_tokens: 128}`: long episodes cost reward, whatever their outcome; null: off."""
    template_options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template: `{enable_thinking: false}` (Qwen3, GLM-4.5), `{thinking: true}`
    (DeepSeek-V3.1), `{reasoning_effort: low}` (GPT-OSS); one that it never reads is an error. Also for a judge's texts."""
    engine: EngineConfig = Field(default_factory=EngineConfig)
    max_lag: int = Field(default=0, ge=0, le=1)
    """1: an update's episodes are played while the one before is learned, on weights one update old.
    Not before an evaluation or a checkpoint. Pays on separate hardware; `hf` then holds a second copy of the trained weights."""

    @model_validator(mode="after")
    def _overlong_can_happen(self) -> RolloutConfig:
        most = min(self.max_episode_tokens, self.max_turns * self.max_new_tokens)
        if self.overlong is not None and self.overlong.free_tokens >= most:
            raise ValueError(
                f"rollout.overlong costs nothing below {self.overlong.free_tokens} sampled tokens (max_tokens − buffer_tokens), and "
                f"an episode has at most {most}: lower rollout.overlong.max_tokens"
            )
        return self

    @property
    def is_off_policy(self) -> bool:
        """True where episodes may be sampled from other numbers than the training forward's."""
        return self.engine.is_remote or self.max_lag > 0

    @property
    def limits(self) -> dict[str, Any]:
        names = ("max_turns", "max_episode_tokens", "max_observation_tokens", "env_timeout_s", "overlong")
        return {name: getattr(self, name) for name in (*names, "template_options")}

    def sampling(self, *, seed: int, temperature: float | None = None) -> SamplingParams:
        chosen = self.temperature if temperature is None else temperature
        return SamplingParams(max_new_tokens=self.max_new_tokens, temperature=chosen, seed=seed)


class OptimConfig(Section):
    learning_rate: NotNegative = 1e-4
    """The default suits LoRA; whole weights (`policy.lora` null) want 1e-5 to 1e-6."""
    value_learning_rate: NotNegative | None = None
    """Learning rate of the value head; null: the policy's."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_updates: Whole = 5
    """Updates in which the rate rises: Adam's first steps may throw a policy off its format."""
    weight_decay: NotNegative = 0.0
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    max_grad_norm: float = Field(default=1.0, gt=0)
    """inf: no clipping."""
    epochs: Count = 1
    """Passes over an update's episodes."""
    minibatches: Count = 1
    """Optimiser steps a pass; episodes are dealt out anew each pass."""
    microbatch_tokens: Count = 16384
    """Most tokens (padding included) of one forward and backward."""
    share_prefixes: bool = False
    """Read the common beginning of a group's attempts once (`reagent.train.prefixes`); same results.
    Faster with many attempts and long prompts. For models of full attention."""


USUAL_CLIPS = {"gspo": "loss.clip_low=0.0003 loss.clip_high=0.0004", "cispo": "loss.clip_low=1 loss.clip_high=5"}


class LossConfig(Section):
    """The objective. `action_mask` and `advantage_mask` off are ablations."""

    policy: Literal["ppo", "gspo", "cispo"] = "ppo"
    """`ppo` clips each token's ratio, `gspo` the row's (with bounds near 0.0004), `cispo` each token's weight (with clip_low=1,
    as its paper has no lower bound, and a clip_high of some units)."""
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    dual_clip: float | None = Field(default=None, gt=1, allow_inf_nan=False)
    """Bounds the loss of a token with a negative advantage A by −dual_clip · A (3 is usual); null: off."""
    importance_cap: Positive | Literal["auto"] | None = "auto"
    """Weigh tokens with π_train/π_rollout, at most this, where they may differ; null: off.
    `auto`: 2 where `rollout.engine` is a server, `rollout.max_lag` is 1, or the policy computes in 16 bits, else off."""
    aggregation: Literal["token-mean", "sequence-mean"] = "token-mean"
    vf_coef: NotNegative = 0.5
    vf_clip: Positive | None = 0.2
    entropy_coef: NotNegative = 0.0
    kl_coef: NotNegative = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    target_kl: Positive | None = None
    """Make no further step in an update once a minibatch's mean KL(π_old ‖ π) exceeds 1.5 of this; null: off."""
    gamma: Share = 1.0
    gae_lambda: Share = 0.95
    """Per token: 0.95^70 leaves nothing of the outcome at the start; 1.0 suits short episodes (lab)."""
    bootstrap: bool = False
    """PPO: V of the last state stands for the rest of an episode that the turn limit cut off, not 0.
    Without room for the last observation it is 0."""
    whiten: bool = True
    """PPO and REINFORCE++: whiten advantages over all action tokens of all processes."""
    advantage_scale: Literal["group", "batch", "none"] = "none"
    """GRPO: divisor of a group's centred returns. `group`: one success in eight counts as much as four;
    undivided, twice as many answers were right in our trainings (docs/decisions.md, ADR 25)."""
    credit: Literal["episode", "turn"] = "episode"
    """Group methods: compare whole episodes, or every turn's reward-to-go (for process rewards)."""
    action_mask: bool = True
    advantage_mask: bool = True

    @model_validator(mode="after")
    def _dual_clip_bounds_a_ratio(self) -> LossConfig:
        if self.policy == "cispo" and self.dual_clip is not None:
            raise ValueError(
                "loss.policy=cispo has no ratio in its loss for loss.dual_clip to bound: set loss.dual_clip=null"
            )
        return self


class EvalConfig(Section):
    first: bool = True
    every: Whole = 0
    """Updates between evaluations; 0: only after the last."""
    samples: Count = 1
    """Episodes of each task (for pass@k)."""
    temperature: NotNegative = 0.0
    sampled: Whole = 1
    """Further attempts at `rollout.temperature`, for `sampled_success`; only if `temperature` is 0."""


class GateConfig(Section):
    """Measure before training if tasks can be learned (`reagent.train.probe`). A string is its `action`."""

    action: Literal["off", "warn", "stop"] = "warn"
    """`stop`: a policy that hardly learns ends the run before its first update."""
    tasks: Count = 100
    """The first so many training tasks."""
    samples: int = Field(default=8, ge=2)
    """Attempts at each, at `rollout.temperature`; one more is decoded greedily."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"action": value} if isinstance(value, str | bool) else value

    @field_validator("action", mode="before")
    @classmethod
    def _off(cls, action: Any) -> Any:
        return "off" if action is False else action  # as YAML reads it


class WarmStartConfig(Section):
    """Learn the answers of some training tasks before the first update. A number is its `tasks`."""

    tasks: Whole = 0
    """The last so many graded training tasks, whose questions are then not played; for tasks of one turn."""
    epochs: Count = 3
    batch_size: Count = 8
    learning_rate: NotNegative | None = None
    """null: 5e-4 for an adapter, 2e-5 for whole weights."""

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return {"tasks": value} if isinstance(value, int) else value


class DistilRunConfig(Section):
    """`reagent distil`: supervised learning on attempts chosen among the policy's own."""

    tasks: Count = 256
    """The first so many training tasks."""
    samples: int = Field(default=8, ge=2)
    """Attempts at each, of which one is chosen."""
    temperature: Positive | None = None
    """null: `rollout.temperature`."""
    by: Literal["judge", "weighted", "majority", "longest", "shortest", "random", "oracle"] = "judge"
    """Strategy (`rrm.evaluation.choosing`); `judge`, `weighted`: by `feedback.judge`; `oracle`: by labels."""
    min_score: Share | None = None
    """Learn only from chosen attempts with this score of the judge's; null: from each."""
    epochs: Count = 2
    """Passes over the chosen episodes."""
    batch_episodes: Count = 16
    """Episodes of one optimiser step."""
    learning_rate: NotNegative | None = None
    """null: `optim.learning_rate`; warm-up and schedule are those of `optim`, in steps."""

    @model_validator(mode="after")
    def _scores_are_the_judges(self) -> DistilRunConfig:
        if self.min_score is not None and self.by not in ("judge", "weighted"):
            raise ValueError(
                f"distil.min_score is a bound on the judge's scores, which distil.by={self.by} never asks for"
            )
        return self


class AgentConfig(Section):
    """Everything `reagent train` needs."""

    removed = REMOVED
    name: str = "agent"
    seed: int = Field(default=0, ge=0, lt=2**32)
    output_dir: str = "runs/agent"
    algorithm: Algorithm = "ppo"
    max_updates: Count = 50
    schedule_updates: Count | None = None
    """Updates over which learning rate and λ fall; null: the `max_updates` that the run began with."""
    save_every: Count = 10
    sample_episodes: Whole = 2
    """First and second attempts of each update written to episodes.jsonl; `reagent rescore` reads those."""
    report_to: list[str] = Field(default_factory=list)
    """Trackers by accelerate's names: tensorboard, wandb, trackio."""
    cpu: bool = False
    threads: Count | None = None
    mixed_precision: Literal["no", "bf16"] = "no"
    sharding: Sharding = "none"
    """Part of the policy on each process: all (`none`, DDP) or a shard (`fsdp`, FSDP2, docs/agents.md).
    The same losses either way; a run may be continued under the other, and on another number of processes."""
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    optim: OptimConfig = Field(default_factory=OptimConfig)
    loss: LossConfig = Field(default_factory=LossConfig)
    feedback: FeedbackConfig = Field(default_factory=FeedbackConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    gate: GateConfig = Field(default_factory=GateConfig)
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)
    distil: DistilRunConfig = Field(default_factory=DistilRunConfig)
    guards: GuardsConfig = Field(default_factory=GuardsConfig)

    @model_validator(mode="before")
    @classmethod
    def _limits_of_the_task(cls, value: Any) -> Any:
        environment = value.get("environment") if isinstance(value, dict) else None
        name = environment.get("name") if isinstance(environment, dict) else getattr(environment, "name", None)
        if name not in TASKS or not isinstance(rollout := value.get("rollout") or {}, dict):
            return value
        limits = cast(type[Benchmark], find_environment(name)).limits
        defaults = {
            "max_turns": limits.turns,
            "max_new_tokens": limits.new_tokens,
            "max_episode_tokens": limits.episode_tokens,
        }
        return {**value, "rollout": {**defaults, **rollout}}

    @model_validator(mode="after")
    def _group_methods_need_groups(self) -> AgentConfig:
        if self.algorithm in GROUP_METHODS and self.rollout.group_size < 2:
            raise ValueError(f"algorithm={self.algorithm} compares episodes of one task: set rollout.group_size ≥ 2")
        if self.rollout.dynamic_sampling and self.algorithm not in GROUP_METHODS:
            raise ValueError(
                f"rollout.dynamic_sampling leaves out groups that teach nothing by comparison, and algorithm={self.algorithm} compares "
                f"none: set it to 0, or take one of {', '.join(GROUP_METHODS)}"
            )
        if self.algorithm == "rft" and (
            self.optim.epochs * self.optim.minibatches > 1
            or self.loss.aggregation != "token-mean"
            or self.loss.credit != "episode"
        ):
            raise ValueError(
                "algorithm=rft learns the tokens of whole episodes once: set optim.epochs=1, optim.minibatches=1, "
                "loss.aggregation=token-mean and loss.credit=episode"
            )
        if self.loss.target_kl is not None and self.optim.epochs * self.optim.minibatches == 1:
            raise ValueError(
                "loss.target_kl ends an update before its later steps, and one step uses all episodes once: set optim.epochs or "
                "optim.minibatches above 1, or loss.target_kl=null"
            )
        if self.rollout.dynamic_sampling and self.rollout.overlong is not None:
            raise ValueError(
                "rollout.overlong makes groups differ whose episodes all failed, and rollout.dynamic_sampling would learn from those: set one of "
                "them off"
            )
        if self.rollout.dynamic_sampling and self.rollout.max_lag:
            raise ValueError(
                "rollout.dynamic_sampling says only once an update is played where the next one's tasks begin: set rollout.max_lag=0"
            )
        if self.feedback.score_from == "rank" and self.rollout.group_size < 2:
            raise ValueError("feedback.score_from=rank compares episodes of one task: set rollout.group_size ≥ 2")
        if self.feedback.mode == "shuffled" and self.rollout.group_size < 2:
            raise ValueError(
                "feedback.mode=shuffled deals rewards among the episodes of one task, and with one of each it would be feedback.mode=none: "
                "set rollout.group_size ≥ 2"
            )
        if not self.loss.action_mask and self.loss.advantage_mask and self.algorithm in TOKEN_METHODS:
            raise ValueError(
                "loss.action_mask=false with loss.advantage_mask=true leaves observation tokens without an advantage: "
                "set loss.advantage_mask=false too"
            )
        if self.loss.bootstrap and self.algorithm != "ppo":
            raise ValueError(
                f"loss.bootstrap takes values, which algorithm={self.algorithm} has none of: use it with ppo"
            )
        return self

    @model_validator(mode="after")
    def _end_paid_once(self) -> AgentConfig:
        shaped = self.feedback.mode == "process" and self.feedback.process.pay == "shaping"  # refused below, for more
        if self.loss.bootstrap and self.environment.rewards.unanswered and not shaped:
            raise ValueError(
                "loss.bootstrap values what an episode at its turn limit would go on to, environment.rewards.unanswered pays for its end: "
                "paid both, the value falls without end; set environment.rewards.unanswered=0"
            )
        return self

    @property
    def horizon(self) -> int:
        return self.schedule_updates or self.max_updates

    @property
    def importance_cap(self) -> float | None:
        """`loss.importance_cap` with `auto` resolved; None: off."""
        cap = self.loss.importance_cap
        half = self.mixed_precision == "bf16" or (self.policy.lora is not None and self.policy.dtype == "bfloat16")
        return cap if cap != "auto" else IMPORTANCE_CAP if self.rollout.is_off_policy or half else None

    @model_validator(mode="after")
    def _differences_need_credit_by_turn(self) -> AgentConfig:
        pay = self.feedback.process.pay
        if self.feedback.mode != "process" or pay == "findings":
            return self
        if self.algorithm in GROUP_METHODS and self.loss.credit != "turn":
            raise ValueError(
                f"feedback.process.pay={pay} says which turn earned what, and loss.credit={self.loss.credit} compares sums alone, "
                f"which are those of feedback.mode={'r' if pay == 'spread' else 'none'}: set loss.credit=turn"
            )
        if pay == "shaping" and (self.loss.bootstrap or (self.algorithm in TOKEN_METHODS and self.loss.gamma != 1)):
            raise ValueError(
                "feedback.process.pay=shaping leaves the optimum as it is where returns are undiscounted and end at 0: set "
                "loss.gamma=1 and loss.bootstrap=false"
            )
        if pay == "spread" and self.algorithm in TOKEN_METHODS and self.loss.gamma != 1:
            raise ValueError(
                "feedback.process.pay=spread adds up to λ·s where returns are undiscounted; discounted, an attempt that looks good early "
                "and ends badly is paid for it: set loss.gamma=1"
            )
        return self


def _other_environment(path: Path, overrides: Sequence[str]) -> list[str]:
    """Overrides that empty the file's environment options where another environment is named."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return []  # `read_config` says what is wrong
    environment = tree.get("environment") if isinstance(tree, dict) else None
    named = [value for key, _, value in (o.partition("=") for o in overrides) if key == "environment.name"]
    own = environment.get("name", EnvironmentConfig().name) if isinstance(environment, dict) else None
    if not isinstance(environment, dict) or not named or named[-1] == own:
        return []
    dropped = {key: environment[key] for key in ("options", "train", "eval") if environment.get(key)}
    overridden = {o.partition("=")[0] for o in overrides}
    options, own_rewards = dropped.get("options"), environment.get("rewards") or {}
    rewards = (
        options.pop("rewards", None) if isinstance(options, dict) else None
    )  # the run's, as earlier versions wrote them
    own_rewards = (
        {**own_rewards, **rewards} if isinstance(rewards, dict) and isinstance(own_rewards, dict) else own_rewards
    )
    if unsaid := [
        f"environment.{key}={value}"
        for key, value in dropped.items()
        if value and f"environment.{key}" not in overridden
    ]:
        log.info("environment.name=%s: left out what is meant for %r: %s", named[-1], own, ", ".join(unsaid))
    is_shipped = path.parent == config_folder() / "agents"  # then nobody set its rewards
    if own_rewards and "environment.rewards" not in overridden and not is_shipped:
        log.warning("environment.name=%s: environment.rewards were set for %r and apply here too", named[-1], own)
    emptied = [f"environment.{key}={{}}" for key in dropped]
    return [*emptied, f"environment.rewards={json.dumps(own_rewards)}"] if rewards else emptied


def load_agent_config(name: str, overrides: Sequence[str] | None = None) -> AgentConfig:
    """Read a config by shipped name (configs/agents) or path and apply `a.b=c` overrides.

    `environment.name` of another environment drops the file's `environment.options`, `train` and `eval`. Raises ConfigError."""
    path = find_config(name, "agents")
    config = read_config(path, AgentConfig, [*_other_environment(path, overrides or ()), *(overrides or ())])
    loss = config.loss
    if loss.policy in USUAL_CLIPS and any(0.05 <= clip <= 0.5 for clip in (loss.clip_low, loss.clip_high)):
        log.warning(
            "loss.policy=%s: loss.clip_low=%g and loss.clip_high=%g are bounds for ppo's ratios of tokens; usual here are %s",
            loss.policy,
            loss.clip_low,
            loss.clip_high,
            USUAL_CLIPS[loss.policy],
        )
    return config
