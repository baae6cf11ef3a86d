"""Best of n on real attempts: what choosing by a judge gives, beside majority, longest, shortest, random and oracle
(`rrm.evaluation.choosing`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrm.data.trajectory import Trajectory
from rrm.evaluation.choosing import OF_ANSWERS, STRATEGIES, grouped, measure


def best_of_n(
    rows: Sequence[Trajectory],
    scores: Mapping[str, np.ndarray],
    n: int,
    *,
    compare_answers: bool,
    resamples: int,
    seed: int,
) -> dict[str, Any] | None:
    """Mean outcome of what each strategy picks among n attempts, over the questions with n or more; None without any.

    Args:
        rows: attempts with an outcome, each scored.
        scores: name → (N,) scores, higher is better; `judge` is the one that the others are compared with.
        n: attempts to choose from.
        compare_answers: whether final answers can be compared, for `majority`.

    Returns:
        as `rrm.evaluation.choosing.measure`.
    """
    names = [name for name in STRATEGIES if name not in scores and (compare_answers or name not in OF_ANSWERS)]
    groups = grouped(rows, {name: values.tolist() for name, values in scores.items()})
    return measure(groups, [*scores, *names], n=n, resamples=resamples, seed=seed)
