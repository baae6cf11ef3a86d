"""Brier score: mean squared distance of the calibrated score from the label."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, probability


class Brier(_base.LocalMetric):
    """Mean (score − label)², lower is better; always saying the base rate p scores p(1 − p). Returns `brier`."""

    inputs = (("predictions", "float64"), ("references", "float64"))

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, Any]:
        rows = np.asarray(predictions), np.asarray(references), _base.one_question(predictions)
        return {"brier": _base.value(probability.brier_parts(*rows, 1))}
