"""What feedback adds to an episode's rewards: pure functions that return a copy; the episode played stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from reagent.rollout.episode import Episode
from rrm.annotation import Finding
from rrm.evaluation.metrics.localisation import step_verdicts


def weight_at(update: int, updates: int, weight: float, schedule: Literal["constant", "linear"]) -> float:
    """λ at an update (from 0) of `updates`: the weight itself, or falling linearly to 0 at the end."""
    return weight if schedule == "constant" else weight * max(0.0, 1.0 - update / max(updates, 1))


def with_score(episode: Episode, score: float | None, weight: float) -> Episode:
    """A copy that earns R_env + λ·s (arXiv 2601.22154, §4.2), λ·s with the outcome on its last action token.

    Args:
        score: s in [0, 1]; None where the judge failed: the copy's reward then is unknown (DESIGN §5).
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


def with_findings(episode: Episode, findings: Sequence[Finding] | None, *, good: float, bad: float) -> Episode:
    """A copy whose turns earn what the judge found of them: finding step k speaks of turn k (from 1).

    Of several findings on a turn the majority counts, a tie is bad; a turn without one earns nothing more.

    Args:
        findings: None where the judge failed: the copy's reward then is unknown.
    """
    if findings is None:
        return unknown(episode)
    outcome = graded_outcome(episode)
    paid = {"good": good, "bad": bad, None: 0.0}
    verdicts = step_verdicts(findings, len(episode.turns))
    turns = [replace(t, reward=t.reward + paid[v]) for t, v in zip(episode.turns, verdicts, strict=True)]
    return replace(episode, turns=turns, outcome_reward=outcome)
