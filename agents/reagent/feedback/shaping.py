"""What feedback adds to an episode's rewards: pure functions that return a copy; the episode played stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from reagent.rollout.episode import Episode, Turn
from rrm.data.annotation import Finding
from rrm.data.feedback import clear
from rrm.data.localisation import step_verdicts


def weight_at(update: int, updates: int, weight: float, schedule: Literal["constant", "linear"]) -> float:
    """λ at an update (from 0) of `updates`: the weight itself, or falling linearly to 0 at the end."""
    return weight if schedule == "constant" else weight * max(0.0, 1.0 - update / max(updates, 1))


def with_score(episode: Episode, score: float | None, weight: float) -> Episode:
    """A copy that earns R_env + λ·s (arXiv 2601.22154, §4.2), λ·s with the outcome on its last action token.

    Args:
        score: s in [0, 1], or what stands for it (`feedback.failure_reward`); None where the judge failed: the copy's reward
            then is unknown (DESIGN §5).
        weight: λ.
    """
    outcome = graded_outcome(episode)
    if score is None or outcome is None:
        return unknown(episode)
    return replace(episode, outcome_reward=outcome + weight * score)


def unknown(episode: Episode) -> Episode:
    """A copy whose reward is unknown, because the judge that was to give it failed."""
    return replace(episode, outcome_reward=None, ungraded=False)


def graded_outcome(episode: Episode) -> float | None:
    """The outcome that feedback adds to: nothing (0) where nobody can grade it, so that an ungraded episode learns from the
    judge alone; None where it is unknown."""
    return 0.0 if episode.ungraded else episode.outcome_reward


def with_findings(
    episode: Episode,
    findings: Sequence[Finding] | None,
    *,
    good: float,
    bad: float,
    max_rewarded_steps: int | None = None,
) -> Episode:
    """A copy whose turns earn what the judge found of them: finding step k speaks of turn k (from 1).

    Of several findings on a turn the majority counts, a tie is bad; a turn without one, or with unclear or unsure ones alone, earns
    nothing more. Where all of a turn's clear findings have a probability, of mean p, it earns p · good or (1 − p) · bad.

    Args:
        findings: None where the judge failed: the copy's reward then is unknown.
        max_rewarded_steps: good turns paid for, and bad ones, the first of each; what findings add to an episode lies within
            [max_rewarded_steps · bad, max_rewarded_steps · good], however many turns it has. None: all.
    """
    if findings is None:
        return unknown(episode)
    outcome = graded_outcome(episode)
    paid = {"good": good, "bad": bad}
    seen = {"good": 0, "bad": 0}
    turns: list[Turn] = []
    said = clear(findings)
    verdicts = step_verdicts(said, len(episode.turns))
    for number, (turn, verdict) in enumerate(zip(episode.turns, verdicts, strict=True), start=1):
        earned = 0.0
        if verdict in paid:
            seen[verdict] += 1
            p = _probability([f for f in said if f.step == number])
            sure = 1.0 if p is None else p if verdict == "good" else 1.0 - p
            earned = sure * paid[verdict] if max_rewarded_steps is None or seen[verdict] <= max_rewarded_steps else 0.0
        turns.append(replace(turn, reward=turn.reward + earned))
    return replace(episode, turns=turns, outcome_reward=outcome)


def differences(potentials: Sequence[float], *, gamma: float = 1.0) -> list[float]:
    """F_k = γ·Φ(s_{k+1}) − Φ(s_k) of an episode's states in order (Ng, Harada, Russell 1999, eq. 2): one fewer than states.

    Undiscounted they add up to the last Φ less the first.
    """
    return [gamma * after - before for before, after in pairwise(potentials)]


def with_differences(episode: Episode, potentials: Sequence[float], end: float | None, weight: float) -> Episode:
    """A copy whose turns earn the differences of a potential, `weight` times: F of turn k on turn k.

    Args:
        potentials: Φ after each turn but the last, known from the episode up to there. Before the first it is 0: there is nothing to
            judge.
        end: Φ after the last turn: the score s, so that what is added is λ·s in sum (`spread`); or 0, so that it is 0 in sum for
            every policy (`shaping`). None: the judge failed, and the copy's reward is unknown.
        weight: λ.

    Raises:
        ValueError: not one potential for each turn but the last.
    """
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
    """The mean p_good of a turn's findings, None where one of them has none."""
    known = [f.p_good for f in findings if f.p_good is not None]
    return sum(known) / len(known) if known and len(known) == len(findings) else None
