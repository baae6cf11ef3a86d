"""Alarms: conditions that keep a training from learning for `PATIENCE` updates; pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from reagent.algorithms.groups import EQUAL, differs
from reagent.algorithms.names import GROUP_METHODS
from reagent.algorithms.rft import KEPT
from reagent.train.config import AgentConfig

PATIENCE = 3

MANY = 0.5
"""Share of episodes of unknown outcome above which the environment is suspect."""

RISE = 0.1
"""Rise of the share of episodes of unknown reward since the first updates."""

LUCK = 0.125
"""Share of successes that guessing reaches."""

Metrics = Mapping[str, Any]
UNKNOWN_RISE = "unknown_rise"


def number(metrics: Metrics, key: str) -> float | None:
    """A metric's value; None where it is absent, null or NaN."""
    value = metrics.get(key)
    return float(value) if isinstance(value, int | float) and value == value else None


def problems(metrics: Metrics, config: AgentConfig) -> dict[str, str]:
    """Name → problem of an update, its likely cause and the remedy."""

    def of(key: str) -> float | None:
        return number(metrics, key)

    def above(key: str, bound: float) -> bool:
        value = of(key)
        return value is not None and value > bound

    rollout, groups, texts = config.rollout, config.algorithm in GROUP_METHODS, dict[str, str]()
    success, spread = of("episode/success"), of("learned/spread")
    no_room = f"prompts leave no room in rollout.max_episode_tokens={rollout.max_episode_tokens}"
    if of("learned/rows") == 0.0:
        texts["nothing_known"] = (
            "no episode had a known reward, so that nothing was learned. Likely: the environment fails (episode/env_error; `error` in "
            f"episodes.jsonl), {no_room}, the tasks have no answers, or the judge cannot be reached (unknown_rows)"
        )
    elif above("episode/unknown", MANY):
        texts["mostly_unknown"] = (
            "more than half of the episodes had no known outcome, and taught nothing. Likely: the environment fails "
            f"(episode/env_error; `error` in episodes.jsonl), perhaps on what the policy writes, or {no_room}"
        )
    if above(UNKNOWN_RISE, RISE):
        texts["unknown_rises"] = (
            f"ever more episodes have no known reward: their share has risen by more than {RISE:.0%} since the first updates. They are "
            "left out of what is learned, so that a policy may come to prefer what breaks its grader or its judge. Likely: what it writes "
            "breaks the environment (`error` in episodes.jsonl; a grader may raise reagent.errors.GradeFailed, which earns "
            f"environment.failure_reward={config.environment.failure_reward:g}), or the judge (feedback/failed_…)"
        )
    if of("episode/cut_turns") == 1.0:
        texts["all_cut"] = (
            f"every turn was cut at rollout.max_new_tokens={rollout.max_new_tokens}, so that none was a call or an answer. Likely: it is "
            "too low for this policy, or the policy never ends a turn (a base model without a chat format, or a chat template with "
            "another end of turn than the tokenizer's eos)"
        )
    # one malformed call may be all the calls there were, where answers need none: then others succeed, or most turns are answers
    turns = of("episode/malformed_turns")
    few = success > LUCK if success is not None else turns is not None and turns < 0.5
    if of("episode/malformed_share") == 1.0 and not few:
        texts["all_malformed"] = (
            f"every tool call was malformed. Likely: policy.base={config.policy.base} was never taught to call the tools of "
            f"environment.name={config.environment.name}: the lab's policies know the lab's own tools alone. Use an instruct model that "
            "calls tools (policy.base=Qwen/Qwen3-0.6B, with a rollout.max_new_tokens to match), another call format "
            "(environment.options.parser), or teach it by demonstrations first; episodes.jsonl shows what it writes"
        )
    # rewards may be costs, 0 the best of them: a success says that something was earned, and so does a difference where nobody says
    # what a success is
    earned = success != 0 if success is not None else differs(spread or 0.0, 0.0)
    if of("learned/best") is not None and not above("learned/best", EQUAL) and not earned:
        texts["no_reward"] = (
            "no episode earned anything: the largest reward was 0 or less. Likely: the tasks are too hard for this policy, its right "
            "answers are not graded as such (see the answers in episodes.jsonl, and the environment's grader), or attempts end at a limit "
            f"first (rollout.max_turns={rollout.max_turns}, max_episode_tokens)"
        )
    if config.algorithm == "rft":
        if (best := of("learned/best")) is not None and best < KEPT:
            texts["nothing_kept"] = (
                f"no episode earned {KEPT:g}, so that algorithm=rft kept none: take easier tasks, a larger rollout.group_size, or "
                "demonstrations first (warm_start)"
            )
        return texts
    flat = of(f"learned/flat_{'turns' if config.loss.credit == 'turn' else 'groups'}") == 1.0
    if flat if groups else spread is not None and not differs(spread, 0.0):
        sampling = "; rollout.dynamic_sampling draws tasks until groups differ"
        texts["no_difference"] = (
            f"rewards never differed {'within a group' if groups else 'at all'}, and algorithm={config.algorithm} learns from "
            "differences. Likely: the tasks are all too hard or all too easy, "
            f"rollout.temperature={rollout.temperature:g} is too low, or rollout.group_size={rollout.group_size} too small"
            f"{sampling if groups and not rollout.dynamic_sampling else ''}"
        )
    return texts


@dataclass
class ConsecutiveCount:
    patience: int
    length: int = 0
    first: int = 0
    last: int = 0
    text: str = ""

    def take(self, update: int, text: str | None) -> bool:
        """True when it has just held for `patience` looks; `text`: "" where false, None where unknown."""
        if text is None:
            return False
        self.first = self.first if self.length else update
        self.length, self.last, self.text = (self.length + 1, update, text) if text else (0, update, "")
        return self.length == self.patience

    @property
    def stands(self) -> bool:
        return self.length >= self.patience

    def __str__(self) -> str:
        when = f"updates {self.first} to {self.last}" if self.last > self.first else f"update {self.first}"
        return f"{when}: {self.text}"


@dataclass
class Alarms:
    config: AgentConfig
    _now: dict[str, ConsecutiveCount] = field(default_factory=dict)
    _raised: list[ConsecutiveCount] = field(default_factory=list)
    _unknown: list[float] = field(default_factory=list)

    def observe(self, update: int, metrics: Metrics) -> list[str]:
        """Add an update's metrics; return the alarms it raises, once a spell."""
        texts = problems({**metrics, UNKNOWN_RISE: self._rise(metrics)}, self.config)
        patience = min(PATIENCE, self.config.max_updates)
        self._now = {name: self._now.get(name, ConsecutiveCount(patience)) for name in texts}
        raised = [spell for name, spell in self._now.items() if spell.take(update, texts[name])]
        self._raised += raised
        return [str(spell) for spell in raised]

    def _rise(self, metrics: Metrics) -> float | None:
        left_out, learned = number(metrics, "unknown_rows") or 0.0, number(metrics, "learned/rows") or 0.0
        self._unknown.append(max(number(metrics, "episode/unknown") or 0.0, left_out / max(left_out + learned, 1.0)))
        if len(self._unknown) < 2 * PATIENCE:
            return None
        return fmean(self._unknown[-PATIENCE:]) - fmean(self._unknown[:PATIENCE])

    def summary(self) -> list[str]:
        return [str(spell) for spell in self._raised]
