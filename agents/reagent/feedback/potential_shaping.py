"""Φ, a judge's opinion of an attempt's prefix after each turn.

In the judge's mode `steps` it is the lowest p_good so far, from one prefill of the attempt: slot k reads the steps up to k
alone (`rrm.judge.steps`). In the other modes it is the score of each prefix, judged as a run of its own: a judgement a turn."""

from collections.abc import Sequence

from reagent.feedback.base import as_judged
from reagent.rollout.episode import Episode
from rrm.data.annotation import Finding
from rrm.data.trajectory import Trajectory
from rrm.evaluation.step_scores import step_probabilities


def prefixes(episode: Episode) -> list[Trajectory]:
    """The attempt after each turn but the last, as the judge reads it."""
    trajectory = as_judged(episode)
    prompt_length = len(trajectory.messages) - len(episode.own_messages)
    starts = [i for i, m in enumerate(trajectory.messages) if i >= prompt_length and m.role == "assistant"]
    return [trajectory.model_copy(update={"messages": trajectory.messages[:end]}) for end in starts[1:]]


def lowest_so_far(findings: Sequence[Finding], turns: int) -> list[float]:
    """Φ after each turn but the last: the lowest p_good so far, 0 before the first finding."""
    probabilities = step_probabilities([f for f in findings if f.verdict != "unsure"], turns)[:-1]
    lowest: list[float | None] = []
    for p in probabilities:
        before = lowest[-1] if lowest else None
        lowest.append(p if before is None else before if p is None else min(before, p))
    return forward_fill(lowest)


def forward_fill(scores: Sequence[float | None]) -> list[float]:
    filled: list[float] = []
    for score in scores:
        filled.append(score if score is not None else filled[-1] if filled else 0.0)
    return filled
