"""Best-of-n: what choosing by the judge's score gains over choosing at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, pairs


class BestOfN(_base.LocalMetric):
    """Label of the best-scored attempt at a question minus the mean label, averaged over questions with two or more.

    Attempts tied for the best score are averaged. Returns `best_of_n_gain` (None without such a question), `questions`.
    """

    inputs = (("predictions", "float64"), ("references", "float64"), ("question_ids", "string"))

    def _compute(self, predictions: list[float], references: list[float], question_ids: list[str]) -> dict[str, Any]:
        questions, n = pairs.codes(question_ids)
        parts = pairs.best_of_n_parts(np.asarray(predictions), np.asarray(references), questions, n)
        return {"best_of_n_gain": _base.value(parts, n), "questions": int(parts.denominator.sum())}
