"""Correlation of the score with length: a judge that only measures length shows it here."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, text


class LengthCorrelation(_base.LocalMetric):
    """Spearman's rank correlation of scores with transcript lengths. Returns `spearman`, None if either is constant."""

    inputs = (("predictions", "float64"), ("lengths", "int64"))

    def _compute(self, predictions: list[float], lengths: list[int]) -> dict[str, Any]:
        return {"spearman": text.length_correlation(np.asarray(predictions), np.asarray(lengths))}
