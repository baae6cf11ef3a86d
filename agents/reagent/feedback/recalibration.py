"""`feedback.recalibrate`: the judge's calibration fitted anew on what the environment grades, as training goes on.

A judge was calibrated on somebody's runs; an agent in training leaves them behind, and 0.8 no longer means 80 % (the agent outgrows
its judge). After each update the map from raw scores to probabilities of success is fitted on the last graded attempts
(`rrm.judge.calibration.fit`: Platt 1999), and gives the scores of the next. No attempt is paid by a map that has seen its own grade.
The map rises strictly, so the order of scores stays as the judge has it, among transcripts that it reads in one way: where its own
calibration has another map for those read in windows, the order between the two kinds may change.
"""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from reagent.feedback.settings import RecalibrateConfig
from rrm.data.feedback import Feedback
from rrm.errors import RRMError
from rrm.judge.calibration import Platt, fit

logger = logging.getLogger(__name__)
Row = tuple[float, float, float, float]
"""(raw score, the judge's own score, the score as paid, success) of a graded attempt."""


def calibration_error(scores: Sequence[float], labels: Sequence[float]) -> float:
    """ECE over ten equal-mass bins (`rrm.evaluation.metrics.probability`); 0 is best."""
    import numpy as np

    from rrm.evaluation.metrics.probability import CalibrationError

    rows = (
        np.asarray(scores, dtype=np.float64),
        np.asarray(labels, dtype=np.float64),
        np.zeros(len(scores), dtype=np.int64),
    )
    return float(CalibrationError(*rows, 1)(np.ones((1, 1)))[0])


class Recalibration:
    """A map from raw scores to scores, and the graded attempts that it is fitted on. `settings`: the config section."""

    def __init__(self, settings: RecalibrateConfig) -> None:
        self.settings = settings
        self.rows: deque[Row] = deque(maxlen=settings.rows)
        self.map: Platt | None = None
        """None until there is enough to fit one on: the judge's own calibration stands."""
        self._said_falling = False

    def apply(self, feedback: Feedback) -> Feedback:
        """The judgement with its score by the map in force; as it is where there is none, or no raw score."""
        if self.map is None or feedback.raw_score is None or feedback.score is None:
            return feedback
        return feedback.model_copy(update={"score": self.map(feedback.raw_score)})

    def observe(self, graded: Sequence[Row]) -> dict[str, float]:
        """Take in an update's graded attempts, and fit anew.

        Returns:
            `recalibration/…`: `rows` held; once there are enough, their ECE by the judge's own calibration (`ece_own`), as they were
            paid (`ece_paid`, by maps that had not seen them), and by the map fitted on them (`ece_fitted`, which flatters it), its
            `slope` and `intercept`; `falling` is 1 where the raw scores fall as success rises, and the last map stays.
        """
        self.rows.extend((raw, own, paid, label) for raw, own, paid, label in graded)
        found = {"rows": float(len(self.rows))}
        labels = [label for *_, label in self.rows]
        successes = sum(labels)
        if len(labels) >= self.settings.min_rows and min(successes, len(labels) - successes) >= self.settings.min_each:
            raw = [row[0] for row in self.rows]
            found["ece_own"] = calibration_error([row[1] for row in self.rows], labels)
            found["ece_paid"] = calibration_error([row[2] for row in self.rows], labels)
            found |= self._fit(raw, labels)
        return {f"recalibration/{name}": value for name, value in found.items()}

    def _fit(self, raw: list[float], labels: list[float]) -> dict[str, float]:
        try:
            fitted = fit(raw, labels, "platt")
        except RRMError as problem:  # the scores do not rise with the labels
            if not self._said_falling:
                self._said_falling = True
                logger.warning("feedback.recalibrate: the map stays as it is: %s", problem)
            return {"falling": 1.0}
        assert isinstance(fitted, Platt)
        self.map = fitted
        scores = [fitted(value) for value in raw]
        return {
            "ece_fitted": calibration_error(scores, labels),
            "slope": fitted.a,
            "intercept": fitted.b,
            "falling": 0.0,
        }

    def begin_stage(self) -> None:
        """Other criteria are asked from here on: what raw scores meant so far says nothing of theirs."""
        self.rows.clear()
        self.map = None

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"rows": [list(row) for row in self.rows], "map": None if self.map is None else self.map.model_dump()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's state."""
        self.rows.clear()
        self.rows.extend((raw, own, paid, label) for raw, own, paid, label in state["rows"])
        self.map = None if state["map"] is None else Platt.model_validate(state["map"])
