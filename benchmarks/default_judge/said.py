"""What a judge said of the mixture's rows: judged once and kept, and what follows from it without reading anything again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.default_judge.sources import Example
from benchmarks.judge_mint import judged
from rrm.data.feedback import Feedback, Mode
from rrm.evaluation.metrics.probability import CalibrationError
from rrm.scoring.run import ScoringJudge

FLOOR_DRAWS = 500


@dataclass
class Judged:
    """What one judge says of the rows in one mode."""

    mode: Mode
    feedback: dict[str, Feedback] = field(default_factory=dict)
    raw: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Files of raw rows, each with its number of rows and SHA-256."""

    def add(self, judge: ScoringJudge, rows: Sequence[Example], path: Path, seed: int) -> None:
        """Judge rows, or read what an earlier run judged."""
        found = judged(judge, [row.trajectory for row in rows], path, self.mode, seed)
        self.feedback |= {f.id: f for f in found}
        content = path.read_bytes()
        self.raw[path.name] = {"rows": content.count(b"\n"), "sha256": hashlib.sha256(content).hexdigest()}

    def score(self, row: Example) -> float | None:
        """The raw score; None where there is none."""
        found = self.feedback.get(row.trajectory.id)
        return found.raw_score if found is not None and found.status == "scored" else None


def coverage(feedback: Sequence[Feedback]) -> dict[str, Any] | None:
    """Median share of a transcript that was read, and the share of rows read whole; None where rows do not say it."""
    found = [c for f in feedback if (c := getattr(f, "coverage", None)) is not None]
    if not found:
        return None
    return {"median": float(np.median(found)), "whole": float(np.mean(np.array(found) >= 1.0)), "rows": len(found)}


def outside(feedback: Sequence[Feedback]) -> dict[str, Any] | None:
    """Share of rows marked as outside what the judge was measured on; None where rows do not say it."""
    marks = [f.out_of_domain for f in feedback if f.out_of_domain is not None]
    return {"share": float(np.mean(marks)), "rows": len(marks)} if marks else None


def floor_of(probabilities: Sequence[float], seed: int, draws: int = FLOOR_DRAWS) -> float:
    """The mean calibration error of a judge that is perfectly calibrated and says exactly this.

    |·| turns the noise of labels into error: with ten bins of fifty rows each, about 0.05 where no error is.
    """
    p, rng = np.asarray(probabilities, dtype=np.float64), np.random.default_rng(seed)
    rows, ones = np.zeros(len(p), dtype=np.int64), np.ones((1, 1))
    found = [CalibrationError(p, (rng.random(len(p)) < p).astype(float), rows, 1)(ones)[0] for _ in range(draws)]
    return float(np.mean(found))


def ece_floor(rows: Sequence[Example], said: Judged, seed: int) -> float | None:
    """`floor_of` the calibrated scores of rows with an outcome; None without any."""
    found = [said.feedback.get(row.trajectory.id) for row in rows if row.trajectory.outcome is not None]
    sure = [f.score for f in found if f is not None and f.status == "scored" and f.score is not None]
    return floor_of(sure, seed) if sure else None
