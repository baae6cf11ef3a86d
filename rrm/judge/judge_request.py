"""What a judge is asked for, whichever way it reads (`cut`, `windowed`, `steps`), and how its judgements become rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rrm.data.feedback import Feedback, JudgeInfo, Mode
from rrm.data.trajectory import Trajectory
from rrm.engines.base import SamplingParams
from rrm.judge.calibration import Calibration, key_of
from rrm.judge.chat import Judgement, TranscriptFacts, combine

OnReading = Callable[[str, int], None]


@dataclass(frozen=True)
class JudgeRequest:
    """Asked of each transcript.

    Args:
        info: of the rows; its mode is the one that is asked for.
        samples: judgements of each.
        together: whether these become one Feedback, or each its own.
        on_feedback: hears of each row as soon as it is judged.
        on_reading: hears of each reading that was made of a transcript that takes several, by its id and how many it takes.
    """

    info: JudgeInfo
    params: SamplingParams
    calibration: Calibration
    samples: int
    together: bool
    on_feedback: Callable[[Feedback], None] | None
    on_reading: OnReading | None = None
    sources: Mapping[str, str | None] = field(default_factory=dict)
    """By a map's key, of which kind the scores were that it was fitted on: expectations, or numbers that were said; absent: not recorded."""

    @property
    def mode(self) -> Mode:
        """What is asked for."""
        return self.info.mode

    def rows(
        self,
        item: TranscriptFacts,
        judgements: Sequence[Judgement],
        *,
        windowed: bool = False,
        sampled: Mapping[str, Any] | None = None,
    ) -> list[Feedback]:
        """A transcript's judgements, calibrated.

        Args:
            windowed: whether it was read in windows.
            sampled: what the rows' `judge` says of how replies were sampled, where the judgements do not.
        """
        calibrated = self.calibration.covers(self.mode, windowed=windowed)
        info = self.info.model_copy(update={"calibrated": calibrated, **(sampled or {"temperature": None})})
        groups = [judgements] if self.together else [[judgement] for judgement in judgements]
        calibrate = partial(self.calibration.apply, self.mode, windowed=windowed)
        return [self._of_its_kind(combine(item, group, info, calibrate), windowed) for group in groups]

    def _of_its_kind(self, row: Feedback, windowed: bool) -> Feedback:
        """The row; uncalibrated where the map was fitted on scores of another kind."""
        key = key_of(self.mode, windowed)
        fitted_on = self.sources.get(key if key in self.calibration.modes else key_of(self.mode))
        if row.raw_score is None or fitted_on in (None, row.judge.score_source):
            return row
        why = f"not calibrated: the map is of {fitted_on} scores, and this one is {row.judge.score_source}"
        judge = row.judge.model_copy(update={"calibrated": False})
        reason = "; ".join(filter(None, (row.reason, why)))
        return row.model_copy(update={"score": row.raw_score, "judge": judge, "reason": reason})

    def tell(self, rows: Sequence[Feedback]) -> None:
        """Say that these rows are judged."""
        if self.on_feedback is not None:
            for feedback in rows:
                self.on_feedback(feedback)


REASON = "the agent never spoke: the transcript has no step (no message of an assistant), so there is nothing to judge"


def unspoken(trajectory: Trajectory, info: JudgeInfo) -> Feedback:
    """The row of such a transcript: `unparsable`, which is not judged again on --retry-errors, without text or number."""
    return Feedback(id=trajectory.id, status="unparsable", coverage=0.0, judge=info, reason=REASON)
