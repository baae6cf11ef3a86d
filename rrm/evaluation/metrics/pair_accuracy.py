"""The headline: pair accuracy inside a question, by default with the same number of agent turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.evaluation.metrics import _base, pairs


class PairAccuracy(_base.LocalMetric):
    """Of all pairs of attempts at one question with different labels, how often the better one has the higher score.

    Ties count ½; pairs are pooled over questions. `compute(..., match_turns=False)` also pairs attempts of different
    length. Returns `pair_accuracy` (None without pairs), `pairs` and `questions` (those that have pairs).
    """

    inputs = (("predictions", "float64"), ("references", "float64"), ("question_ids", "string"), ("turns", "int64"))

    def _compute(
        self,
        predictions: list[float],
        references: list[float],
        question_ids: list[str],
        turns: list[int],
        match_turns: bool = True,
    ) -> dict[str, Any]:
        questions, n = pairs.codes(question_ids)
        matched = np.asarray(turns) if match_turns else None
        parts = pairs.pair_parts(np.asarray(predictions), np.asarray(references), questions, n, matched)
        having = int(np.count_nonzero(parts.denominator))
        return {"pair_accuracy": _base.value(parts, n), "pairs": int(parts.denominator.sum()), "questions": having}
