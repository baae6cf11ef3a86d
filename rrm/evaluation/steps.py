"""Evaluate a judge's verdicts on steps against step labels, beside baselines without a judge.

A labelled step without a finding counts as "good"; `spoken` measures the other steps alone. A step on which the judge abstains is
left out for every method. Shuffled findings, the chance level, are another transcript's of the same number of steps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrm.data import localisation
from rrm.data.feedback import Feedback
from rrm.data.questions import question_of
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.evaluation.bootstrap import compare, too_few
from rrm.evaluation.metrics import pairs

log = logging.getLogger(__name__)
MEASURES = ("mcc", "macro_f1", "f1_bad")
SHUFFLES = 20


def _silence_is_good(verdicts: Sequence[str | None]) -> list[str]:
    return [v or "good" for v in verdicts]


class _Labelled:
    """The M labelled steps as flat arrays: `row` (M,), `step` (M,) from 0, `bad` (M,)."""

    def __init__(self, keys: Sequence[str], labels: Sequence[Sequence[str | None]]) -> None:
        entries = [(r, k, v == "bad") for r, row in enumerate(labels) for k, v in enumerate(row) if v is not None]
        self.row = np.array([e[0] for e in entries], dtype=np.int64)
        self.step = np.array([e[1] for e in entries], dtype=np.int64)
        self.bad = np.array([e[2] for e in entries], dtype=bool)
        per_row, self.n_questions = pairs.codes(list(keys))
        self.questions = per_row[self.row]

    def of(self, marks: Sequence[Sequence[bool]]) -> np.ndarray:
        return np.array([marks[r][k] for r, k in zip(self.row, self.step, strict=True)], dtype=bool)

    def confusion(self, verdicts: Sequence[Sequence[str | None]], where: np.ndarray | None = None) -> np.ndarray:
        """Return (Q, 4) of one verdict a step per row; `where` (M,) limits it to some labelled steps."""
        bad = np.array([verdicts[r][k] == "bad" for r, k in zip(self.row, self.step, strict=True)], dtype=bool)
        keep = np.ones(len(bad), dtype=bool) if where is None else where
        return localisation.confusion(bad[keep], self.bad[keep], self.questions[keep], self.n_questions)


def _shuffled(labelled: _Labelled, findings: list[Any], n_steps: list[int], seed: int) -> np.ndarray:
    """Return the (Q, 4) mean confusion of findings that were written about another transcript."""
    total = np.zeros((labelled.n_questions, 4))
    for i in range(SHUFFLES):
        donor = localisation.donors(n_steps, derive_seed(seed, "shuffled findings", i))
        borrowed = [localisation.step_verdicts(findings[d], n) for d, n in zip(donor, n_steps, strict=True)]
        silent = [localisation.abstained(findings[d], n) for d, n in zip(donor, n_steps, strict=True)]
        total += labelled.confusion([_silence_is_good(v) for v in borrowed], ~labelled.of(silent))
    return total / SHUFFLES


def _table(confusions: dict[str, np.ndarray], n_questions: int, n: int, seed: int) -> dict[str, Any]:
    table = {who: {m: localisation.OfConfusion(m, c) for m in MEASURES} for who, c in confusions.items()}
    few = too_few(int(np.count_nonzero(confusions["judge"].sum(1))), int(confusions["judge"].sum()))
    return compare(table, n_questions, thin=lambda _: few, n=n, seed=seed)


def evaluate_steps(
    trajectories: Sequence[Trajectory],
    feedback: Sequence[Feedback | None],
    step_labels: Sequence[Sequence[Any] | None] | None,
    step_baselines: Mapping[str, Sequence[Sequence[Any]]],
    resamples: int,
    seed: int,
) -> dict[str, Any] | None:
    """Measure step verdicts over rows that are labelled, scored and judged in a mode that writes findings.
    `step_baselines`: name → per trajectory one verdict a step. Returns `rows, steps, questions, bad_share, spoken_share`, `unclear`
    (findings without a readable verdict, which count as silence), `unsure` (labelled steps on which the judge abstains), `metrics` and
    `differences` as in `rrm.evaluation.evaluate`, `spoken` (on the steps the judge spoke of); None where nothing is left."""
    if step_labels is None:
        return None
    rows = [
        i
        for i, (f, labels) in enumerate(zip(feedback, step_labels, strict=True))
        if f is not None
        and f.status == "scored"
        and f.judge.mode != "score"
        and any(v is not None for v in labels or ())
    ]
    if not rows:
        return None
    n_steps = [len(trajectories[i].steps) for i in rows]
    labels = [list(step_labels[i] or ()) for i in rows]
    for i, n, row in zip(rows, n_steps, labels, strict=True):
        if len(row) != n:
            raise ValueError(f"trajectory {trajectories[i].id!r} has {n} steps and {len(row)} step labels")
    findings = [f.findings for i in rows if (f := feedback[i]) is not None]
    spoken = [localisation.step_verdicts(f, n) for f, n in zip(findings, n_steps, strict=True)]
    abstained = [localisation.abstained(f, n) for f, n in zip(findings, n_steps, strict=True)]
    unsure = sum(
        v is not None and a
        for row, silent in zip(labels, abstained, strict=True)
        for v, a in zip(row, silent, strict=True)
    )
    labels = [
        [None if a else v for v, a in zip(row, silent, strict=True)]
        for row, silent in zip(labels, abstained, strict=True)
    ]
    if not any(v is not None for row in labels for v in row):
        log.warning("the judge abstains on all %d labelled steps: nothing is measured of its verdicts", unsure)
        return None
    labelled = _Labelled([question_of(trajectories[i]) for i in rows], labels)
    confusions = {
        "judge": labelled.confusion([_silence_is_good(v) for v in spoken]),
        "all_bad": labelled.confusion([["bad"] * n for n in n_steps]),
        **{name: labelled.confusion([verdicts[i] for i in rows]) for name, verdicts in step_baselines.items()},
    }
    if len(rows) > 1:
        confusions["shuffled"] = _shuffled(labelled, findings, n_steps, seed)
    covered = np.array([spoken[r][k] is not None for r, k in zip(labelled.row, labelled.step, strict=True)], dtype=bool)
    on_covered = labelled.confusion([_silence_is_good(v) for v in spoken], covered).sum(axis=0)
    return {
        "rows": len(rows),
        "steps": len(labelled.row),
        "questions": labelled.n_questions,
        "bad_share": float(labelled.bad.mean()),
        "spoken_share": float(covered.mean()),
        "unclear": sum(f.verdict == "unclear" for row in findings for f in row),
        "unsure": unsure,
        "spoken": {m: float(getattr(localisation, m)(on_covered)) for m in MEASURES},
        **_table(confusions, labelled.n_questions, resamples, seed),
    }
