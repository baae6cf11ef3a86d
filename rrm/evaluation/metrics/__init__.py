"""Measures of a judge: pure numpy functions, and over them local `evaluate.Metric` modules that need no hub.

Use a class directly, `from rrm.evaluation.metrics import PairAccuracy; PairAccuracy().compute(...)`, or load its file,
`evaluate.load("rrm/evaluation/metrics/pair_accuracy.py")`. The functions live in `pairs`, `probability`, `localisation`,
`process` and `text`; they import without `evaluate`, which takes seconds, so the classes are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrm.evaluation.metrics.answer_leak import AnswerLeak
    from rrm.evaluation.metrics.auroc import AUROC
    from rrm.evaluation.metrics.best_of_n import BestOfN
    from rrm.evaluation.metrics.brier import Brier
    from rrm.evaluation.metrics.ece import ECE
    from rrm.evaluation.metrics.format_validity import FormatValidity
    from rrm.evaluation.metrics.length_correlation import LengthCorrelation
    from rrm.evaluation.metrics.pair_accuracy import PairAccuracy
    from rrm.evaluation.metrics.rerun_variance import RerunVariance
    from rrm.evaluation.metrics.step_localisation import StepLocalisation
    from rrm.evaluation.metrics.step_ranking import StepRanking

FILES = {
    "AUROC": "auroc",
    "AnswerLeak": "answer_leak",
    "BestOfN": "best_of_n",
    "Brier": "brier",
    "ECE": "ece",
    "FormatValidity": "format_validity",
    "LengthCorrelation": "length_correlation",
    "PairAccuracy": "pair_accuracy",
    "RerunVariance": "rerun_variance",
    "StepLocalisation": "step_localisation",
    "StepRanking": "step_ranking",
}
__all__ = [
    "AUROC",
    "AnswerLeak",
    "BestOfN",
    "Brier",
    "ECE",
    "FormatValidity",
    "LengthCorrelation",
    "PairAccuracy",
    "RerunVariance",
    "StepLocalisation",
    "StepRanking",
]


def __getattr__(name: str) -> Any:
    if name not in FILES:
        raise AttributeError(
            f"module 'rrm.evaluation.metrics' has no attribute {name!r}; metrics are {', '.join(FILES)}"
        )
    return getattr(importlib.import_module(f"rrm.evaluation.metrics.{FILES[name]}"), name)
