"""`reagent train --plan`: what a training will hold, read and take, before any weight is loaded.

    plan(config, device="cuda", processes=8)                     memory, tokens, FLOPs
    plan(config, like=Path("runs/smollm2"), ...)                 and seconds, from that run's measured tokens/s

The policy is counted without storage (`reagent.train.memory_model`). Tokens are those of the config's limits, or of a run that was measured;
speed is always that of a run that was measured.

Memory is an estimate from above: the largest micro-batch and episodes that the config allows, or the largest micro-batch that is to be
expected of a measured run's episodes. What is left out: what a GPU's allocator holds beyond what is asked of it, the libraries themselves
(some 0.5 GB a process), tokenised texts, and a judge in the same process. Learning is counted with its padding (`reagent.train.padding_estimate`),
and at one speed whatever a micro-batch's size: that 6 rows may take longer a token than 2, as they fit a CPU's cache less well (16 % with
SmolLM2 and LoRA on one machine), is that machine's own and is left out.
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
"""Of a chunk, at once: forward the logits and, for the entropy, three of their size; backward the logits, their softmax, two gradients."""
GLIBC_LOSS = 0.6
"""Of the activations, what glibc's malloc holds besides on the CPU under an adapter: blocks that were freed between kept ones and, as
PyTorch asks for aligned memory, do not fit the next layer's of the same size. Measured with SmolLM2 and LoRA: 0.5 in trainings, 0.7 of a
lone micro-batch; nothing where every weight is trained, and nothing with an allocator that serves sizes apart (docs/decisions.md, ADR 12)."""
ADAMW_STATES = 2
"""Moments a trained parameter has, in its own precision."""
PROMPT_SHARE = 0.5
"""Of an episode's limit, what its tokens are taken for without a measured run: sampled ones half, all others the rest."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one process, at the two moments that need most, for episodes at play as long as the config allows."""

    weights: int
    """The policy's, as they are held; a share of them where they are sharded."""
    gradients: int
    optimizer: int
    reference: int
    """A frozen copy of a policy that is trained whole, for KL; 0 with an adapter."""
    copy: int
    """Of what is trained, for `rollout.max_lag=1` in this process; of all weights, where they are sharded and this process plays."""
    gathered: int
    """With `sharding: fsdp`: what lies outside of the layers and two layers, whole, and the gradients of what of that is trained."""
    activations: int
    """What autograd keeps of the largest micro-batch."""
    recomputed: int
    """Of one layer, where activations are computed again."""
    logits: int
    masks: int
    """With `optim.share_prefixes`: what each token of a micro-batch's packs sees of its pack, in the type that computes and in bytes."""
    allocator: int
    """What malloc cannot use again (`GLIBC_LOSS`); 0 on a GPU, whose allocator is torch's."""
    kv: int
    """Keys and values of the episodes at play, where the engine is in this process: in its slots, and kept while tools run."""
    sent: int
    """On the first process's host at each update, of weights on their way to servers: gathered, and in the precision they are sent in."""

    @property
    def standing(self) -> int:
        """Held all along."""
        return self.weights + self.optimizer + self.reference + self.copy

    @property
    def update(self) -> int:
        """At the peak of an update."""
        kept = self.activations + self.recomputed + self.logits + self.masks + self.allocator
        return self.standing + self.gradients + self.gathered + kept

    @property
    def rollout(self) -> int:
        """At the peak of a rollout."""
        return self.standing + self.kv


@dataclass(frozen=True)
class UpdateWork:
    """What one update is made of, over all processes."""

    episodes: int
    """Played and learned from: twice as many with second attempts, one for each first one."""
    stages: int
    """In which they are played, one after the other: first attempts, second ones."""
    sampled: float
    """Tokens the policy samples."""
    tokens: float
    """All tokens of the episodes: prompts, outputs, observations."""
    forwards: int
    """Of all tokens without gradients: old log-probabilities, reference."""
    padded: Padded
    """Of one process."""
    draws: int
    """Times so many episodes are played at most for the update (`rollout.dynamic_sampling`), one draw after the other; as many are learned from."""
    flops: float
    """Of the update, padding included: 2 a parameter and token forward, 4 backward (2 with an adapter: no gradients of frozen weights), and the
    forwards without gradients; attention's own come to them."""


@dataclass(frozen=True)
class Speed:
    """What a run took, of one of its processes.

    Playing is taken as so many steps, each of which samples a token of every row, and so many tokens that go through the policy:
    more rows at once make a step no longer but for their own tokens.
    """

    run: str
    processes: int
    rollout: float
    """Sampled tokens a second at play, of all processes."""
    update: float
    """FLOPs a second of the update, padding included, of each process."""
    step: float
    """Seconds of sampling a token of every row, beyond what the rows' own tokens take."""
    sampled: float
    """Mean sampled tokens an episode."""
    tokens: float
    """Mean tokens an episode, of all kinds."""
    spread: float | None = None
    """Standard deviation of these; None where it was not measured: one episode an update, or by a version that logged no `longest_tokens`."""


@dataclass(frozen=True)
class TrainingPlan:
    """A training before it is begun."""

    parameters: int
    trained: int
    memory: Memory
    work: UpdateWork
    speed: Speed | None
    seconds: dict[str, float] | None
    """Of one update: `rollout`, `update`; None without a measured run."""


def plan(config: AgentConfig, *, processes: int = 1, device: str = "cpu", like: Path | None = None) -> TrainingPlan:
    """Of a config. Raises RRMError: there is no such model, or `like` was not measured.

    Args:
        processes: that share tasks and, with sharding, weights.
        device: whose kernels are assumed: `cpu` or `cuda`; it need not be there.
        like: a finished run's folder; its tokens an episode and tokens/s are taken, its FLOPs/s for the update.
    """
    shape = Shape.of(config, device)
    measured = None if like is None else speed_of(like, device)
    work = work_of(config, shape, measured, processes)
    memory = memory_of(config, shape, processes, device, work.padded.widest)
    seconds = None if measured is None else seconds_of(config, shape, work, measured, processes)
    return TrainingPlan(shape.parameters, shape.trained, memory, work, measured, seconds)


def memory_of(config: AgentConfig, shape: Shape, processes: int, device: str, widest: float) -> Memory:
    """On one process, whose largest micro-batch has `widest` tokens."""
    rollout = config.rollout
    here = not rollout.engine.is_remote
    whole = config.policy.lora is None
    rows = rollout.tasks_per_update * rollout.group_size // processes
    from rrm.engines.hf.engine import KEPT_BYTES

    held = held_at_once(config)
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
        reference=shape.weight_bytes // shards if whole and has_reference(config) else 0,
        copy=copied if here else 0,
        gathered=shape.outside_bytes + 2 * shape.layer_bytes if sharded else 0,
        activations=activations,
        recomputed=int(share * shape.kept_a_layer),
        logits=LOGITS_COPIES * chunk * shape.vocabulary * 4 + shape.wide_head,
        masks=_masks(config, widest) if config.optim.share_prefixes else 0,
        allocator=int(GLIBC_LOSS * activations) if not whole and device == "cpu" and mallocs_with_glibc() else 0,
        kv=min(at_play, held * shape.kv_token_bytes) + min(at_play, KEPT_BYTES) if here else 0,
        sent=0 if here else _sent(config, shape, sharded),
    )


def held_at_once(config: AgentConfig) -> int:
    """Tokens whose keys and values an engine in this process has in its slots."""
    from rrm.engines.hf.engine import MAX_BATCH_TOKENS

    return config.rollout.engine.max_batch_tokens or MAX_BATCH_TOKENS


def has_reference(config: AgentConfig) -> bool:
    """Whether the policy at the start is asked, too."""
    guard = config.guards.kl
    return config.loss.kl_coef > 0 or (guard.max is not None and guard.action != "none")


def _masks(config: AgentConfig, widest: float) -> int:
    """Of a pack that is a whole micro-batch, as rows of several groups that share a system prompt may be."""
    half = config.mixed_precision == "bf16" or (config.policy.lora is not None and config.policy.dtype != "float32")
    return int(widest) ** 2 * (1 + (2 if half else 4))


def _sent(config: AgentConfig, shape: Shape, sharded: bool) -> int:
    """Copies a sync makes: whole ones of what is divided, and one in 16 bits of all weights, where those are what computes."""
    whole = config.policy.lora is None
    held = shape.weight_bytes if whole else shape.trained_bytes
    return held * sharded + (held // 2 if whole and config.mixed_precision == "bf16" else 0)


def work_of(config: AgentConfig, shape: Shape, measured: Speed | None, processes: int = 1) -> UpdateWork:
    """One update, in the middle of what its limits allow or as long as a measured run's episodes were."""
    rollout, stages = config.rollout, stages_of(config)
    episodes = rollout.tasks_per_update * rollout.group_size * stages
    tokens = rollout.max_episode_tokens if measured is None else min(measured.tokens, rollout.max_episode_tokens)
    most = rollout.max_turns * rollout.max_new_tokens
    sampled = min(most, PROMPT_SHARE * tokens) if measured is None else min(measured.sampled, most)
    forwards = forwards_of(config)
    rows = max(episodes // processes, 1)
    held = padded(config, rows, tokens, None if measured is None else measured.spread)
    return UpdateWork(
        episodes=episodes,
        stages=stages,
        sampled=episodes * sampled,
        tokens=episodes * tokens,
        forwards=forwards,
        padded=held,
        draws=1 + rollout.dynamic_sampling,
        flops=processes * update_flops(config, shape, rows, held, sampled, forwards),
    )


def stages_of(config: AgentConfig) -> int:
    """2 where first attempts are followed by second ones."""
    from reagent.feedback.modes import SecondAttempts
    from reagent.train.build_feedback import MODES

    return 1 + issubclass(MODES[config.feedback.mode], SecondAttempts)


def forwards_of(config: AgentConfig) -> int:
    """Forwards of all episodes without gradients, as `Learner.prepare` makes them."""
    steps = config.optim.epochs * config.optim.minibatches
    kl_in_reward = config.loss.kl_coef > 0 and config.algorithm == "reinforce++"
    old = config.algorithm == "ppo" or steps > 1 or kl_in_reward or config.rollout.is_off_policy
    return int(old) + int(has_reference(config))


def update_flops(config: AgentConfig, shape: Shape, rows: int, held: Padded, sampled: float, forwards: int) -> float:
    """Of one update of a process: matrix products of the body on all tokens and padding, of the head on sampled ones, and attention's."""
    head = shape.vocabulary * shape.hidden
    forward = forward_flops(config, shape, held.learning / rows, sampled)
    own = 2 * shape.trained * held.learning / rows  # gradients of an adapter's weights; the frozen ones' have none
    backward = forward + (own if config.policy.lora is not None else forward)
    again = forward if config.policy.gradient_checkpointing else 2 * head * sampled
    before = forward_flops(config, shape, held.forwards / rows, sampled)
    return rows * (config.optim.epochs * (forward + backward + again) + forwards * before)


def forward_flops(config: AgentConfig, shape: Shape, tokens: float, sampled: float) -> float:
    """Of an episode of so many tokens, an adapter's products among them, the head on the sampled ones alone."""
    head = shape.vocabulary * shape.hidden
    body = shape.parameters - head * (1 if shape.tied else 2)
    return 2 * (body * tokens + head * sampled) + 2 * shape.layers * shape.heads_by_size * tokens**2


def seconds_of(config: AgentConfig, shape: Shape, work: UpdateWork, speed: Speed, processes: int) -> dict[str, float]:
    """Of an update, as `speed` has it; processes share its rows evenly."""
    each = work.episodes / processes
    own = each * forward_flops(config, shape, work.tokens / work.episodes, work.sampled / work.episodes) / speed.update
    here = not config.rollout.engine.is_remote
    held = each / work.stages * work.tokens / work.episodes / held_at_once(config) if here else 0.0
    steps = work.stages * work.sampled / work.episodes * max(held, 1.0)  # rows that do not fit wait for the others
    return {"rollout": steps * speed.step + own, "update": work.flops / processes / speed.update}


def speed_of(folder: Path, device: str) -> Speed:
    """What a run measured, medians over its updates but the first (which warms up). Raises RRMError: there is no such run, or it made fewer
    than two updates."""
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
    held = padded(settings, each, tokens, spread)
    update = update_flops(settings, shape, each, held, sampled, forwards_of(settings)) / taken
    own = played / processes * forward_flops(settings, shape, tokens, sampled) / update
    step = max(busy - own, 0.0) / max(sampled * (1 + (second > 0)), 1.0)
    return Speed(str(folder), processes, middle("time/rollout_tokens_per_s"), update, step, sampled, tokens, spread)


GIB = 2**30


def plan_rows(found: TrainingPlan) -> list[tuple[str, str]]:
    """Rows of (what, how much) for people."""
    memory, work = found.memory, found.work
    parts = {
        "weights": memory.weights, "gradients": memory.gradients, "optimiser": memory.optimizer, "reference": memory.reference,
        "copy that plays": memory.copy, "gathered shards": memory.gathered, "activations": memory.activations, "one layer again": memory.recomputed,
        "logits": memory.logits, "masks of shared prefixes": memory.masks, "lost by glibc's malloc (LD_PRELOAD jemalloc: none)": memory.allocator, "keys and values": memory.kv,
    }  # fmt: skip
    share = f"{found.trained / found.parameters:.1%}"
    episodes = f"{work.episodes} episodes, {work.tokens:,.0f} tokens, {work.sampled:,.0f} of them sampled"
    if found.speed is None:
        episodes = (
            f"{work.episodes} episodes, at most {work.tokens:,.0f} tokens (none is longer than rollout.max_episode_tokens), "
            f"{work.sampled:,.0f} of them taken as sampled"
        )
    if work.draws > 1:
        episodes += (
            f"; up to {work.draws} times as many are played until enough groups differ (rollout.dynamic_sampling)"
        )
    rows = [("parameters", f"{found.parameters:,}, {found.trained:,} of them trained ({share})")]
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
    if found.speed is None or found.seconds is None:
        return [
            *rows,
            ("time", "unknown without a measured run of this machine: name one (--like RUN; two updates are enough)"),
        ]
    seconds, speed, held = found.seconds, found.speed, work.padded
    times = f" a draw, of at most {work.draws}" if work.draws > 1 else ""
    padding = (
        "not counted: the measured run does not say how much its episodes differ in length"
        if speed.spread is None
        else f"{1 - held.own / held.learning:.0%} of the tokens learned from, the largest micro-batch some {held.widest:,.0f}"
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
