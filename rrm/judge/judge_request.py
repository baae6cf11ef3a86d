"""A request to a judge, whichever way it reads, and how its judgements become rows."""

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
    """A request to judge each transcript.

    Args:
        samples: judgements of each, combined into one Feedback if `together`.
        on_feedback: called with each row as soon as it is judged.
        on_reading: called with (id, number of readings) after each reading of a transcript that takes several.
        sources: by key of a map, the `score_source` of the scores it was fitted on; absent: not recorded.
    """

    info: JudgeInfo
    params: SamplingParams
    calibration: Calibration
    samples: int
    together: bool
    on_feedback: Callable[[Feedback], None] | None
    on_reading: OnReading | None = None
    sources: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        return self.info.mode

    def rows(
        self,
        item: TranscriptFacts,
        judgements: Sequence[Judgement],
        *,
        windowed: bool = False,
        sampled: Mapping[str, Any] | None = None,
    ) -> list[Feedback]:
        """Return calibrated rows; `sampled` are `judge` fields on sampling that the judgements lack."""
        calibrated = self.calibration.covers(self.mode, windowed=windowed)
        info = self.info.model_copy(update={"calibrated": calibrated, **(sampled or {"temperature": None})})
        groups = [judgements] if self.together else [[judgement] for judgement in judgements]
        calibrate = partial(self.calibration.apply, self.mode, windowed=windowed)
        return [self._of_its_kind(combine(item, group, info, calibrate), windowed) for group in groups]

    def _of_its_kind(self, row: Feedback, windowed: bool) -> Feedback:
        """Undo the calibration if the map was fitted on scores of another source."""
        key = key_of(self.mode, windowed)
        fitted_on = self.sources.get(key if key in self.calibration.modes else key_of(self.mode))
        if row.raw_score is None or fitted_on in (None, row.judge.score_source):
            return row
        why = f"not calibrated: the map is of {fitted_on} scores, and this one is {row.judge.score_source}"
        judge = row.judge.model_copy(update={"calibrated": False})
        reason = "; ".join(filter(None, (row.reason, why)))
        return row.model_copy(update={"score": row.raw_score, "judge": judge, "reason": reason})

    def tell(self, rows: Sequence[Feedback]) -> None:
        if self.on_feedback is not None:
            for feedback in rows:
                self.on_feedback(feedback)


REASON = "the agent never spoke: the transcript has no step (no message of an assistant), so there is nothing to judge"


def unspoken(trajectory: Trajectory, info: JudgeInfo) -> Feedback:
    # `unparsable` is not judged again on --retry-errors
    return Feedback(id=trajectory.id, status="unparsable", coverage=0.0, judge=info, reason=REASON)
