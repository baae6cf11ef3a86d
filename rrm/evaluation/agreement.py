"""Agreement of raters beyond chance, with intervals over clusters (questions, transcripts).

Krippendorff's α (*Content Analysis*, 4th ed., ch. 12) takes any raters and gaps; Cohen's κ (1960) two raters on what both rated.
Both are 1 − observed / expected disagreement, NaN where all labels are the same. L labels, Q clusters, B resamples.
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
    cluster: Hashable
    ratings: Ratings


@dataclass(frozen=True)
class Alpha:
    coincidences: np.ndarray
    """(Q, L, L): pairs of labels by different raters of a unit, over (its raters − 1)."""

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
    """Measure how far raters agree; units with fewer than two raters are only counted (`single`).
    Returns `units, single, clusters, labels` (label → ratings), `alpha` and `same` (share of pairs of raters with one label) as
    `Interval.to_dict`, and `pairs`: per two raters `{raters, units, same, kappa}`."""
    rated = [unit for unit in units if len(unit.ratings) > 1]
    labels = sorted({label for unit in rated for label in unit.ratings.values()})
    codes = {label: i for i, label in enumerate(labels)}
    clusters = {name: i for i, name in enumerate(dict.fromkeys(unit.cluster for unit in rated))}
    counts = {label: sum(list(u.ratings.values()).count(label) for u in rated) for label in labels}
    report: dict[str, Any] = {"units": len(rated), "single": len(units) - len(rated), "clusters": len(clusters)}
    report["labels"] = counts
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
        return {**report, "alpha": nothing, "same": nothing, "pairs": []}
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
    return {**report, "alpha": interval("alpha", together), "same": interval("same", together), "pairs": pairs}


def _same(table: np.ndarray) -> Ratio:
    return Ratio(np.trace(table, axis1=1, axis2=2), table.sum(axis=(1, 2)))
