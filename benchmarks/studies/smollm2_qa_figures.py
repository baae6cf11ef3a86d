"""What `smollm2_qa` reports: EM and F1 with intervals over questions, paired differences and ratios.

Policies answer the same questions, so every resample draws the same questions for all of them. Several seeds of an arm are averaged
question by question; their interval is over questions alone, each seed's own stands beside it, and from three on one over both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.studies.study import two_way_interval
from rrm.evaluation.bootstrap import Interval, Ratio, bootstrap, paired_bootstrap, percentile_interval, replicates

METRICS = ("f1", "em")
OVER_SEEDS = 3
"""Runs of an arm from which on an interval over seeds and questions stands beside that over questions: of two it is as wide as the scale."""
Rows = Sequence[Mapping[str, Any]]


def table(runs: Sequence[Rows], metric: str) -> np.ndarray:
    """(seeds, questions) of a metric, questions by their ids.

    Raises:
        ValueError: the runs answer other questions.
    """
    found = [{row["id"]: float(row[metric]) for row in rows} for rows in runs]
    if any(one.keys() != found[0].keys() for one in found):
        raise ValueError("runs of one arm must answer the same questions")
    return np.array([[one[id] for id in sorted(one)] for one in found])


def mean(values: np.ndarray) -> Ratio:
    """The mean over questions, (Q,), as a statistic of how often each is drawn."""
    return Ratio(values, np.ones(len(values)))


def interval(values: np.ndarray) -> dict[str, float | None]:
    """Mean of (seeds, questions) with its interval over questions."""
    return _told(bootstrap(mean(values.mean(axis=0)), values.shape[1]))


def difference(above: np.ndarray, below: np.ndarray) -> dict[str, float | None]:
    """Mean of one table less that of another one of the same questions."""
    return _told(paired_bootstrap(mean(above.mean(axis=0)), mean(below.mean(axis=0)), above.shape[1]))


def ratio(above: np.ndarray, below: np.ndarray) -> dict[str, float | None]:
    """Mean of one table over that of another one of the same questions; None where that is 0."""
    over = Ratio(above.mean(axis=0), below.mean(axis=0))
    n = above.shape[1]
    if not below.any():
        return _told(Interval(None, None, None))
    return _told(percentile_interval(over.value, replicates({"it": over}, n)["it"]))


def _told(found: Interval) -> dict[str, float | None]:
    return {key: value if value is None else round(value, 4) for key, value in found.to_dict().items()}


def figures(
    policies: Mapping[str, Sequence[Rows]],
    sittings: Mapping[str, Sequence[int]],
    start: str,
    rival: str,
    controls: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """By policy: its figures, by source too, and what it does.

    Args:
        policies: name → rows of each seed; all of the same questions.
        sittings: name → in which sitting each of these runs was made.
        start: what `less_start` is taken from; rival: what `over_rival` is divided by. Both of a run's own sitting; runs of one without
            are left out of the comparison.
        controls: name → the policy whose gain over the start is taken from its own, `less_control`.
    """
    found: dict[str, Any] = {}
    for name, runs in policies.items():
        one: dict[str, Any] = {"seeds": len(runs), "questions": len(runs[0])}
        for metric in METRICS:
            mine = table(runs, metric)
            one[metric] = interval(mine)
            one[f"{metric}_by_seed"] = [round(float(value), 4) for value in mine.mean(axis=1)]
            if name != start and (beside := _beside(policies, sittings, name, start, metric)) is not None:
                runs_, base = beside
                one[f"{metric}_less_start"] = difference(runs_, base)
                one[f"{metric}_less_start_by_seed"] = [
                    difference(seed[None], began[None]) for seed, began in zip(runs_, base, strict=True)
                ]
                one["seeds_less_start"] = len(runs_)
                if len(runs_) >= OVER_SEEDS:
                    both = two_way_interval(runs_ - base)
                    one[f"{metric}_less_start_over_seeds"] = {key: round(value, 4) for key, value in both.items()}
                control = (controls or {}).get(name, "")
                if control in policies and (other := _beside(policies, sittings, control, start, metric)) is not None:
                    one[f"{metric}_less_control"] = difference(runs_ - base, other[0] - other[1])
            if name != rival and (beside := _beside(policies, sittings, name, rival, metric)) is not None:
                one[f"{metric}_over_rival"] = ratio(*beside)
        one["by_source"] = by_source(runs)
        for key in ("searches", "malformed", "tokens"):
            one[key] = round(float(np.mean([row[key] for rows in runs for row in rows])), 3)
        one["unanswered"] = round(float(np.mean([not row["answered"] for rows in runs for row in rows])), 4)
        found[name] = one
    return found


def _beside(
    policies: Mapping[str, Sequence[Rows]], sittings: Mapping[str, Sequence[int]], name: str, other: str, metric: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """(runs, questions) twice: of a policy, and of another one in the same sitting; None where no sitting has both."""
    where = {number: rows for number, rows in zip(sittings.get(other, ()), policies.get(other, ()), strict=True)}
    both = [(rows, where[k]) for rows, k in zip(policies[name], sittings[name], strict=True) if k in where]
    if not both:
        return None
    mine, others = zip(*both, strict=True)
    whole = table([*mine, *others], metric)  # of the same questions, or an error
    return whole[: len(mine)], whole[len(mine) :]


def by_source(runs: Sequence[Rows]) -> dict[str, dict[str, Any]]:
    """Means of the questions of each source."""
    sources = sorted({str(row["source"]) for row in runs[0]})
    return {
        source: {
            "questions": sum(row["source"] == source for row in runs[0]),
            **{
                metric: round(float(np.mean([r[metric] for rows in runs for r in rows if r["source"] == source])), 4)
                for metric in METRICS
            },
        }
        for source in sources
    }
