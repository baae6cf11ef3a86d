"""Transcripts in which the agent never spoke: there is nothing to judge, so no judge is asked and no score is made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Trajectory

T = TypeVar("T")
REASON = "the agent never spoke: the transcript has no step (no message of an assistant), so there is nothing to judge"


def unspoken(trajectory: Trajectory, info: JudgeInfo) -> Feedback:
    """The row of such a transcript: `unparsable`, which is not judged again on --retry-errors, without text or number."""
    return Feedback(id=trajectory.id, status="unparsable", coverage=0.0, judge=info, reason=REASON)


def around_unspoken(
    trajectories: Sequence[Trajectory],
    judge: Callable[[list[Trajectory]], list[T]],
    unspoken: Callable[[Trajectory], T],
) -> list[T]:
    """What `judge` says of the transcripts that have steps, and `unspoken` of the others, in the given order."""
    said = {i: unspoken(t) for i, t in enumerate(trajectories) if not t.steps}
    judged = iter(judge([t for t in trajectories if t.steps]))
    return [said[i] if i in said else next(judged) for i in range(len(trajectories))]
