"""The agent side's config: what `reagent train` and `reagent eval` read from configs/agents/*.yaml.

Field names are the ones users of cleanrl, verl and TRL know. Unknown keys are errors (see `rrm.config`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import Field, field_validator, model_validator

from reagent.config_types import Count, NotNegative, Positive, Share, Whole
from reagent.feedback.settings import FeedbackConfig
from reagent.removed import REMOVED
from reagent.tasks.base import Benchmark
from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.environments import find_environment
from reagent.tasks.registry import TASKS
from reagent.train.guard_settings import GuardsConfig
from rrm.config import BaseSettings, LoraSettings, Section, Sharding, find_config, read_config
from rrm.engines.base import SamplingParams
from rrm.engines.vllm_http import servers_of
from rrm.errors import ConfigError

log = logging.getLogger(__name__)
Algorithm = Literal["ppo", "grpo", "rloo", "reinforce++", "reinforce++-baseline", "opo"]
GROUP_METHODS: tuple[Algorithm, ...] = ("grpo", "rloo", "reinforce++-baseline", "opo")
"""Those that compare the episodes of one task with each other."""
TOKEN_METHODS: tuple[Algorithm, ...] = ("ppo", "reinforce++")
"""Those whose credit flows from token to token, discounted by `loss.gamma`."""
Beta = Annotated[float, Field(ge=0, lt=1)]


class PolicyConfig(BaseSettings):
    """The policy to start from."""

    base: str = "lab"
    """`lab` and `lab-reflective` (shipped), `smollm2`, a directory, or a hub id."""
    chat_template: str | None = None
    """A template's name in reagent.rollout.templates; null keeps the tokenizer's own."""
    lora: LoraSettings | None = None
    """null trains every weight, and holds them in float32 whatever `dtype` says: a step would be lost in 16 bits."""
    gradient_checkpointing: bool = False
    export_dtype: Literal["float32", "base"] = "float32"
    """Type of the exported weights, adapter merged. `base`: the type of `dtype`, which takes half the room; in bfloat16 about 7 % of what
    was learned is lost."""

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
    """What rolls the policy out. A string in its place is its `server`: `rollout.engine=vllm:http://localhost:8000`."""

    server: str = HF
    """`hf`, in this process, or vLLM's servers: `vllm:URL[,URL…][#model]` (docs/engines.md)."""
    adapters: str | None = None
    """vllm: the run's folder `adapters` as the server sees it; null: under the same path as here."""
    timeout_s: Positive = 600.0
    """vllm: of one turn."""
    patience_s: NotNegative = 600.0
    """vllm: how long a row asks again where no server answers: longer than one takes to be started again."""
    max_gap: Positive | None = 0.5
    """Training stops, and nothing is learned, where what a server says of its tokens and what the training forward says differ
    by more nats a token on average: it has other weights, or another precision."""
    max_start_gap: Positive | None = 0.1
    """The same before the first row of a training or an evaluation, of some short texts: no rounding is as large, but a policy and the
    one that it was trained from may be."""
    max_batch_tokens: Count | None = None
    """hf; null leaves it to the engine. Tokens (prompts and turns) whose keys and values are held at once; more rows wait."""

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
        """Whether another process samples, whose numbers are not those of the training forward."""
        return self.server != HF

    @property
    def chosen(self) -> dict[str, Any]:
        """Memory of `hf`, as far as it is set."""
        return {} if self.max_batch_tokens is None else {"max_batch_tokens": self.max_batch_tokens}


class RolloutConfig(Section):
    """How episodes are made."""

    tasks_per_update: Count = 16
    group_size: Count = 4
    """Episodes of each task; the group that group methods compare."""
    dynamic_sampling: Whole = 0
    """Group methods: up to so many further batches of tasks are drawn for an update, until it has `tasks_per_update` groups whose
    episodes earned differently; the others teach nothing, and are left out (DAPO, 2503.14476). 0: off."""
    max_turns: Count = 8
    """This and the two below: of a benchmark by name what it asks for (`reagent tasks`), where the config says nothing."""
    max_new_tokens: Count = 64
    """Most tokens of one turn; a turn that it cuts is no answer."""
    max_episode_tokens: Count = 768
    max_observation_tokens: Whole = 256
    env_timeout_s: Positive = 300.0
    """For an environment's reset or step; tools have time-outs of their own."""
    temperature: Positive = 0.8
    """Above 0: what is learned from must have been sampled. At 1 small policies slip in every other episode and learn from their slips;
    below 0.7 attempts at a task hardly differ."""
    template_options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the chat template, for every turn: `{enable_thinking: false}` (Qwen3, GLM-4.5), `{thinking: true}`
    (DeepSeek-V3.1), `{reasoning_effort: low}` (GPT-OSS). One that the template never reads is an error. Texts of a judge that the
    policy learns are put in it likewise."""
    engine: EngineConfig = Field(default_factory=EngineConfig)
    max_lag: int = Field(default=0, ge=0, le=1)
    """1: an update's episodes are played while the one before is learned, on weights that are one update old (not where an
    evaluation or a checkpoint comes between). Pays where playing and learning need not share the hardware; `hf` then holds a
    second copy of what is trained."""

    @property
    def is_off_policy(self) -> bool:
        """Whether episodes may be sampled from other numbers than those of the training forward: elsewhere, or before."""
        return self.engine.is_remote or self.max_lag > 0

    @property
    def limits(self) -> dict[str, Any]:
        """What ends an episode, what is cut, and what its chat template is told, as `reagent.rollout.rollout.rollout` takes
        it."""
        names = ("max_turns", "max_episode_tokens", "max_observation_tokens", "env_timeout_s", "template_options")
        return {name: getattr(self, name) for name in names}

    def sampling(self, *, seed: int, temperature: float | None = None) -> SamplingParams:
        """How one turn is sampled; `temperature` in place of the training's."""
        chosen = self.temperature if temperature is None else temperature
        return SamplingParams(max_new_tokens=self.max_new_tokens, temperature=chosen, seed=seed)


class OptimConfig(Section):
    """One update's optimisation."""

    learning_rate: NotNegative = 1e-4
    """For LoRA, whose best rate is some ten times that of all weights (1e-5 to 1e-6 where `policy.lora` is null)."""
    value_learning_rate: NotNegative | None = None
    """Of the value head; null: the policy's."""
    lr_schedule: Literal["constant", "linear"] = "constant"
    warmup_updates: Whole = 5
    """Updates in which the rate rises to its full: Adam's first steps are as large as the rate, whatever the gradient, and a policy that they
    throw off its format earns nothing to find back by."""
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
    """Read what a group's attempts begin with once for all that are in one forward, not once for each (`reagent.train.prefixes`): the same to rounding,
    and faster where attempts at a task are many and its prompt is long beside them. For models of full attention."""


class LossConfig(Section):
    """The objective. `action_mask` and `advantage_mask` off are ablations (DESIGN: neither mask, no advantage mask)."""

    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    dual_clip: float | None = Field(default=None, gt=1, allow_inf_nan=False)
    """Bounds the loss of a token with a negative advantage A by −dual_clip · A (3 is usual); null: off."""
    importance_cap: Positive | Literal["auto"] | None = "auto"
    """Weighs tokens with π_train/π_rollout, at most this much, where episodes are sampled from other numbers than the training forward's;
    null: off. `auto`: 2 where `rollout.engine` is a server, `rollout.max_lag` is 1, or the policy computes in 16 bits (decoding and the
    training forward then differ by some 0.03 nats a token: `logprob_gap_mean`), else off."""
    aggregation: Literal["token-mean", "sequence-mean"] = "token-mean"
    vf_coef: NotNegative = 0.5
    vf_clip: Positive | None = 0.2
    entropy_coef: NotNegative = 0.0
    kl_coef: NotNegative = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    gamma: Share = 1.0
    gae_lambda: Share = 0.95
    """Per token. Of episodes of some 70 action tokens 0.95^70 leaves nothing of the outcome at their start: 1.0 suits short ones (lab)."""
    bootstrap: bool = False
    """PPO: where the turn limit cut an episode off, V of the state it ended in, the last observation read, stands for what was still to
    come, not 0. An episode without room for that observation has 0."""
    whiten: bool = True
    """PPO and REINFORCE++: whiten advantages over all action tokens of all processes."""
    advantage_scale: Literal["group", "batch", "none"] = "none"
    """GRPO: what a group's centred returns are divided by. The group's own deviation makes one success in eight count as much as four, and
    a difference in a process reward alone as much as one in success; undivided, twice as many answers were right in our trainings
    (docs/decisions.md, ADR 25)."""
    credit: Literal["episode", "turn"] = "episode"
    """Group methods: compare whole episodes, or every turn's reward-to-go (for environments with process rewards)."""
    action_mask: bool = True
    advantage_mask: bool = True


class EvalConfig(Section):
    """Evaluation on held-out tasks during training and by `reagent eval`."""

    first: bool = True
    """Evaluate the untrained policy too, before its first update."""
    every: Whole = 0
    """Updates between evaluations; 0: only after the last."""
    samples: Count = 1
    """Episodes of each task (for pass@k)."""
    temperature: NotNegative = 0.0
    sampled: Whole = 1
    """Where `temperature` is 0: further attempts at each task at `rollout.temperature`, for `sampled_success`; 0: none."""


class GateConfig(Section):
    """Whether the tasks can be learned by rewards is measured before the first update (`reagent.train.probe`). A string in its place is
    its `action`: `gate=off`."""

    action: Literal["off", "warn", "stop"] = "warn"
    """`stop`: a policy that hardly learns ends the run before its first update."""
    tasks: Count = 100
    """Training tasks, the first so many."""
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


class DistilRunConfig(Section):
    """`reagent distil`: one round of supervised learning on what was chosen among the policy's own attempts."""

    tasks: Count = 256
    """Of the training tasks, the first so many."""
    samples: int = Field(default=8, ge=2)
    """Attempts at each, of which one is chosen."""
    temperature: Positive | None = None
    """They are sampled at; null: `rollout.temperature`."""
    by: Literal["judge", "weighted", "majority", "longest", "shortest", "random", "oracle"] = "judge"
    """How one is chosen (`rrm.evaluation.choosing`); `judge`, `weighted`: by `feedback.judge`, in `feedback.score_mode`. Only `oracle` uses
    labels."""
    min_score: Share | None = None
    """Learn from a chosen attempt only where the judge gives it as much: else a task that no attempt solved teaches its best
    failure. null: from each."""
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
    """Updates over which learning rate and λ fall; null: the `max_updates` that the run began with, also where it goes on with another."""
    save_every: Count = 10
    sample_episodes: Whole = 2
    """Episodes of each update written to episodes.jsonl."""
    report_to: list[str] = Field(default_factory=list)
    """Trackers by accelerate's names: tensorboard, wandb, trackio."""
    cpu: bool = False
    threads: Count | None = None
    mixed_precision: Literal["no", "bf16"] = "no"
    sharding: Sharding = "none"
    """Several processes: `none`, each holds the whole policy (DDP); `fsdp`, each a part of its weights, gradients and optimiser state
    (FSDP2, docs/agents.md). The same losses either way; a run may be continued under the other, and on another number of processes."""
    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    optim: OptimConfig = Field(default_factory=OptimConfig)
    loss: LossConfig = Field(default_factory=LossConfig)
    feedback: FeedbackConfig = Field(default_factory=FeedbackConfig)
    eval: EvalConfig = Field(default_factory=EvalConfig)
    gate: GateConfig = Field(default_factory=GateConfig)
    distil: DistilRunConfig = Field(default_factory=DistilRunConfig)
    guards: GuardsConfig = Field(default_factory=GuardsConfig)

    @model_validator(mode="before")
    @classmethod
    def _limits_of_the_task(cls, value: Any) -> Any:
        """What a registered benchmark gives an episode (`reagent.tasks.base.TaskLimits`) is the default of `rollout`."""
        environment = value.get("environment") if isinstance(value, dict) else None
        name = environment.get("name") if isinstance(environment, dict) else getattr(environment, "name", None)
        if name not in TASKS or not isinstance(rollout := value.get("rollout") or {}, dict):
            return value
        limits = cast(type[Benchmark], find_environment(name)).limits
        given = {
            "max_turns": limits.turns,
            "max_new_tokens": limits.new_tokens,
            "max_episode_tokens": limits.episode_tokens,
        }
        return {**value, "rollout": {**given, **rollout}}

    @model_validator(mode="after")
    def _group_methods_need_groups(self) -> AgentConfig:
        if self.algorithm in GROUP_METHODS and self.rollout.group_size < 2:
            raise ValueError(f"algorithm={self.algorithm} compares episodes of one task: set rollout.group_size ≥ 2")
        if self.rollout.dynamic_sampling and self.algorithm not in GROUP_METHODS:
            raise ValueError(
                f"rollout.dynamic_sampling leaves out groups that teach nothing by comparison, and algorithm={self.algorithm} compares "
                f"none: set it to 0, or take one of {', '.join(GROUP_METHODS)}"
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
        """Updates over which schedules run."""
        return self.schedule_updates or self.max_updates

    @property
    def importance_cap(self) -> float | None:
        """`loss.importance_cap` as it holds here; None: off."""
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
    """Overrides that empty the file's options for its environment, where another one is named: they are not that one's."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return []  # `read_config` says what is wrong
    held = tree.get("environment") if isinstance(tree, dict) else None
    named = [value for key, _, value in (o.partition("=") for o in overrides) if key == "environment.name"]
    own = held.get("name", EnvironmentConfig().name) if isinstance(held, dict) else None
    if not isinstance(held, dict) or not named or named[-1] == own:
        return []
    dropped = {key: held[key] for key in ("options", "train", "eval") if held.get(key)}
    given = {o.partition("=")[0] for o in overrides}
    options, kept = dropped.get("options"), held.get("rewards") or {}
    rewards = (
        options.pop("rewards", None) if isinstance(options, dict) else None
    )  # the run's, as earlier versions wrote them
    kept = {**kept, **rewards} if isinstance(rewards, dict) and isinstance(kept, dict) else kept
    if unsaid := [
        f"environment.{key}={value}" for key, value in dropped.items() if value and f"environment.{key}" not in given
    ]:
        log.warning("environment.name=%s: left out what is meant for %r: %s", named[-1], own, ", ".join(unsaid))
    if kept and "environment.rewards" not in given:
        log.warning(
            "environment.name=%s: earns what the config says for %r, too: environment.rewards=%s", named[-1], own, kept
        )
    emptied = [f"environment.{key}={{}}" for key in dropped]
    return [*emptied, f"environment.rewards={json.dumps(kept)}"] if rewards else emptied


def load_agent_config(name: str, overrides: Sequence[str] | None = None) -> AgentConfig:
    """Read a config by shipped name (configs/agents) or path and apply `a.b=c` overrides.

    `environment.name` of another environment leaves out the file's `environment.options`, `train` and `eval`, and keeps `rewards`. Raises
    ConfigError: as `rrm.config.read_config`.
    """
    path = find_config(name, "agents")
    return read_config(path, AgentConfig, [*_other_environment(path, overrides or ()), *(overrides or ())])
