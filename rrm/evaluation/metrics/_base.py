"""What our `evaluate.Metric` modules share: they keep their rows in memory and fetch nothing.

Each computes with the very function or statistic that `rrm eval` reports, at the point where every question counts once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rrm.errors import MissingExtra
from rrm.evaluation.bootstrap import Statistic, point

try:
    import evaluate
    from datasets import Features, Value
except ImportError as missing:
    raise MissingExtra("metric modules need the library evaluate: pip install 'agent-rrm[metrics]'") from missing


def one_question(rows: list[Any]) -> np.ndarray:
    """(N,) codes for a metric to which questions do not matter."""
    return np.zeros(len(rows), dtype=np.int64)


def value(statistic: Statistic, n_questions: int = 1) -> float | None:
    """The statistic on the rows as they are, None where it is undefined."""
    found = point(statistic, n_questions)
    return found if np.isfinite(found) else None


class LocalMetric(evaluate.Metric):
    """A metric declared by its docstring and `inputs`; a subclass writes `_compute` and nothing else."""

    inputs: ClassVar[tuple[tuple[str, str], ...]]
    """(input name, Arrow type), in the order `compute` documents them."""

    def __init__(self, config_name: str | None = None, keep_in_memory: bool = True, **kwargs: Any) -> None:
        # In memory by default: the library's cache file would be shared (and locked) between processes.
        super().__init__(config_name=config_name, keep_in_memory=keep_in_memory, **kwargs)

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="\nInputs: " + ", ".join(f"{name} ({kind})" for name, kind in self.inputs),
            features=Features({name: Value(kind) for name, kind in self.inputs}),
        )
