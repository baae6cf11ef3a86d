"""Expected calibration error over ten equal-mass bins."""

from __future__ import annotations

import numpy as np

from rrm.evaluation.metrics import _base, probability


class ECE(_base.LocalMetric):
    """Σ n_b/n · |mean score − mean label| over equal-mass bins (`n_bins=10`); equal scores share a bin. Returns `ece`."""

    inputs = (("predictions", "float64"), ("references", "float64"))

    def _compute(self, predictions: list[float], references: list[float], n_bins: int = 10) -> dict[str, float]:
        return {"ece": probability.ece(np.asarray(predictions), np.asarray(references), n_bins)}
