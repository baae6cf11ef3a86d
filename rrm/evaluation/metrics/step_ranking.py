"""Step ranking: a judge's probabilities of single steps against labels, one entry a labelled step."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.data import localisation
from rrm.evaluation.metrics import _base, pairs, probability, process


class StepRanking(_base.LocalMetric):
    """AUROC and average precision (of "bad") of p_good; at a `threshold` (0.5) MCC, first errors found, false alarms.

    `references` are `good`/`bad`; `run_ids` say which transcript a step is of, whose steps stand in their order. A prediction that is
    NaN is of a step that was not read: it counts for the first errors alone, where a fault there is one missed.
    """

    inputs = (("predictions", "float64"), ("references", "string"), ("run_ids", "string"))

    def _compute(
        self, predictions: list[float], references: list[str], run_ids: list[str], threshold: float = process.HALF
    ) -> dict[str, Any]:
        unknown = sorted(set(references) - {"good", "bad"})
        if unknown:
            raise ValueError(f"references must be 'good' or 'bad', got {unknown[:3]}")
        every, all_bad = np.asarray(predictions, dtype=np.float64), np.array(references) == "bad"
        read = ~np.isnan(every)
        p, bad, one = every[read], all_bad[read], _base.one_question(predictions)[read]
        said = localisation.confusion(p < threshold, bad, one, 1)
        statistics = {
            "auroc": probability.Auroc(p, (~bad).astype(np.float64), one),
            "average_precision": process.AveragePrecision(p, bad, one),
            "mcc": localisation.OfConfusion("mcc", said),
            **process.first_errors(
                every, all_bad, pairs.codes(run_ids)[0], _base.one_question(predictions), 1, threshold
            ),
        }
        return {**{name: _base.value(statistic) for name, statistic in statistics.items()}, "steps": len(p)}
