"""Folds for what is measured on other questions than it was fitted on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from rrm.errors import RRMError


class TooFew(RRMError):
    """Fewer rows, or groups of rows, than a fit or its folds need."""


def grouped_folds(groups: Sequence[str], k: int, seed: int) -> np.ndarray:
    """(N,) fold of each row, 0 … k − 1; all rows of a group share one, and folds differ by at most one group.

    Raises:
        TooFew: fewer groups than folds.
    """
    order = sorted(set(groups))
    if len(order) < k:
        raise TooFew(f"{k} folds need at least {k} questions, there are {len(order)}")
    random.Random(seed).shuffle(order)
    fold = {group: i % k for i, group in enumerate(order)}
    return np.array([fold[group] for group in groups])
