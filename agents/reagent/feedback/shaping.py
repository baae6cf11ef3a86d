"""Add feedback to an episode's rewards: pure functions that return a copy."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from reagent.rollout.episode import Episode, Turn
from rrm.data.annotation import Finding
from rrm.data.feedback import clear
from rrm.data.localisation import step_verdicts


def weight_at(update: int, updates: int, weight: float, schedule: Literal["constant", "linear"]) -> float:
    return weight if schedule == "constant" else weight * max(0.0, 1.0 - update / max(updates, 1))


def with_score(episode: Episode, score: float | None, weight: float) -> Episode:
    """A copy that earns R_env + λ·s (arXiv 2601.22154, §4.2); unknown where the judge failed (None)."""
    outcome = graded_outcome(episode)
    if score is None or outcome is None:
        return unknown(episode)
    return replace(episode, outcome_reward=outcome + weight * score)


def unknown(episode: Episode) -> Episode:
    return replace(episode, outcome_reward=None, ungraded=False)


def graded_outcome(episode: Episode) -> float | None:
    """0 of an ungraded episode, None where the outcome is unknown."""
    return 0.0 if episode.ungraded else episode.outcome_reward


def with_findings(
    episode: Episode,
    findings: Sequence[Finding] | None,
    *,
    good: float,
    bad: float,
    max_rewarded_steps: int | None = None,
) -> Episode:
    """A copy whose turns earn their findings: step k is turn k (from 1); None: the judge failed.

    Of several clear findings on a turn the majority counts, a tie is bad. Where all have a probability, of mean p, the turn
    earns p · good or (1 − p) · bad. `max_rewarded_steps` good turns are paid, and as many bad ones."""
    if findings is None:
        return unknown(episode)
    outcome = graded_outcome(episode)
    paid = {"good": good, "bad": bad}
    counts = {"good": 0, "bad": 0}
    turns: list[Turn] = []
    usable = clear(findings)
    verdicts = step_verdicts(usable, len(episode.turns))
    for number, (turn, verdict) in enumerate(zip(episode.turns, verdicts, strict=True), start=1):
        earned = 0.0
        if verdict in paid:
            counts[verdict] += 1
            p = _probability([f for f in usable if f.step == number])
            sure = 1.0 if p is None else p if verdict == "good" else 1.0 - p
            earned = (
                sure * paid[verdict] if max_rewarded_steps is None or counts[verdict] <= max_rewarded_steps else 0.0
            )
        turns.append(replace(turn, reward=turn.reward + earned))
    return replace(episode, turns=turns, outcome_reward=outcome)


def differences(potentials: Sequence[float], *, gamma: float = 1.0) -> list[float]:
    """F_k = γ·Φ(s_{k+1}) − Φ(s_k) of states in order (Ng, Harada, Russell 1999, eq. 2)."""
    return [gamma * after - before for before, after in pairwise(potentials)]


def with_differences(episode: Episode, potentials: Sequence[float], end: float | None, weight: float) -> Episode:
    """A copy whose turn k earns `weight` times the potential's difference F_k.

    `potentials`: Φ after each turn but the last; `end`: Φ after it, the score s (`spread`) or 0 (`shaping`), None where the
    judge failed: the reward is unknown. Raises ValueError: not one potential for each turn but the last."""
    if end is None:
        return unknown(episode)
    paid = differences([0.0, *potentials, end])
    if len(paid) != len(episode.turns):
        raise ValueError(
            f"{episode.key}: {len(episode.turns)} turns, and Φ after {len(potentials)} of those before the last"
        )
    turns = [replace(t, reward=t.reward + weight * f) for t, f in zip(episode.turns, paid, strict=True)]
    return replace(episode, turns=turns)


def _probability(findings: Sequence[Finding]) -> float | None:
    probabilities = [f.p_good for f in findings if f.p_good is not None]
    return sum(probabilities) / len(probabilities) if probabilities and len(probabilities) == len(findings) else None
