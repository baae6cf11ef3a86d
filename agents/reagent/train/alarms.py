"""Alarms: what keeps a training from learning, said aloud with a likely cause. Pure, over the metrics of its updates.

A run whose every call is malformed, or whose rewards never differ, ends like any other: with a policy and exit code 0. Each
`Alarm` is a condition on one update's metrics; one that holds for `PATIENCE` updates running is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from reagent.algorithms.groups import EQUAL, differs
from reagent.train.config import GROUP_METHODS, AgentConfig

PATIENCE = 3
"""Updates running that a condition must hold for; fewer in a run of fewer."""

MANY = 0.5
"""Share of episodes of unknown outcome above which something is wrong with more than an episode."""

RISE = 0.1
"""By how much the share of episodes of unknown reward may lie above the one at the beginning, means of `PATIENCE` updates."""

LUCK = 0.125
"""Share of successes that guessing reaches: it says nothing of a policy that never made a call."""

Metrics = Mapping[str, Any]
"""An update's line of metrics.jsonl: numbers, None where there is none."""
UNKNOWN_RISE = "unknown_rise"
"""Metric: the share of episodes of unknown reward in the last updates, less that in the first ones. `Alarms` computes it."""


@dataclass(frozen=True)
class Alarm:
    """One thing that keeps a training from learning."""

    name: str
    holds: Callable[[Metrics, AgentConfig], bool]
    text: Callable[[AgentConfig], str]
    """What is the matter, its likely cause, and what to do."""


def number(metrics: Metrics, key: str) -> float | None:
    """A metric's value; None where it is absent, null or NaN."""
    value = metrics.get(key)
    return float(value) if isinstance(value, int | float) and value == value else None


def _is(key: str, wanted: float) -> Callable[[Metrics, AgentConfig], bool]:
    return lambda metrics, _: number(metrics, key) == wanted


def _earned_nothing(metrics: Metrics, _: AgentConfig) -> bool:
    """Rewards may be costs, 0 the best of them: a success says that something was earned, and so does a difference where
    nobody says what a success is."""
    best, success = number(metrics, "learned/best"), number(metrics, "episode/success")
    if best is None or best > EQUAL:
        return False
    return success == 0 if success is not None else not differs(number(metrics, "learned/spread") or 0.0, 0.0)


def _all_malformed(metrics: Metrics, _: AgentConfig) -> bool:
    """One malformed call may be all the calls there were, where answers need none: then others succeed (more of them than
    guess), or most turns are answers."""
    success, turns = number(metrics, "episode/success"), number(metrics, "episode/malformed_turns")
    few = success > LUCK if success is not None else turns is not None and turns < 0.5
    return number(metrics, "episode/malformed_share") == 1.0 and not few


def _mostly_unknown(metrics: Metrics, _: AgentConfig) -> bool:
    unknown = number(metrics, "episode/unknown")
    return unknown is not None and unknown > MANY and number(metrics, "learned/rows") != 0.0


def _unknown_rises(metrics: Metrics, _: AgentConfig) -> bool:
    return (number(metrics, UNKNOWN_RISE) or 0.0) > RISE


def _never_differs(metrics: Metrics, config: AgentConfig) -> bool:
    if config.algorithm in GROUP_METHODS:
        return number(metrics, f"learned/flat_{'turns' if config.loss.credit == 'turn' else 'groups'}") == 1.0
    spread = number(metrics, "learned/spread")
    return spread is not None and not differs(spread, 0.0)


ALARMS = (
    Alarm(
        "nothing_known",
        _is("learned/rows", 0.0),
        lambda config: (
            "no episode had a known reward, so that nothing was learned. Likely: the environment fails "
            "(episode/env_error; `error` in episodes.jsonl), prompts leave no room in rollout.max_episode_tokens="
            f"{config.rollout.max_episode_tokens}, the tasks have no answers, or the judge cannot be reached (unknown_rows)"
        ),
    ),
    Alarm(
        "mostly_unknown",
        _mostly_unknown,
        lambda config: (
            "more than half of the episodes had no known outcome, and taught nothing. Likely: the environment fails "
            "(episode/env_error; `error` in episodes.jsonl), perhaps on what the policy writes, or prompts leave no room in "
            f"rollout.max_episode_tokens={config.rollout.max_episode_tokens}"
        ),
    ),
    Alarm(
        "unknown_rises",
        _unknown_rises,
        lambda config: (
            f"ever more episodes have no known reward: their share has risen by more than {RISE:.0%} since the first updates. They are "
            "left out of what is learned, so that a policy may come to prefer what breaks its grader or its judge. Likely: what it writes "
            "breaks the environment (`error` in episodes.jsonl; a grader may raise reagent.errors.GradeFailed, which earns "
            f"environment.failure_reward={config.environment.failure_reward:g}), or the judge (feedback/failed_…)"
        ),
    ),
    Alarm(
        "all_cut",
        _is("episode/cut_turns", 1.0),
        lambda config: (
            f"every turn was cut at rollout.max_new_tokens={config.rollout.max_new_tokens}, so that none was a call or "
            "an answer. Likely: it is too low for this policy, or the policy never ends a turn (a base model without a chat "
            "format, or a chat template with another end of turn than the tokenizer's eos)"
        ),
    ),
    Alarm(
        "all_malformed",
        _all_malformed,
        lambda config: (
            f"every tool call was malformed. Likely: policy.base={config.policy.base} was never taught to call "
            f"the tools of environment.name={config.environment.name}: the lab's policies know the lab's own tools alone. Use an instruct "
            "model that calls tools (policy.base=Qwen/Qwen3-0.6B, with a rollout.max_new_tokens to match), another call format "
            "(environment.options.parser), or teach it by demonstrations first; episodes.jsonl shows what it writes"
        ),
    ),
    Alarm(
        "no_reward",
        _earned_nothing,
        lambda config: (
            "no episode earned anything: the largest reward was 0 or less. Likely: the tasks are too hard for this "
            "policy, its right answers are not graded as such (see the answers in episodes.jsonl, and the environment's "
            f"grader), or attempts end at a limit first (rollout.max_turns={config.rollout.max_turns}, max_episode_tokens)"
        ),
    ),
    Alarm(
        "no_difference",
        _never_differs,
        lambda config: (
            f"rewards never differed {'within a group' if config.algorithm in GROUP_METHODS else 'at all'}, and "
            f"algorithm={config.algorithm} learns from differences. Likely: the tasks are all too hard or all too easy, "
            f"rollout.temperature={config.rollout.temperature:g} is too low, or rollout.group_size={config.rollout.group_size} too small"
            + (
                "; rollout.dynamic_sampling draws tasks until groups differ"
                if config.algorithm in GROUP_METHODS and not config.rollout.dynamic_sampling
                else ""
            )
        ),
    ),
)


@dataclass
class ConsecutiveCount:
    """Updates running in which an alarm's condition held."""

    name: str
    first: int
    last: int


@dataclass
class Alarms:
    """The alarms of a run."""

    config: AgentConfig
    _now: dict[str, ConsecutiveCount] = field(default_factory=dict)
    _raised: list[ConsecutiveCount] = field(default_factory=list)
    _unknown: list[float] = field(default_factory=list)
    """By update, the share of episodes of unknown reward."""

    @property
    def patience(self) -> int:
        """Updates running after which an alarm is raised."""
        return min(PATIENCE, self.config.max_updates)

    def observe(self, update: int, metrics: Metrics) -> list[str]:
        """Take in an update's metrics; the texts of alarms that it raises (each spell raises its alarm once)."""
        raised: list[str] = []
        metrics = {**metrics, UNKNOWN_RISE: self._rise(metrics)}
        for alarm in ALARMS:
            if not alarm.holds(metrics, self.config):
                self._now.pop(alarm.name, None)
                continue
            spell = self._now.setdefault(alarm.name, ConsecutiveCount(alarm.name, update, update))
            spell.last = update
            if spell.last - spell.first + 1 == self.patience:
                self._raised.append(spell)
                raised.append(self._text(spell))
        return raised

    def _rise(self, metrics: Metrics) -> float | None:
        left_out, learned = number(metrics, "unknown_rows") or 0.0, number(metrics, "learned/rows") or 0.0
        self._unknown.append(max(number(metrics, "episode/unknown") or 0.0, left_out / max(left_out + learned, 1.0)))
        if len(self._unknown) < 2 * PATIENCE:
            return None
        return fmean(self._unknown[-PATIENCE:]) - fmean(self._unknown[:PATIENCE])

    def summary(self) -> list[str]:
        """Every alarm that was raised, with the updates it held in: for the end of the run."""
        return [self._text(spell) for spell in self._raised]

    def _text(self, spell: ConsecutiveCount) -> str:
        alarm = next(a for a in ALARMS if a.name == spell.name)
        when = f"updates {spell.first} to {spell.last}" if spell.last > spell.first else f"update {spell.first}"
        return f"{when}: {alarm.text(self.config)}"
