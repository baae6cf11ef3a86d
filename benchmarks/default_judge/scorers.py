"""The mixture's rows as they were written, and what each baseline says of them: made once, kept for every judge.

Anything that learns is trained on the training rows. Scores of outcomes and of steps are those of
`benchmarks.default_judge.baselines`; beside them the share of good steps at (step, number of steps), and the rules.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.default_judge.baselines import LabelledStep, Scores, labelled_steps, outcome_scores, step_scores
from benchmarks.default_judge.sources import Example
from rrm.data.annotation import match, read_annotations
from rrm.data.localisation import StepLabels
from rrm.data.trajectory import read_canonical
from rrm.evaluation.baselines import fit_step_position, fit_tfidf, rules_step_scores

FILES = ("transcripts.jsonl", "unseen.jsonl", "annotations.jsonl")
Parts = dict[str, list[Example]]
SAME = "tfidf_same"
"""TF-IDF trained on the rows that the judge was trained on, where these are fewer than the training rows (`add_same_rows`)."""


def load(folder: Path) -> Parts:
    """Rows by part (`train`, `calibration`, `test`, `unseen`), as `benchmarks.default_judge.mixture` wrote them.

    Raises:
        ValueError: an annotation belongs to no row.
    """
    rows = [t for name in FILES[:2] for t in read_canonical(folder / name)]
    matched = match(rows, read_annotations(folder / FILES[2]))
    if complaint := matched.complaint():
        raise ValueError(f"{folder}: {complaint}")
    parts: Parts = defaultdict(list)
    for t in rows:
        parts[t.meta["part"]].append(Example(t, next(iter(matched.by_id.get(t.id, ())), None), ()))
    return dict(parts)


def labels_of(row: Example) -> StepLabels | None:
    """One verdict a step, None where nobody labelled any."""
    said = row.steps()
    verdicts: StepLabels = [None] * len(row.trajectory.steps)
    for k, good in said.items():
        verdicts[k - 1] = "good" if good else "bad"
    return verdicts if said else None


@dataclass
class Known:
    """What the baselines say."""

    outcomes: dict[str, dict[str, float]] = field(default_factory=dict)
    """Row id → scorer → score."""
    steps: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Row id → scorer → one probability a step (0.5 at steps that are not labelled)."""


def data_hash(folder: Path) -> str:
    """Twelve hex digits over the data."""
    digest = hashlib.sha256()
    for name in FILES:
        with open(folder / name, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


def known(parts: Parts, folder: Path, keep: Path) -> Known:
    """The baselines' scores of all rows that are not trained on, computed now or kept in `keep` by an earlier run."""
    path = keep / f"baselines_{data_hash(folder)}.json"
    if path.is_file():
        return Known(**json.loads(path.read_text(encoding="utf-8")))
    found = Known()
    others = [row for part, rows in parts.items() if part != "train" for row in rows]
    train = [row for row in parts["train"] if row.trajectory.outcome is not None]
    graded = [row for row in others if row.trajectory.outcome is not None]
    for source, scores in outcome_scores(train, graded).items():
        mine = [row.trajectory.id for row in graded if row.source == source]
        for i, name in enumerate(mine):
            found.outcomes[name] = {scorer: float(s[i]) for scorer, s in scores.items()}
    learned, held_out = labelled_steps(parts["train"]), labelled_steps(others)
    for source, scores in step_scores(learned, held_out).items():
        steps = [step for step in held_out if step.source == source]
        own = [row for row in parts["train"] if row.source == source and row.steps()]
        position = fit_step_position([row.trajectory for row in own], [labels_of(row) for row in own])
        rows = [row.trajectory for row in others if row.source == source and row.steps()]
        for t, place, rule in zip(rows, position(rows), rules_step_scores(rows), strict=True):
            found.steps[t.id] = {"position": place, "rules": rule}
        _spread(steps, scores, found, {t.id: len(t.steps) for t in rows})
    keep.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"outcomes": found.outcomes, "steps": found.steps}), encoding="utf-8")
    return found


def add_same_rows(found: Known, parts: Parts, ids: Collection[str], folder: Path, keep: Path) -> None:
    """Add `SAME`: TF-IDF trained on these of the training rows alone, those that a judge learned from; kept as `known` keeps.

    Args:
        folder: of the data, whose hash the kept scores are known by: the same ids may stand for other texts.

    Raises:
        ValueError: rows that are not among the training rows.
    """
    train = {row.trajectory.id: row for row in parts["train"]}
    if strange := sorted(set(ids) - set(train)):
        raise ValueError(f"{len(strange)} row(s) of --trained-on are no training rows, e.g. {strange[0]!r}")
    digest = hashlib.sha256("\n".join(sorted(ids)).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    path = keep / f"same_rows_{data_hash(folder)}_{digest}.json"
    if path.is_file():
        same = Known(**json.loads(path.read_text(encoding="utf-8")))
    else:
        same = _same_rows([train[name] for name in sorted(ids)], parts, set(found.outcomes))
        path.write_text(json.dumps({"outcomes": same.outcomes, "steps": same.steps}), encoding="utf-8")
    for name, scores in same.outcomes.items():
        found.outcomes[name] |= scores
    for name, scores in same.steps.items():
        found.steps[name] |= scores


def _same_rows(chosen: list[Example], parts: Parts, graded: Collection[str]) -> Known:
    found = Known()
    others = [row for part, rows in parts.items() if part != "train" for row in rows]
    test = [row.trajectory for row in others if row.trajectory.id in graded]
    train = [row.trajectory for row in chosen if row.trajectory.outcome is not None]
    scores = fit_tfidf(train, np.array([t.outcome for t in train], dtype=np.float64))(test)
    found.outcomes = {t.id: {SAME: float(s)} for t, s in zip(test, scores, strict=True)}
    learned, held_out = labelled_steps(chosen), labelled_steps(others)
    if learned:
        fitted = fit_tfidf([s.shown for s in learned], np.array([s.good for s in learned], dtype=np.float64))
        found.steps = {s.shown.id: {} for s in held_out}
        counts = {row.trajectory.id: len(row.trajectory.steps) for row in others}
        _spread(held_out, {SAME: fitted([s.shown for s in held_out])}, found, counts)
    return found


def _spread(steps: list[LabelledStep], scores: Scores, found: Known, counts: dict[str, int]) -> None:
    """Scores of labelled steps, one after the other, as one list a row."""
    for scorer in sorted(set(scores) - {"position"}):
        for step, p in zip(steps, scores[scorer].tolist(), strict=True):
            row = found.steps[step.shown.id]
            row.setdefault(scorer, [0.5] * counts[step.shown.id])[step.k - 1] = p
