"""Measure a cascade offline: what a part of the stronger judge's cost buys, from recorded rows of two judges on the same labelled runs.

    python -m benchmarks.studies.cascade runs.jsonl --labels labels.jsonl --small out.small.jsonl --stronger all.jsonl -o cascade.json

Both files hold a row of each run, as `rrm score` writes them. Rows go to the stronger judge in an order, as long as their summed cost is within a
share of the cost of all. Measured on all labelled steps: accuracy, F1 of the class "bad", AUROC. A step is bad where p_good < 0.5, also where the
small judge is unsure; a verdict without p_good is 0 or 1; a step of which nothing is said is good. Where the stronger judge gave no score the
small judge's row stays, and the cost is paid.

| order | rows |
|---|---|
| `least_sure` | as `rrm.scoring.cascade` escalates them, then the sure ones by the same key |
| `doubt_per_cost` | by the summed probability that the small judge errs (min(p, 1 − p) of each step) over the row's cost |
| `random` | 200 draws: their mean, and the middle 95 % of them |
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from rrm.data import localisation
from rrm.data.annotation import match, read_annotations
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory, read_canonical
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import point
from rrm.evaluation.metrics.probability import Auroc
from rrm.scoring.cascade import is_sure, sureness, verdicts_of
from rrm.scoring.row_matching import feedback_rows, match_rows

SHARES = (0.0, 0.1, 0.3, 1.0)
DRAWS = 200
HEADLINE = "error_f1"  # the measure of `share_of_gain_at_30`


@dataclass(frozen=True)
class Recorded:
    """N runs that two judges read, and their M labelled steps."""

    row: np.ndarray  # (M,) the run that a step is of, in [0, N)
    bad: np.ndarray  # (M,) labels, booleans
    small: np.ndarray  # (M,) p_good in [0, 1]
    stronger: np.ndarray  # (M,) p_good; the small judge's where the stronger one gave no score
    cost: np.ndarray  # (N,) of the stronger judge's rows
    orders: dict[str, np.ndarray]  # (N,) runs, the first to go to the stronger judge first

    def at(self, order: np.ndarray, share: float) -> tuple[int, dict[str, float]]:
        """Measure the cascade that spends this share of the cost: how many rows went on, and the quality."""
        count = affordable(self.cost[order], share)
        gone = np.zeros(len(self.cost), dtype=bool)
        gone[order[:count]] = True
        return count, quality(np.where(gone[self.row], self.stronger, self.small), self.bad)


def affordable(cost: np.ndarray, share: float) -> int:
    """Count the rows from the first on whose summed (N,) cost is within a share of all."""
    return int(np.searchsorted(np.cumsum(cost), share * cost.sum() * (1 + 1e-9), side="right"))


def quality(p_good: np.ndarray, bad: np.ndarray) -> dict[str, float]:
    """Measure (M,) probabilities against (M,) labels; AUROC is nan where one class is absent."""
    one = np.zeros(len(bad), dtype=np.int64)
    counts = localisation.confusion(p_good < 0.5, bad, one, 1)[0]
    return {
        "accuracy": float((counts[0] + counts[3]) / counts.sum()),
        "error_f1": float(localisation.f1_bad(counts)),
        "auroc": float(point(Auroc(p_good, (~bad).astype(np.float64), one), 1)),
    }


def p_of(feedback: Feedback, step: int) -> float:
    """Give a judge's probability that a step, counted from 1, was good."""
    probabilities = [f.p_good for f in feedback.findings if f.step == step and f.p_good is not None]
    return min(probabilities) if probabilities else float(verdicts_of(feedback).get(step, "good") == "good")


def costs_of(rows: Sequence[Feedback]) -> tuple[str, np.ndarray]:
    """Give what each row cost: in money where all rows say so, else in tokens; RRMError where they say neither."""
    usages = [row.usage for row in rows]
    if all(usage is not None and usage.cost is not None for usage in usages):
        return "money", np.array([usage.cost for usage in usages if usage is not None])
    tokens = [0 if usage is None else usage.prompt_tokens + usage.completion_tokens for usage in usages]
    if not all(tokens):
        raise RRMError("the stronger judge's rows do not say what they used: record them with a server that does")
    return "tokens", np.array(tokens, dtype=np.float64)


def recorded(
    labels: Sequence[localisation.StepLabels], small: Sequence[Feedback], stronger: Sequence[Feedback]
) -> tuple[str, Recorded]:
    """Line up two judges' rows with step labels, one entry a run; says what cost is counted in."""
    unit, cost = costs_of(stronger)
    rows, bad, ours, theirs = [], [], [], []
    for number, (of, first, second) in enumerate(zip(labels, small, stronger, strict=True)):
        best = second if second.status == "scored" else first
        for step, label in enumerate(of, 1):
            if label in ("good", "bad"):
                rows.append(number)
                bad.append(label == "bad")
                ours.append(p_of(first, step))
                theirs.append(p_of(best, step))
    doubt = [sum(min(f.p_good, 1 - f.p_good) for f in row.findings if f.p_good is not None) for row in small]
    numbers = range(len(small))
    orders = {
        "least_sure": np.array(sorted(numbers, key=lambda i: (is_sure(small[i]), sureness(small[i])))),
        "doubt_per_cost": np.argsort(-np.array(doubt) / cost, kind="stable"),
    }
    arrays = np.array(rows), np.array(bad, dtype=bool), np.array(ours), np.array(theirs)
    return unit, Recorded(*arrays, cost, orders)


def study(runs: Recorded, seed: int = 0, draws: int = DRAWS) -> dict[str, Any]:
    """Measure every order at every share.

    Returns:
        `curve`: by share of the cost the rows that went on and the quality of each order; `gain`: the stronger judge's quality less the small
        one's; `share_of_gain`: by order and measure the part of it at 30 % (None where there is no gain), and `share_of_gain_at_30` of `HEADLINE`.
    """
    chance = np.random.default_rng(seed)
    drawn = [chance.permutation(len(runs.cost)) for _ in range(draws)]
    curve: list[dict[str, Any]] = []
    for share in SHARES:
        point: dict[str, Any] = {"share": share}
        for name, order in runs.orders.items():
            count, measures = runs.at(order, share)
            point[name] = {"rows": count, **measures}
        each = [runs.at(order, share)[1] for order in drawn]
        point["random"] = {m: _spread([one[m] for one in each]) for m in each[0]}
        curve.append(point)
    small, at_30, full = curve[0], curve[2], curve[-1]
    measures = [name for name in small["least_sure"] if name != "rows"]
    gain = {m: full["least_sure"][m] - small["least_sure"][m] for m in measures}

    def part(value: float, m: str) -> float | None:
        return (value - small["least_sure"][m]) / gain[m] if gain[m] > 0 else None

    parts: dict[str, Any] = {name: {m: part(at_30[name][m], m) for m in measures} for name in runs.orders}
    parts["random"] = {m: {k: part(v, m) for k, v in at_30["random"][m].items()} for m in measures}
    headline = parts["least_sure"][HEADLINE]
    return {"curve": curve, "gain": gain, "share_of_gain": parts, "share_of_gain_at_30": headline}


def _spread(values: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(values, (2.5, 97.5))
    return {"value": float(np.mean(values)), "low": float(low), "high": float(high)}


def read(runs: Path, labels: Path | None, small: Path, stronger: Path) -> tuple[str, Recorded]:
    """Read the labelled runs that both judges have a row of; RRMError where none has, or labels are of no run."""
    trajectories: list[Trajectory] = list(read_canonical(runs))
    matched = match(trajectories, [] if labels is None else read_annotations(labels))
    if (complaint := matched.complaint()) is not None:
        raise RRMError(f"{labels}: {complaint}")
    pairs = zip(
        trajectories, *(match_rows(feedback_rows(path), trajectories, path) for path in (small, stronger)), strict=True
    )
    judged_runs = [
        (labels_of_steps, first, second)
        for t, first, second in pairs
        if first is not None
        and second is not None
        and (labels_of_steps := localisation.step_labels(t, matched.by_id.get(t.id, [])))
    ]
    if not judged_runs:
        raise RRMError(f"no run of {runs} has step labels and a row of both judges")
    return recorded(*map(list, zip(*judged_runs, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="canonical transcripts")
    parser.add_argument("--labels", type=Path, help="annotations with findings; else those in the transcripts")
    parser.add_argument("--small", type=Path, required=True)
    parser.add_argument("--stronger", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, default=record.RESULTS / "cascade.json")
    args = parser.parse_args()
    unit, runs = read(args.runs, args.labels, args.small, args.stronger)
    figures = study(runs, args.seed)
    about = {"rows": len(runs.cost), "steps": len(runs.bad), "bad_share": float(runs.bad.mean())}
    about |= {"cost": float(runs.cost.sum()), "cost_in": unit, "seed": args.seed, "draws": DRAWS}
    made = {"command": record.command("studies.cascade"), **record.made_with("numpy")}
    record.write(args.out, {**about, **figures, **made})
    for name, parts in figures["share_of_gain"].items():
        print(name, parts)


if __name__ == "__main__":
    main()
