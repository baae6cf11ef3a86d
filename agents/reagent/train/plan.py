"""`reagent train --plan`: memory, tokens, FLOPs and time of a training, before any weight is loaded.

    plan(config, device="cuda", processes=8)                     memory, tokens, FLOPs
    plan(config, like=Path("runs/smollm2"), ...)                 and seconds, from that run's measured tokens/s

The policy is counted without storage (`reagent.train.memory_model`). Memory is an upper estimate: the largest micro-batch and
episodes that the config allows, or that a measured run's episodes suggest. Left out: what a GPU's allocator holds beyond, the
libraries (some 0.5 GB a process), tokenised texts, and a judge in the same process. Learning is counted with its padding
(`reagent.train.padding_estimate`), at one speed whatever a micro-batch's size.
"""

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reagent.train.config import AgentConfig
from reagent.train.memory_model import Shape
from reagent.train.padding_estimate import Padded, padded, spread_of
from rrm.engines.hf.host_memory import mallocs_with_glibc
from rrm.errors import RRMError

LOGITS_CHUNK = 1024
"""Masked tokens whose logits are held at once (`reagent.algorithms.logprobs.token_logprobs`)."""
LOGITS_COPIES = 4
"""Copies of a chunk at once: in the forward three more (entropy), in the backward two gradients."""
GLIBC_LOSS = 0.6
"""Share of the activations that glibc's malloc cannot reuse on the CPU under an adapter.
Measured with SmolLM2 and LoRA: 0.5 to 0.7; 0 where every weight is trained or with jemalloc (docs/decisions.md, ADR 12)."""
ADAMW_STATES = 2
PROMPT_SHARE = 0.5
"""Share of an episode's limit taken as sampled tokens, without a measured run."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one process at its two peaks, for episodes as long as the config allows."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    copy: int
    """Copy of the trained (if sharded: all) weights, for `rollout.max_lag=1` in this process."""
    gathered: int
    """Weights and gradients gathered under `sharding: fsdp`: two layers, and all outside of layers."""
    activations: int
    recomputed: int
    logits: int
    masks: int
    allocator: int
    kv: int
    """Keys and values of the episodes at play, where the engine is in this process."""
    sent: int
    """Weights on their way to servers, at each update, on the first process's host."""

    @property
    def standing(self) -> int:
        return self.weights + self.optimizer + self.reference + self.copy

    @property
    def update(self) -> int:
        transient = self.activations + self.recomputed + self.logits + self.masks + self.allocator
        return self.standing + self.gradients + self.gathered + transient

    @property
    def rollout(self) -> int:
        return self.standing + self.kv


@dataclass(frozen=True)
class UpdateWork:
    episodes: int
    """Played and learned from, second attempts included."""
    stages: int
    sampled: float
    tokens: float
    """All tokens of the episodes: prompts, outputs, observations."""
    forwards: int
    """Forwards over all tokens without gradients: old log-probabilities, reference."""
    padded: Padded
    draws: int
    """Most times that so many episodes are played (`rollout.dynamic_sampling`)."""
    flops: float
    """Padding included: 2 a parameter and token forward, 4 backward (2 with an adapter), attention too."""


@dataclass(frozen=True)
class Speed:
    """Measured speed of a run; playing takes steps, each a token of every row, and tokens' forwards."""

    run: str
    processes: int
    rollout: float
    """Sampled tokens a second at play, of all processes."""
    update: float
    """FLOPs a second of the update, padding included, of each process."""
    step: float
    """Seconds of sampling a token of every row, beyond the rows' own tokens."""
    sampled: float
    tokens: float
    """Mean tokens an episode: sampled, and of all kinds."""
    spread: float | None = None
    """Their standard deviation; None where it was not measured."""


@dataclass(frozen=True)
class TrainingPlan:
    parameters: int
    trained: int
    memory: Memory
    work: UpdateWork
    speed: Speed | None
    seconds: dict[str, float] | None


def plan(config: AgentConfig, *, processes: int = 1, device: str = "cpu", like: Path | None = None) -> TrainingPlan:
    """Plan a config's training. Raises RRMError: there is no such model, or `like` was not measured.

    Args:
        processes: that share tasks and, with sharding, weights.
        device: whose kernels are assumed: `cpu` or `cuda`; it need not be there.
        like: a finished run's folder, for tokens an episode, tokens/s and FLOPs/s.
    """
    shape = Shape.of(config, device)
    measured = None if like is None else speed_of(like, device)
    work = work_of(config, shape, measured, processes)
    memory = memory_of(config, shape, processes, device, work.padded.widest)
    seconds = None if measured is None else seconds_of(config, shape, work, measured, processes)
    return TrainingPlan(shape.parameters, shape.trained, memory, work, measured, seconds)


def memory_of(config: AgentConfig, shape: Shape, processes: int, device: str, widest: float) -> Memory:
    """Bytes on one process, whose largest micro-batch has `widest` tokens."""
    rollout = config.rollout
    here = not rollout.engine.is_remote
    trains_all = config.policy.lora is None
    rows = rollout.tasks_per_update * rollout.group_size // processes
    from rrm.engines.hf.engine import KEPT_BYTES

    slot_tokens = held_at_once(config)
    at_play = rows * rollout.max_episode_tokens * shape.kv_token_bytes
    share = widest / shape.kept_tokens  # what is kept grows with the tokens, or faster: of narrower rows it is no more
    chunk = min(LOGITS_CHUNK, int(widest))
    activations = int(share * shape.kept)
    sharded = config.sharding == "fsdp" and processes > 1
    shards = processes if sharded else 1
    copied = shape.weight_bytes if sharded else shape.trained_bytes if rollout.max_lag else 0
    return Memory(
        weights=shape.weight_bytes // shards,
        gradients=shape.trained_bytes // shards,
        optimizer=ADAMW_STATES * shape.trained_bytes // shards,
        reference=shape.weight_bytes // shards if trains_all and has_reference(config) else 0,
        copy=copied if here else 0,
        gathered=shape.outside_bytes + 2 * shape.layer_bytes if sharded else 0,
        activations=activations,
        recomputed=int(share * shape.kept_a_layer),
        logits=LOGITS_COPIES * chunk * shape.vocabulary * 4 + shape.wide_head,
        masks=_masks(config, widest) if config.optim.share_prefixes else 0,
        allocator=int(GLIBC_LOSS * activations) if not trains_all and device == "cpu" and mallocs_with_glibc() else 0,
        kv=min(at_play, slot_tokens * shape.kv_token_bytes) + min(at_play, KEPT_BYTES) if here else 0,
        sent=0 if here else _sent(config, shape, sharded),
    )


def held_at_once(config: AgentConfig) -> int:
    from rrm.engines.hf.engine import MAX_BATCH_TOKENS

    return config.rollout.engine.max_batch_tokens or MAX_BATCH_TOKENS


def has_reference(config: AgentConfig) -> bool:
    guard = config.guards.kl
    return config.loss.kl_coef > 0 or (guard.max is not None and guard.action != "none")


def _masks(config: AgentConfig, widest: float) -> int:
    half = config.mixed_precision == "bf16" or (config.policy.lora is not None and config.policy.dtype != "float32")
    return int(widest) ** 2 * (1 + (2 if half else 4))


def _sent(config: AgentConfig, shape: Shape, sharded: bool) -> int:
    """Copies of a sync: divided weights, and all in 16 bits where those compute."""
    trains_all = config.policy.lora is None
    size = shape.weight_bytes if trains_all else shape.trained_bytes
    return size * sharded + (size // 2 if trains_all and config.mixed_precision == "bf16" else 0)


def work_of(config: AgentConfig, shape: Shape, measured: Speed | None, processes: int = 1) -> UpdateWork:
    rollout, stages = config.rollout, stages_of(config)
    episodes = rollout.tasks_per_update * rollout.group_size * stages
    tokens = rollout.max_episode_tokens if measured is None else min(measured.tokens, rollout.max_episode_tokens)
    most = rollout.max_turns * rollout.max_new_tokens
    sampled = min(most, PROMPT_SHARE * tokens) if measured is None else min(measured.sampled, most)
    forwards = forwards_of(config)
    rows = max(episodes // processes, 1)
    padding = padded(config, rows, tokens, None if measured is None else measured.spread)
    return UpdateWork(
        episodes=episodes,
        stages=stages,
        sampled=episodes * sampled,
        tokens=episodes * tokens,
        forwards=forwards,
        padded=padding,
        draws=1 + rollout.dynamic_sampling,
        flops=processes * update_flops(config, shape, rows, padding, sampled, forwards),
    )


def stages_of(config: AgentConfig) -> int:
    from reagent.feedback.modes import SecondAttempts
    from reagent.train.build_feedback import MODES

    return 1 + issubclass(MODES[config.feedback.mode], SecondAttempts)


def forwards_of(config: AgentConfig) -> int:
    """Forwards of all episodes without gradients, as `Learner.prepare` makes them."""
    steps = config.optim.epochs * config.optim.minibatches
    kl_in_reward = config.loss.kl_coef > 0 and config.algorithm == "reinforce++"
    old = config.algorithm == "ppo" or steps > 1 or kl_in_reward or config.rollout.is_off_policy
    return int(old) + int(has_reference(config))


def update_flops(config: AgentConfig, shape: Shape, rows: int, padding: Padded, sampled: float, forwards: int) -> float:
    """FLOPs of one process's update: body on all tokens, head on sampled ones, attention."""
    head = shape.vocabulary * shape.hidden
    forward = forward_flops(config, shape, padding.learning / rows, sampled)
    own = 2 * shape.trained * padding.learning / rows  # gradients of an adapter's weights; the frozen ones' have none
    backward = forward + (own if config.policy.lora is not None else forward)
    again = forward if config.policy.gradient_checkpointing else 2 * head * sampled
    before = forward_flops(config, shape, padding.forwards / rows, sampled)
    return rows * (config.optim.epochs * (forward + backward + again) + forwards * before)


def forward_flops(config: AgentConfig, shape: Shape, tokens: float, sampled: float) -> float:
    """FLOPs of one episode of `tokens` forward, adapter included, the head on the `sampled` ones alone."""
    head = shape.vocabulary * shape.hidden
    body = shape.parameters - head * (1 if shape.tied else 2)
    return 2 * (body * tokens + head * sampled) + 2 * shape.layers * shape.heads_by_size * tokens**2


def seconds_of(config: AgentConfig, shape: Shape, work: UpdateWork, speed: Speed, processes: int) -> dict[str, float]:
    """Seconds of an update at `speed`; processes share its rows evenly."""
    each = work.episodes / processes
    own = each * forward_flops(config, shape, work.tokens / work.episodes, work.sampled / work.episodes) / speed.update
    here = not config.rollout.engine.is_remote
    batches = each / work.stages * work.tokens / work.episodes / held_at_once(config) if here else 0.0
    steps = work.stages * work.sampled / work.episodes * max(batches, 1.0)  # rows that do not fit wait for the others
    return {"rollout": steps * speed.step + own, "update": work.flops / processes / speed.update}


def speed_of(folder: Path, device: str) -> Speed:
    """Speed of a run, medians over its updates but the first. Raises RRMError: not a run, or too short."""
    from reagent.train.config import load_agent_config

    metrics, config = folder / "metrics.jsonl", folder / "config.yaml"
    if not metrics.is_file() or not config.is_file():
        raise RRMError(f"{folder} is no run of reagent train: it has no config.yaml and metrics.jsonl")
    rows: list[Mapping[str, Any]] = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()][1:]
    if not rows:
        raise RRMError(f"{folder} made fewer than two updates, of which the first is not counted: train on")
    settings = load_agent_config(str(config))
    shape = Shape.of(settings, device)

    def middle(key: str, missing: float | None = None) -> float:
        return statistics.median(float(row[key] if missing is None else row.get(key, missing)) for row in rows)

    processes, stages = int(rows[0].get("processes", 1)), stages_of(settings)
    first = settings.rollout.tasks_per_update * settings.rollout.group_size
    learned = middle("learned/rows", first)
    second = max(learned - first, 0.0) if stages > 1 else 0.0
    draws = middle("sampling/tasks", settings.rollout.tasks_per_update) / settings.rollout.tasks_per_update
    played, busy, taken = first + second, middle("time/rollout_busy_s") / draws, middle("time/update_s")

    def mean(key: str) -> float:
        return (first * middle(f"episode/{key}") + second * middle(f"refined/{key}", 0.0)) / played

    sampled, tokens, spread = mean("action_tokens"), mean("tokens"), None
    if all("episode/longest_tokens" in row for row in rows):
        longest = max(middle("episode/longest_tokens"), middle("refined/longest_tokens", 0.0) * (second > 0))
        spread = spread_of(tokens, longest, int(played))
    each = max(int(played) // processes, 1)
    padding = padded(settings, each, tokens, spread)
    update = update_flops(settings, shape, each, padding, sampled, forwards_of(settings)) / taken
    own = played / processes * forward_flops(settings, shape, tokens, sampled) / update
    step = max(busy - own, 0.0) / max(sampled * (1 + (second > 0)), 1.0)
    return Speed(str(folder), processes, middle("time/rollout_tokens_per_s"), update, step, sampled, tokens, spread)


GIB = 2**30


def plan_rows(training: TrainingPlan) -> list[tuple[str, str]]:
    memory, work = training.memory, training.work
    parts = {
        "weights": memory.weights, "gradients": memory.gradients, "optimiser": memory.optimizer, "reference": memory.reference,
        "copy that plays": memory.copy, "gathered shards": memory.gathered, "activations": memory.activations, "one layer again": memory.recomputed,
        "logits": memory.logits, "masks of shared prefixes": memory.masks, "lost by glibc's malloc (LD_PRELOAD jemalloc: none)": memory.allocator, "keys and values": memory.kv,
    }  # fmt: skip
    share = f"{training.trained / training.parameters:.1%}"
    episodes = f"{work.episodes} episodes, {work.tokens:,.0f} tokens, {work.sampled:,.0f} of them sampled"
    if training.speed is None:
        episodes = (
            f"{work.episodes} episodes, at most {work.tokens:,.0f} tokens (none is longer than rollout.max_episode_tokens), "
            f"{work.sampled:,.0f} of them taken as sampled"
        )
    if work.draws > 1:
        episodes += (
            f"; up to {work.draws} times as many are played until enough groups differ (rollout.dynamic_sampling)"
        )
    rows = [("parameters", f"{training.parameters:,}, {training.trained:,} of them trained ({share})")]
    rows += [(f"memory: {name}", f"{size / GIB:.2f} GiB") for name, size in parts.items() if size]
    if memory.sent:
        rows.append(
            (
                "memory of the first process's host at a sync",
                f"{memory.sent / GIB:.2f} GiB, of weights that go to the servers",
            )
        )
    rows += [
        ("memory at the peak of an update", f"some {memory.update / GIB:.2f} GiB a process, and the libraries' own"),
        ("memory at the peak of a rollout", f"some {memory.rollout / GIB:.2f} GiB a process, and the libraries' own"),
        ("an update", episodes),
        ("FLOPs of learning from it", f"{work.flops:.3g}, with {work.forwards} forwards before the first step"),
    ]
    if training.speed is None or training.seconds is None:
        return [
            *rows,
            ("time", "unknown without a measured run of this machine: name one (--like RUN; two updates are enough)"),
        ]
    seconds, speed, estimate = training.seconds, training.speed, work.padded
    times = f" a draw, of at most {work.draws}" if work.draws > 1 else ""
    padding = (
        "not counted: the measured run does not say how much its episodes differ in length"
        if speed.spread is None
        else f"{1 - estimate.own / estimate.learning:.0%} of the tokens learned from, the largest micro-batch some {estimate.widest:,.0f}"
    )
    rows += [
        ("padding", padding),
        (
            "measured",
            f"{speed.run}: {speed.rollout:,.0f} sampled tokens/s, {speed.update / 1e9:,.1f} GFLOP/s learning on each of {speed.processes}",
        ),
        ("time of an update", f"{seconds['rollout']:,.1f} s at play{times}, {seconds['update']:,.1f} s learning"),
    ]
    return rows
