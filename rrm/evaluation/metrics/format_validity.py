"""Format validity: how often a judge writes what its mode asks for."""

from __future__ import annotations

from typing import Any

from rrm.data.feedback import Feedback
from rrm.evaluation.metrics import _base, text


class FormatValidity(_base.LocalMetric):
    """Share of well-formed replies among the rows the judge answered in writing (not `too_long`, not `judge_error`, and none of
    a judge that reads its score from probabilities).

    `predictions` are the rows of `rrm score`, one JSON line each. Returns `format_validity` (None without a reply), `rows`.
    """

    inputs = (("predictions", "string"),)

    def _compute(self, predictions: list[str]) -> dict[str, Any]:
        feedback = [Feedback.from_json(line) for line in predictions]
        return {"format_validity": text.format_validity(feedback), "rows": len(text.replies(feedback))}
