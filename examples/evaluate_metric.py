"""A measure of `rrm eval` as a metric of Hugging Face's `evaluate`; the others are in rrm/evaluation/metrics.

pip install evaluate
python examples/evaluate_metric.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

try:
    import evaluate
    from datasets import Features, Value
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install evaluate")

from rrm.evaluation.bootstrap import point
from rrm.evaluation.metrics.probability import Auroc


class AUROC(evaluate.Metric):
    """AUROC of scores against labels, which count as positive from 0.5. Returns `auroc`, NaN where only one class is present."""

    def _info(self) -> evaluate.MetricInfo:
        inputs = Features({"predictions": Value("float64"), "references": Value("float64")})
        return evaluate.MetricInfo(description=self.__doc__ or "", citation="", features=inputs)

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, Any]:
        one_question = np.zeros(len(predictions), dtype=np.int64)
        return {"auroc": point(Auroc(np.asarray(predictions), np.asarray(references), one_question), 1)}


if __name__ == "__main__":
    print(AUROC(keep_in_memory=True).compute(predictions=[0.8, 0.4, 0.4, 0.2], references=[1, 1, 0, 0]))
