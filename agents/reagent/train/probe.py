"""`reagent probe` and the gate of `reagent train`: can rewards teach a policy these tasks?

Comparisons teach only where attempts at a task differ. The bounds are from trainings with small language models (docs/agents.md)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from accelerate import Accelerator

from reagent.env.task import Task
from reagent.rollout.attempts import plan
from reagent.rollout.episode import Episode
from reagent.tasks.environments import make_environment
from reagent.train.config import AgentConfig, GateConfig
from reagent.train.engine import close
from reagent.train.evaluate import EpisodeRunner, load_player, shared
from reagent.train.metrics import episode_metrics, mean
from reagent.train.warm_start import split_tasks, warm_started
from rrm.data.seeds import derive_seed

SUCCESS = (0.2, 0.6)
LIVE_GROUPS, HEADROOM = 0.6, 0.15
"""Least share of groups whose rewards differ; least lead of the best attempt over greedy decoding."""
TRUNCATED, MALFORMED = 0.1, 0.2
"""Shares of cut turns and malformed calls above which they are a likely cause."""


@dataclass(frozen=True)
class Probe:
    """Figures of the untrained policy; NaN for tasks that nobody can grade."""

    tasks: int
    samples: int
    greedy: float
    sampled: float
    best: float
    live_groups: float
    truncated: float
    """Share of cut turns, or of episodes that a limit ended, whichever is more."""
    malformed: float
    """Share of turns with a call that cannot be read."""
    turn_tokens: float

    @property
    def learnable(self) -> bool | None:
        """True where all bounds hold; None where no outcome is known."""
        return None if math.isnan(self.sampled) else not self.changes

    @property
    def changes(self) -> list[str]:
        """Obstacles to learning, each with its remedy."""
        texts = []
        if self.truncated > TRUNCATED:
            texts.append(
                f"{self.truncated:.0%} of turns or episodes are cut: raise rollout.max_new_tokens, max_turns or max_episode_tokens"
            )
        if self.malformed > MALFORMED:
            texts.append(
                f"{self.malformed:.0%} of turns hold a tool call that cannot be read: set environment.options.parser or tool_prompt as the model "
                "was taught, or begin with demonstrations"
            )
        low, high = SUCCESS
        if self.sampled < low:
            texts.append(
                f"sampled success is {self.sampled:.2f}, below {low}: take easier tasks, a stronger model, or demonstrations first"
            )
        if self.sampled > high:
            texts.append(f"sampled success is {self.sampled:.2f}, above {high}: take harder tasks")
        if self.live_groups < LIVE_GROUPS:
            texts.append(
                f"rewards differ in {self.live_groups:.0%} of groups, fewer than {LIVE_GROUPS:.0%}: raise rollout.group_size or "
                "rollout.temperature, or take tasks of middling difficulty"
            )
        if self.best < self.greedy + HEADROOM:
            texts.append(
                f"the best of {self.samples} samples solves {self.best:.2f} of the tasks and greedy decoding {self.greedy:.2f}: there is "
                "little for rewards to find; raise rollout.temperature or take another model"
            )
        return texts

    @property
    def verdict(self) -> str:
        if self.learnable is None:
            return (
                "no attempt at these tasks has a known outcome, so nothing is known of what rewards can teach: give some of them an answer, "
                "or see in the log why their environment fails"
            )
        summary = (
            f"sampled success {self.sampled:.2f} (greedy {self.greedy:.2f}, best of {self.samples} {self.best:.2f})"
        )
        if self.learnable:
            return f"learnable: {summary}, rewards differ in {self.live_groups:.0%} of groups"
        return f"hardly learnable: {summary}. " + "; ".join(self.changes)

    def figures(self) -> dict[str, Any]:
        values = {name: None if value != value else value for name, value in vars(self).items()}
        return {**values, "learnable": self.learnable, "verdict": self.verdict}


def measured(sampled: Sequence[Episode], greedy: Sequence[Episode], samples: int) -> Probe:
    """The figures of `samples` sampled episodes and one greedy episode of each task."""
    groups: dict[str, list[Episode]] = {}
    for episode in sampled:
        groups.setdefault(episode.group_id, []).append(episode)
    graded = {name: attempts for name, attempts in groups.items() if any(e.success is not None for e in attempts)}
    graded_groups = graded.values()
    rewards = [{round(_earned(e), 9) for e in attempts if e.reward is not None} for attempts in graded_groups]
    figures = episode_metrics([*sampled])
    ended = figures["episode/token_limit"] + figures["episode/turn_limit"]
    return Probe(
        tasks=len(groups),
        samples=samples,
        greedy=mean([float(e.success or 0) for e in greedy if e.group_id in graded]),
        sampled=mean([mean([float(e.success or 0) for e in attempts]) for attempts in graded_groups]),
        best=mean([float(any(e.success for e in attempts)) for attempts in graded_groups]),
        live_groups=mean([float(len(values) > 1) for values in rewards]),
        truncated=max(figures["episode/cut_turns"], ended),
        malformed=figures["episode/malformed_turns"],
        turn_tokens=figures["episode/turn_tokens"],
    )


def _earned(episode: Episode) -> float:
    """The reward without `rollout.overlong`: lengths alone make no group differ."""
    return (episode.reward or 0.0) - sum(turn.info.get("overlong", 0.0) for turn in episode.turns)


def probe(
    play: EpisodeRunner, tasks: Sequence[Task], gate: GateConfig, accelerator: Accelerator | None = None
) -> tuple[Probe, list[Episode]]:
    """Sample and decode the first `gate.tasks` tasks; returns figures and episodes, sampled ones first."""
    chosen, config = list(tasks[: gate.tasks]), play.config
    seed = derive_seed(config.seed, "probe") % 2**32
    hot = replace(play, temperature=config.rollout.temperature, seed=seed)
    sampled = shared(plan(chosen, gate.samples), hot, accelerator)
    greedy = shared(plan(chosen), replace(play, temperature=0.0, seed=seed), accelerator)
    return measured(sampled, greedy, gate.samples), [*sampled, *greedy]


def probe_config(config: AgentConfig) -> tuple[Probe, list[Episode]]:
    """`probe` of a config's own policy and training tasks. Raises RRMError, ConfigError."""
    env_factory, tasks, _ = make_environment(config.environment, config.seed)
    tasks, shown = split_tasks(tasks, config.warm_start)
    player = load_player(config.model_copy(update={"policy": warm_started(config, env_factory, shown)}))
    try:
        return probe(player, tasks, config.gate)
    finally:
        close(player.engine)
