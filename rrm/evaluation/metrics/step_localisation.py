"""Step localisation: agreement of a judge's verdicts on steps with labels, one entry a labelled step."""

from __future__ import annotations

from typing import Any

import numpy as np

from rrm.data import localisation
from rrm.evaluation.metrics import _base


class StepLocalisation(_base.LocalMetric):
    """MCC, macro-F1 and the F1 of "bad" from verdicts `good`/`bad`; a judge's silence on a step is passed as `good`."""

    inputs = (("predictions", "string"), ("references", "string"))

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        unknown = sorted({*predictions, *references} - {"good", "bad"})
        if unknown:
            raise ValueError(f"verdicts must be 'good' or 'bad', got {unknown[:3]}")
        said, true = np.array(predictions) == "bad", np.array(references) == "bad"
        counts = localisation.confusion(said, true, _base.one_question(predictions), 1)
        found = {name: _base.value(localisation.OfConfusion(name, counts)) for name in ("mcc", "macro_f1", "f1_bad")}
        return {**found, "steps": len(said)}
