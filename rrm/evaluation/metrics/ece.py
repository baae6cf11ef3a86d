"""Expected calibration error over ten equal-mass bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, probability


class ECE(_base.LocalMetric):
    """Σ n_b/n · |mean score − mean label| over equal-mass bins (`n_bins=10`); equal scores share a bin. Returns `ece`."""

    inputs = (("predictions", "float64"), ("references", "float64"))

    def _compute(self, predictions: list[float], references: list[float], n_bins: int = 10) -> dict[str, Any]:
        rows = np.asarray(predictions), np.asarray(references), _base.one_question(predictions)
        return {"ece": _base.value(probability.CalibrationError(*rows, 1, n_bins))}
