"""What a step judge is measured beside: TF-IDF and position, learned from the training part of the sources that it learned from.

position        share of good steps at the step's place, good and bad weighing the same
tfidf           words of the step, learned from steps with labels; of the run's outcome, words of the last message
tfidf_planted   the same, planted mistakes learned too
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.models.rows import Maker
from benchmarks.models.sources import LabelledRun
from rrm.annotate.planted import OPERATORS, plant
from rrm.data.trajectory import Trajectory
from rrm.evaluation.baselines import PLACE_ROWS
from rrm.judge.domain import LEAST_ROWS, fit_domain
from rrm.prompt.canonical import canonical_step

MOST_RUNS, MOST_SOLVED = 300, 80
"""Runs of a source that rivals learn from, and of these the ones that succeeded in which mistakes are planted for them."""
Lessons = dict[str, list[Any]]
"""What one source teaches: `steps`, `planted` and `endings` as (words, label), `places` as (step, number of steps, label), and the
transcripts of the training part (`train`) and of the `calibration` part."""


def step_text(trajectory: Trajectory, k: int) -> str:
    """A step's words: thought, calls and results."""
    step = canonical_step(trajectory.steps[k - 1])
    return f"{step.action_text}\n{step.return_text}"


def lessons(runs: Sequence[LabelledRun], seed: int) -> dict[str, Lessons]:
    """Source → what its runs that ship teach."""
    found: dict[str, Lessons] = defaultdict(lambda: defaultdict(list))
    pools: dict[tuple[str, str], list[LabelledRun]] = defaultdict(list)
    for run in runs:
        if run.ships and run.part != "test":
            pools[run.source, run.part].append(run)
    for (source, part), pool in sorted(pools.items()):
        rng, said = random.Random(f"{seed}/{source}"), found[source]
        mine = rng.sample(pool, min(len(pool), MOST_RUNS))
        said[part] = [r.trajectory.model_copy(update={"meta": {**r.trajectory.meta, "source": source}}) for r in mine]
        for run in mine if part == "train" else ():
            n, known = len(run.labels), [(k, y) for k, y in enumerate(run.labels, start=1) if y is not None]
            said["steps"] += [(step_text(run.trajectory, k), y) for k, y in known]
            said["places"] += [(k, n, y) for k, y in known]
            said["endings"] += [] if run.outcome is None else [(step_text(run.trajectory, n), run.outcome)]
        solved = [run for run in mine if part == "train" and run.succeeded][:MOST_SOLVED]
        maker = Maker(None, solved, [source])  # pyright: ignore[reportArgumentType]
        made = (plant(maker.view(run), kind, rng) for run in solved for kind in OPERATORS)
        said["planted"] += [(step_text(p.trajectory, p.step), 0) for p in made if p is not None]
    return found


def _fit(rows: Sequence[tuple[str, int]]) -> Pipeline | None:
    """TF-IDF and logistic regression, both classes weighing the same; None where one is missing."""
    if len({label for _, label in rows}) < 2:
        return None
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=60_000)
    model = make_pipeline(words, LogisticRegression(C=1.0, max_iter=400, class_weight="balanced"))
    return model.fit([text for text, _ in rows], [label for _, label in rows])


class Rivals:
    """Rivals that learned from some sources; with none they say one half."""

    def __init__(self, learned: Sequence[Lessons]) -> None:
        every = {
            name: [x for said in learned for x in said[name]] for name in ("steps", "planted", "endings", "places")
        }
        self.words = {"tfidf": _fit(every["steps"]), "tfidf_planted": _fit(every["steps"] + every["planted"])}
        self.endings = _fit(every["endings"])
        labels = np.array([y for _, _, y in every["places"]])
        weight = {y: len(labels) / max(2 * int((labels == y).sum()), 1) for y in (0, 1)}
        self.places: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(2))
        """Place → weight of its good steps, and of all."""
        for k, n, y in every["places"]:
            self.places[k,] += weight[y] * np.array([y, 1])
            self.places[k, n] += weight[y] * np.array([y, 1])
        train, held_out = ([t for said in learned for t in said[part]] for part in ("train", "calibration"))
        self.domain = fit_domain(train, held_out) if min(len(train), len(held_out)) >= LEAST_ROWS else None

    def position(self, k: int, n: int) -> float:
        """P(good) of step k of n: the share there, shrunk to that of all steps k, and that to one half."""
        said = 0.5
        for place in ((k,), (k, n)):
            good, total = self.places.get(place, (0.0, 0.0))
            said = (good + PLACE_ROWS * said) / (total + PLACE_ROWS)
        return round(float(said), 6)

    def of(self, text: str, step: int, steps: int) -> dict[str, float]:
        """What each says of a step; with step 0 of a run, by its last message."""
        models = self.words if step else {"tfidf": self.endings}
        said = {k: 0.5 if m is None else round(float(m.predict_proba([text])[0, 1]), 6) for k, m in models.items()}
        return {**said, "position": self.position(step, steps)}

    def inside(self, trajectory: Trajectory) -> bool:
        """Whether the transcript's form is one of those learned from."""
        return self.domain is None or not self.domain.flag(trajectory)[0]
