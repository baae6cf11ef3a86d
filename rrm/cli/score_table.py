"""The table after `rrm score`."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rrm.data.feedback import OUTSIDE
from rrm.data.trajectory import Trajectory
from rrm.prompt.rules import step_lines

WORST = 3  # runs that are named
Row = dict[str, Any]


def score_lines(summary: dict[str, Any], trajectories: Iterable[Trajectory]) -> Iterator[tuple[str, str]]:
    """Name and text of each line, from the summary and the rows in its output.

    Args:
        trajectories: what was judged, read until the worst runs are found.
    """
    scores: list[float] = []
    runs, steps = Counter[str](), Counter[str]()

    def scored(file: Iterable[str]) -> Iterator[Row]:
        for row in map(json.loads, file):
            runs.update(filter(None, [row.get("verdict")]))
            steps.update(finding["verdict"] for finding in row["findings"])
            if row["score"] is not None:
                scores.append(row["score"])
                yield row

    with open(summary["output"], encoding="utf-8") as file:
        worst = heapq.nsmallest(WORST, scored(file), key=lambda row: row["score"])
    yield "scored", f"{len(scores)} of {_count(summary['rows'], 'transcript')}"
    if failed := {name: n for name, n in summary["statuses"].items() if name != "scored"}:
        yield "failed", f"{_counts(failed)}; the first: {summary['first_failure']}"
    if summary["unreadable"]:
        yield "not read", f"{_count(summary['unreadable'], 'line')}, see {summary['errors']}"
    if scores:
        low, first, median, third, high = np.quantile(scores, (0, 0.25, 0.5, 0.75, 1))
        yield "score", f"median {median:.2f}, middle half {first:.2f} to {third:.2f}, all {low:.2f} to {high:.2f}"
    if runs:
        yield "runs", _counts(runs)
    if steps:
        yield "steps", _counts(steps)
    if (domain := summary["out_of_domain"] or {}).get("outside"):
        yield "outside", f"{domain['outside']} of {domain['rows']} transcripts are {OUTSIDE}"
    if (escalation := summary.get("escalation")) is not None:
        yield "escalated", f"{escalation['escalated']} of {escalation['unsure']} unsure, to {escalation['model']}"
    if cost := (summary["usage"] or {}).get("cost"):
        yield "cost", f"{cost:.4g}"
    by_id = _trajectories(trajectories, {row["id"] for row in worst})
    for row in worst:
        yield "worst" if row is worst[0] else "", f"{row['score']:.2f} {row['id']}{_why(row, by_id.get(row['id']))}"
    yield "rows", summary["output"]
    if summary.get("html"):
        yield "page", summary["html"]


def _why(row: Row, trajectory: Trajectory | None) -> str:
    """Return the worst step of a run and what was wrong or happened in it."""
    findings = row["findings"]
    judged = [f for f in findings if f["verdict"] in ("bad", "good")]
    if not judged:
        return f": unsure of all {_count(len(findings), 'step')}" if findings else ""
    lowest = min(judged, key=lambda f: (f["verdict"] != "bad", 1.0 if f.get("p_good") is None else f["p_good"]))
    step, text, p_good = lowest["step"], lowest["text"], lowest.get("p_good")
    if (not text or text.startswith("good with probability")) and trajectory is not None:
        text = next(iter(step_lines(trajectory.steps)[step - 1 : step]), "")
    probability = "" if p_good is None else f" (good with probability {p_good:.2f})"
    return f": step {step}{', ' if text else ''}{' '.join(text.split())[:120]}{probability}"


def _trajectories(trajectories: Iterable[Trajectory], ids: set[str]) -> dict[str, Trajectory]:
    found: dict[str, Trajectory] = {}
    for trajectory in trajectories if ids else ():
        if trajectory.id in ids:
            found[trajectory.id] = trajectory
            if len(found) == len(ids):
                break
    return found


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in sorted(counts.items()))
