"""`reagent probe` and the gate of `reagent train`: whether rewards can teach a policy a task, measured before it is trained.

A method that compares attempts at one task learns only where they differ: from a policy that nearly always fails, or nearly always
succeeds, no optimiser learns. The bounds are those that trainings with small language models rose from (docs/agents.md).
"""

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
from rrm.data.seeds import derive_seed
from rrm.errors import RRMError

SUCCESS = (0.2, 0.6)
"""Sampled success from which trainings rise."""
LIVE_GROUPS, HEADROOM = 0.6, 0.15
"""Least share of groups whose rewards differ, and how far the best of a group's attempts must lie above greedy decoding."""
TRUNCATED, MALFORMED = 0.1, 0.2
"""Shares of cut turns and malformed calls above which they are named as the likely cause."""


class NotLearnable(RRMError):
    """`gate.action=stop`: the policy as it stands can hardly learn the tasks by rewards."""


@dataclass(frozen=True)
class Probe:
    """What sampling the untrained policy showed; figures of tasks that nobody can grade are NaN."""

    tasks: int
    samples: int
    greedy: float
    """Success of greedy decoding at the same tasks, in [0, 1]; as in a sample, an outcome that is not known is none."""
    sampled: float
    """Mean success at `rollout.temperature`."""
    best: float
    """Share of tasks that one of the samples solves."""
    live_groups: float
    """Share of tasks whose samples earned different rewards."""
    truncated: float
    """Share of turns that `rollout.max_new_tokens` cut, or episodes that a limit ended, whichever is more."""
    malformed: float
    """Share of tool calls that could not be read."""
    turn_tokens: float

    @property
    def learnable(self) -> bool | None:
        """Whether all bounds hold; None where no outcome is known: nobody can grade the tasks, or their environment fails."""
        return None if math.isnan(self.sampled) else not self.changes

    @property
    def changes(self) -> list[str]:
        """What keeps the policy from learning, each with what to change."""
        found = []
        if self.truncated > TRUNCATED:
            found.append(
                f"{self.truncated:.0%} of turns or episodes are cut: raise rollout.max_new_tokens, max_turns or max_episode_tokens"
            )
        if self.malformed > MALFORMED:
            found.append(
                f"{self.malformed:.0%} of tool calls cannot be read: set environment.options.parser or tool_prompt as the model "
                "was taught, or begin with demonstrations"
            )
        low, high = SUCCESS
        if self.sampled < low:
            found.append(
                f"sampled success is {self.sampled:.2f}, below {low}: take easier tasks, a stronger model, or demonstrations first"
            )
        if self.sampled > high:
            found.append(f"sampled success is {self.sampled:.2f}, above {high}: take harder tasks")
        if self.live_groups < LIVE_GROUPS:
            found.append(
                f"rewards differ in {self.live_groups:.0%} of groups, fewer than {LIVE_GROUPS:.0%}: raise rollout.group_size or "
                "rollout.temperature, or take tasks of middling difficulty"
            )
        if self.best < self.greedy + HEADROOM:
            found.append(
                f"the best of {self.samples} samples solves {self.best:.2f} of the tasks and greedy decoding {self.greedy:.2f}: there is "
                "little for rewards to find; raise rollout.temperature or take another model"
            )
        return found

    @property
    def verdict(self) -> str:
        """One paragraph in words."""
        if self.learnable is None:
            return (
                "no attempt at these tasks has a known outcome, so nothing is known of what rewards can teach: give some of them an answer, "
                "or see in the log why their environment fails"
            )
        said = f"sampled success {self.sampled:.2f} (greedy {self.greedy:.2f}, best of {self.samples} {self.best:.2f})"
        if self.learnable:
            return f"learnable: {said}, rewards differ in {self.live_groups:.0%} of groups"
        return f"hardly learnable: {said}. " + "; ".join(self.changes)

    def figures(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        known = {name: None if value != value else value for name, value in vars(self).items()}
        return {**known, "learnable": self.learnable, "verdict": self.verdict}


def measured(sampled: Sequence[Episode], greedy: Sequence[Episode], samples: int) -> Probe:
    """The figures of `samples` sampled episodes and one greedy episode of each task. `sampled`: those of one task have one `group_id`."""
    groups: dict[str, list[Episode]] = {}
    for episode in sampled:
        groups.setdefault(episode.group_id, []).append(episode)
    graded = {name: found for name, found in groups.items() if any(e.success is not None for e in found)}
    known = graded.values()
    rewards = [{round(e.reward, 9) for e in found if e.reward is not None} for found in known]
    figures = episode_metrics([*sampled])
    ended = figures["episode/token_limit"] + figures["episode/turn_limit"]
    return Probe(
        tasks=len(groups),
        samples=samples,
        greedy=mean([float(e.success or 0) for e in greedy if e.group_id in graded]),
        sampled=mean([mean([float(e.success or 0) for e in found]) for found in known]),
        best=mean([float(any(e.success for e in found)) for found in known]),
        live_groups=mean([float(len(values) > 1) for values in rewards]),
        truncated=max(figures["episode/cut_turns"], ended),
        malformed=0.0 if math.isnan(figures["episode/malformed_share"]) else figures["episode/malformed_share"],
        turn_tokens=figures["episode/turn_tokens"],
    )


def probe(
    play: EpisodeRunner, tasks: Sequence[Task], gate: GateConfig, accelerator: Accelerator | None = None
) -> tuple[Probe, list[Episode]]:
    """Sample and decode the first `gate.tasks` tasks with a policy as it stands.

    Args:
        play: the policy; its temperature is set here, its random numbers are none that a training draws.

    Returns:
        the figures, and all episodes, sampled ones first.
    """
    chosen, config = list(tasks[: gate.tasks]), play.config
    seed = derive_seed(config.seed, "probe") % 2**32
    hot = replace(play, temperature=config.rollout.temperature, seed=seed)
    sampled = shared(plan(chosen, gate.samples), hot, accelerator)
    greedy = shared(plan(chosen), replace(play, temperature=0.0, seed=seed), accelerator)
    return measured(sampled, greedy, gate.samples), [*sampled, *greedy]


def probe_config(config: AgentConfig) -> tuple[Probe, list[Episode]]:
    """`probe` of a config's own policy and training tasks. Raises RRMError: the policy cannot be loaded; ConfigError: the environment or
    its tasks cannot be made."""
    _, tasks, _ = make_environment(config.environment, config.seed)
    player = load_player(config)
    try:
        return probe(player, tasks, config.gate)
    finally:
        close(player.engine)
