"""What a step judge is measured beside: TF-IDF and position, learned from the training part of the sources that it learned from.

position   share of good steps at the step's place, good and bad weighing the same
tfidf      words of the step, learned from steps with labels; of the run's outcome, words of the last message
tfidf_planted   the same, planted mistakes learned too
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.models.rows import Maker
from benchmarks.models.sources import LabelledRun
from rrm.annotate.planted import OPERATORS, plant
from rrm.evaluation.baselines import PLACE_ROWS
from rrm.judge.domain import Domain, fit_domain
from rrm.prompt.canonical import canonical_step
from rrm.trajectory import Trajectory

MOST_RUNS = 300
"""Runs of a source that rivals learn from."""
MOST_SOLVED = 80
"""Runs that succeeded, of these, in which mistakes are planted for them."""


def step_text(trajectory: Trajectory, k: int) -> str:
    """A step's words: thought, calls and results."""
    step = canonical_step(trajectory.steps[k - 1])
    return f"{step.action_text}\n{step.return_text}"


@dataclass
class Lessons:
    """What there is to learn from one source."""

    steps: list[tuple[str, int]] = field(default_factory=list)
    """(words, label)."""
    places: list[tuple[int, int, int]] = field(default_factory=list)
    """(step, number of steps, label)."""
    planted: list[tuple[str, int]] = field(default_factory=list)
    endings: list[tuple[str, int]] = field(default_factory=list)
    runs: list[Trajectory] = field(default_factory=list)
    held_out: list[Trajectory] = field(default_factory=list)
    """Of the calibration part."""


def lessons(runs: Sequence[LabelledRun], seed: int) -> dict[str, Lessons]:
    """Source → what its runs that ship teach."""
    found: dict[str, Lessons] = defaultdict(Lessons)
    by_source = defaultdict(list)
    for run in runs:
        if run.ships and run.part != "test":
            by_source[run.source, run.part].append(run)
    for (source, part), mine in sorted(by_source.items()):
        rng, said = random.Random(f"{seed}/{source}"), found[source]
        mine = rng.sample(mine, min(len(mine), MOST_RUNS))
        named = [r.trajectory.model_copy(update={"meta": {**r.trajectory.meta, "source": source}}) for r in mine]
        if part == "calibration":
            said.held_out = named
            continue
        said.runs = named
        for run in mine:
            n = len(run.labels)
            known = [(k, y) for k, y in enumerate(run.labels, start=1) if y is not None]
            said.steps += [(step_text(run.trajectory, k), y) for k, y in known]
            said.places += [(k, n, y) for k, y in known]
            said.endings += [] if run.outcome is None else [(step_text(run.trajectory, n), run.outcome)]
        solved = [run for run in mine if run.succeeded][:MOST_SOLVED]
        maker = Maker(None, solved, [source])  # pyright: ignore[reportArgumentType]
        for run in solved:
            made = (plant(maker.view(run), kind, rng) for kind in OPERATORS)
            said.planted += [(step_text(p.trajectory, p.step), 0) for p in made if p is not None]
    return dict(found)


def _fit(rows: Sequence[tuple[str, int]]) -> Pipeline | None:
    """TF-IDF and logistic regression, both classes weighing the same; None where one is missing."""
    if len({label for _, label in rows}) < 2:
        return None
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=60_000),
        LogisticRegression(C=1.0, max_iter=400, class_weight="balanced"),
    )
    return model.fit([text for text, _ in rows], [label for _, label in rows])


def _places(rows: Sequence[tuple[int, int, int]]) -> dict[tuple[int, ...], tuple[float, float]]:
    """Place → (weight of good steps, weight of all), each class of one weight; `()`: all."""
    labels = np.array([y for _, _, y in rows])
    weight = {y: len(labels) / max(2 * int((labels == y).sum()), 1) for y in (0, 1)}
    found: dict[tuple[int, ...], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for k, n, y in rows:
        for place in ((k, n), (k,)):
            good, total = found[place]
            found[place] = (good + weight[y] * y, total + weight[y])
    return dict(found)


class Rivals:
    """Rivals that learned from some sources; with none they say one half."""

    def __init__(self, learned: Sequence[Lessons], seed: int = 0) -> None:
        steps = [row for lesson in learned for row in lesson.steps]
        self.models = {
            "tfidf": _fit(steps),
            "tfidf_planted": _fit(steps + [row for lesson in learned for row in lesson.planted]),
            "ending": _fit([row for lesson in learned for row in lesson.endings]),
        }
        self.places = _places([row for lesson in learned for row in lesson.places])
        runs, held_out = ([t for lesson in learned for t in getattr(lesson, name)] for name in ("runs", "held_out"))
        self.domain: Domain | None = fit_domain(runs, held_out, seed=seed) if runs else None

    def _p(self, name: str, text: str) -> float:
        model = self.models[name]
        return 0.5 if model is None else round(float(model.predict_proba([text])[0, 1]), 6)

    def position(self, k: int, n: int) -> float:
        """P(good) of step k of n: the share there, shrunk to that of all steps k, and that to one half."""
        said = 0.5
        for place in ((k,), (k, n)):
            good, total = self.places.get(place, (0.0, 0.0))
            said = (good + PLACE_ROWS * said) / (total + PLACE_ROWS)
        return round(said, 6)

    def of(self, text: str, step: int, steps: int) -> dict[str, Any]:
        """What each says of a step, or with step 0 of a run by its last message."""
        if not step:
            return {"tfidf": self._p("ending", text)}
        words = {name: self._p(name, text) for name in ("tfidf", "tfidf_planted")}
        return {**words, "position": self.position(step, steps)}

    def inside(self, trajectory: Trajectory) -> bool:
        """Whether the transcript's form is one of those learned from."""
        return self.domain is None or not self.domain.told(trajectory)[0]
