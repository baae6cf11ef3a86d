"""How far raters agree beyond chance, with intervals over clusters (questions, transcripts).

Krippendorff's α (*Content Analysis*, 4th ed., ch. 12) takes any number of raters and any gaps; Cohen's κ (1960) two raters on what both rated. Both are
1 − observed / expected disagreement over nominal labels and are made of counts that are sums over units, so a bootstrap over clusters needs
one product of draws and counts a resample (`rrm.evaluation.bootstrap`). Where everybody always says the same label, chance would do as well and both
are undefined (NaN), not 1.

Legend: L labels, Q clusters, B resamples.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from rrm.evaluation.bootstrap import Interval, Ratio, own_interval, replicates, too_few

Ratings = Mapping[str, str]
"""Rater → label, of one unit."""


@dataclass(frozen=True)
class Unit:
    """What was rated by somebody."""

    cluster: Hashable
    """What it is drawn with: units of one cluster are not independent."""
    ratings: Ratings


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's α of nominal labels as a statistic over drawn clusters."""

    coincidences: np.ndarray
    """(Q, L, L): each unit's pairs of labels of different raters, over (its raters − 1)."""

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        pairs = np.tensordot(counts, self.coincidences, axes=1)  # (B, L, L)
        marginal = pairs.sum(axis=2)  # (B, L)
        total = marginal.sum(axis=1)  # (B,)
        observed = total - np.trace(pairs, axis1=1, axis2=2)
        expected = total**2 - (marginal**2).sum(axis=1)  # times (total − 1)⁻¹
        share = np.divide(
            observed * (total - 1), expected, out=np.full(len(total), np.nan), where=expected > 1e-9 * total**2
        )
        return 1.0 - share


@dataclass(frozen=True)
class Kappa:
    """Cohen's κ of two raters as a statistic over drawn clusters."""

    confusion: np.ndarray
    """(Q, L, L): units by the first rater's label and the second's."""

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        table = np.tensordot(counts, self.confusion, axes=1)
        total = table.sum(axis=(1, 2))
        expected = total**2 - (table.sum(axis=1) * table.sum(axis=2)).sum(axis=1)
        observed = total * (total - np.trace(table, axis1=1, axis2=2))
        share = np.divide(observed, expected, out=np.full(len(total), np.nan), where=expected > 1e-9 * total**2)
        return 1.0 - share


def agreement(units: Sequence[Unit], *, resamples: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """How far the raters of these units agree.

    Args:
        units: those of fewer than two raters are counted and say nothing.

    Returns:
        `units` (rated by two or more), `single`, `clusters`, `labels` (label → ratings), `alpha` and `same` (share of pairs of raters with one label)
        as `Interval.to_dict`, and `pairs`: for each two raters with units in common `{raters, units, same, kappa}`. No interval where too little
        carries it (`rrm.evaluation.bootstrap.too_few`).
    """
    rated = [unit for unit in units if len(unit.ratings) > 1]
    labels = sorted({label for unit in rated for label in unit.ratings.values()})
    codes = {label: i for i, label in enumerate(labels)}
    clusters = {name: i for i, name in enumerate(dict.fromkeys(unit.cluster for unit in rated))}
    said = {label: sum(list(u.ratings.values()).count(label) for u in rated) for label in labels}
    found: dict[str, Any] = {"units": len(rated), "single": len(units) - len(rated), "clusters": len(clusters)}
    found["labels"] = said
    shape = (len(clusters), len(labels), len(labels))
    both = np.zeros(shape)
    tables: dict[tuple[str, str], np.ndarray] = {}
    for unit in rated:
        q = clusters[unit.cluster]
        for (a, of_a), (b, of_b) in combinations(sorted(unit.ratings.items()), 2):
            i, j = codes[of_a], codes[of_b]
            both[q, i, j] += 1 / (len(unit.ratings) - 1)
            both[q, j, i] += 1 / (len(unit.ratings) - 1)
            tables.setdefault((a, b), np.zeros(shape))[q, i, j] += 1
    tables = dict(sorted(tables.items()))
    statistics: dict[str, Any] = {"alpha": Alpha(both)}
    together = sum(tables.values(), np.zeros(shape))
    statistics["same"] = _same(together)
    for k, table in enumerate(tables.values()):
        statistics[f"kappa {k}"], statistics[f"same {k}"] = Kappa(table), _same(table)
    if not rated:
        nothing = Interval(None, None, None).to_dict()
        return {**found, "alpha": nothing, "same": nothing, "pairs": []}
    drawn = replicates(statistics, len(clusters), n=resamples, seed=seed)

    def interval(name: str, table: np.ndarray) -> dict[str, float | None]:
        few = too_few(int(np.count_nonzero(table.sum(axis=(1, 2)))), round(table.sum()))
        return own_interval(statistics[name], len(clusters), drawn[name]).unless(few).to_dict()

    pairs = [
        {
            "raters": list(names),
            "units": int(table.sum()),
            "same": interval(f"same {k}", table),
            "kappa": interval(f"kappa {k}", table),
        }
        for k, (names, table) in enumerate(tables.items())
    ]
    return {**found, "alpha": interval("alpha", together), "same": interval("same", together), "pairs": pairs}


def _same(table: np.ndarray) -> Ratio:
    return Ratio(np.trace(table, axis1=1, axis2=2), table.sum(axis=(1, 2)))
