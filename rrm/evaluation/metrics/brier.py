"""Brier score: mean squared distance of the calibrated score from the label."""

from __future__ import annotations

import numpy as np

from rrm.evaluation.metrics import _base, probability


class Brier(_base.LocalMetric):
    """Mean (score − label)², lower is better; always saying the base rate p scores p(1 − p). Returns `brier`."""

    inputs = (("predictions", "float64"), ("references", "float64"))

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        one = np.zeros(len(predictions), dtype=np.int64)
        return {"brier": probability.brier_parts(np.asarray(predictions), np.asarray(references), one, 1).value}
