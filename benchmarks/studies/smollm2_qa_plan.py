"""How long the parts of `smollm2_qa` would take on one core: `reagent.train.plan`, with the speed of a run that was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.memory_model import Shape
from reagent.train.plan import Speed, forward_flops, seconds_of, speed_of, work_of

TOKENS = {"tool_call": (314, 36), "naive_rag": (270, 12), "direct": (59, 12)}
"""Of a demonstration, by method: in all, and written by the policy; means of 229."""
DEMONSTRATIONS = 229
FLOPS = 45e9
"""A second, float32, of one core under nice beside other work."""
STEP_S = 0.5
"""Of sampling one token of each of 24 rows, beyond the rows' own tokens."""
JUDGED_TOKENS = 700
"""What the judge reads of an attempt, its rubric included."""


@dataclass(frozen=True)
class Hours:
    """Of one run of an arm."""

    updates: int
    rollout: float
    update: float
    judge: float
    draws: int = 1
    """Times so much may be played and judged, at most (`rollout.dynamic_sampling`)."""

    @property
    def training(self) -> float:
        """Of all updates, of one draw each."""
        return self.rollout + self.update + self.judge


def _config(options: Sequence[str]) -> AgentConfig:
    """With SmolLM2 itself in place of the warm start, which need not be there yet."""
    return load_agent_config("smollm2", [*options, "policy.base=smollm2"])


def _speed(like: Path | None) -> Speed:
    tokens, sampled = TOKENS["tool_call"]
    return speed_of(like, "cpu") if like else Speed("a try-out", 1, 0.0, FLOPS, STEP_S, sampled, tokens)


def planned(options: Sequence[str], like: Path | None) -> Hours:
    """Hours of an arm, without its evaluations.

    Args:
        like: a run on this machine whose speed and lengths are taken.
    """
    config, speed = _config(options), _speed(like)
    shape = Shape.of(config, "cpu")
    work = work_of(config, shape, speed)
    seconds = seconds_of(config, shape, work, speed, 1)
    judged = 0.0 if config.feedback.mode == "none" else forward_flops(config, shape, JUDGED_TOKENS, 0)
    judge = work.episodes * judged / speed.update
    n = config.max_updates
    rollout, update, judging = (n * s / 3600 for s in (seconds["rollout"], seconds["update"], judge))
    return Hours(n, rollout, update, judging, work.draws)


def others(options: Sequence[str], questions: int, epochs: int, like: Path | None) -> dict[str, float]:
    """Hours of a warm start and of an evaluation of so many questions, by method: `warm/…`, `evaluation/…`."""
    config, speed = _config(options), _speed(like)
    shape = Shape.of(config, "cpu")
    rows = config.rollout.tasks_per_update * config.rollout.group_size
    found = {}
    for method, (tokens, sampled) in TOKENS.items():
        forward = forward_flops(config, shape, tokens, sampled)
        found[f"warm/{method}"] = epochs * DEMONSTRATIONS * 2 * forward / speed.update / 3600  # forward and backward
        found[f"evaluation/{method}"] = questions * (forward / speed.update + sampled * speed.step / rows) / 3600
    return found


def told(arms: Mapping[str, Hours], seeds: Mapping[str, int], rest: Mapping[str, float]) -> list[str]:
    """Lines for people, and the sum."""
    said = [
        f"{arm:22s} {seeds[arm]} x {one.training:5.2f} h   ({one.updates} updates: playing {one.rollout:.2f}, "
        f"learning {one.update:.2f}, judging {one.judge:.2f}"
        + (f"; of one draw: up to {one.draws} times as much is played)" if one.draws > 1 else ")")
        for arm, one in arms.items()
    ]
    said += [f"{name:22s} 1 x {hours:5.2f} h" for name, hours in rest.items()]
    runs = sum(seeds[arm] for arm in arms)
    total = sum(seeds[arm] * one.training for arm, one in arms.items()) + sum(rest.values())
    total += runs * rest["evaluation/tool_call"]
    return [*said, f"{'in all':22s}     {total:5.2f} h of one core, {runs} final evaluations included"]
