"""Area under the ROC curve over all rows: easy to fool by question difficulty and length, so never the headline."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, probability


class AUROC(_base.LocalMetric):
    """AUROC of scores against labels (positive from 0.5). Returns `auroc`, None where only one class is present."""

    inputs = (("predictions", "float64"), ("references", "float64"))

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, Any]:
        rows = np.asarray(predictions), np.asarray(references), _base.one_question(predictions)
        return {"auroc": _base.value(probability.Auroc(*rows))}
