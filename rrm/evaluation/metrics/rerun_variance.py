"""Re-run variance: how much a score moves when the same transcript is judged again with another seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, text


class RerunVariance(_base.LocalMetric):
    """Mean variance (ddof = 1) of a row's scores over runs. Returns `variance, std, max_range, rows` (judged twice or more)."""

    inputs = (("predictions", "float64"), ("ids", "string"))

    def _compute(self, predictions: list[float], ids: list[str]) -> dict[str, Any]:
        return text.rerun_variance(np.asarray(predictions), ids)
