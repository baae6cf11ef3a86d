"""`feedback.recalibrate`: refit the judge's calibration on graded attempts as training goes on.

After each update the map from raw scores to success is fitted on the last graded attempts (`rrm.judge.calibration.fit`:
Platt 1999) and gives the next scores: no attempt is paid by a map that has seen its own grade. The map rises strictly; the
order may change only between transcripts read whole and those read in windows."""

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
"""(raw score, the judge's own score, the paid score, success) of a graded attempt."""


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
    def __init__(self, settings: RecalibrateConfig) -> None:
        self.settings = settings
        self.rows: deque[Row] = deque(maxlen=settings.rows)
        self.map: Platt | None = None
        """None until there are enough rows."""
        self._said_falling = False

    def apply(self, feedback: Feedback) -> Feedback:
        if self.map is None or feedback.raw_score is None or feedback.score is None:
            return feedback
        return feedback.model_copy(update={"score": self.map(feedback.raw_score)})

    def observe(self, graded: Sequence[Row]) -> dict[str, float]:
        """Add an update's graded attempts, and refit.

        Returns:
            `recalibration/…`: `rows` held; with enough of them the ECE by the judge's own calibration (`ece_own`), as paid
            (`ece_paid`) and by the map fitted on them (`ece_fitted`), its `slope` and `intercept`; `falling` is 1 where raw scores
            fall as success rises, and the last map stays.
        """
        self.rows.extend((raw, own, paid, label) for raw, own, paid, label in graded)
        figures = {"rows": float(len(self.rows))}
        labels = [label for *_, label in self.rows]
        successes = sum(labels)
        if len(labels) >= self.settings.min_rows and min(successes, len(labels) - successes) >= self.settings.min_each:
            raw = [row[0] for row in self.rows]
            figures["ece_own"] = calibration_error([row[1] for row in self.rows], labels)
            figures["ece_paid"] = calibration_error([row[2] for row in self.rows], labels)
            figures |= self._fit(raw, labels)
        return {f"recalibration/{name}": value for name, value in figures.items()}

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
        self.rows.clear()
        self.map = None

    def state(self) -> dict[str, Any]:
        return {"rows": [list(row) for row in self.rows], "map": None if self.map is None else self.map.model_dump()}

    def restore(self, state: dict[str, Any]) -> None:
        self.rows.clear()
        self.rows.extend((raw, own, paid, label) for raw, own, paid, label in state["rows"])
        self.map = None if state["map"] is None else Platt.model_validate(state["map"])
