"""Baselines of a judge, trained on other questions than they score: a training part, or out of fold."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from rrm.data.annotation import Verdict
from rrm.data.localisation import StepLabels, step_verdicts
from rrm.data.questions import question_of
from rrm.data.splits import grouped_folds
from rrm.data.text import message_text
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.prompt.rules import check_steps

T = TypeVar("T")
L = TypeVar("L")
Scorer = Callable[[Sequence[Trajectory]], np.ndarray]
"""Trajectories → (N,) scores, higher is better."""
Fit = Callable[[Sequence[Trajectory], np.ndarray], Scorer]
"""Training trajectories and labels (N,) → a scorer."""
StepProbabilities = Sequence[Sequence[float]]
"""Per trajectory one probability of "good" a step."""
StepScorer = Callable[[Sequence[Trajectory]], list[list[float]]]
StepFit = Callable[[Sequence[Trajectory], Sequence[StepLabels | None]], StepScorer]
C = 1.0
PLACE_ROWS = 5.0
"""Steps of the wider group that are added to a position's own."""


def tfidf_text(trajectory: Trajectory) -> str:
    return "\n".join(f"{m.role}: {message_text(m)}" for m in trajectory.messages)


def transcript_length(trajectory: Trajectory) -> int:
    return sum(len(message_text(m)) for m in trajectory.messages)


def length_scores(trajectories: Sequence[Trajectory]) -> np.ndarray:
    return -np.array([transcript_length(t) for t in trajectories], dtype=np.float64)


def tfidf_features(texts: Iterable[str], name: str = "TF-IDF baseline") -> tuple[Any, Callable[[Iterable[str]], Any]]:
    """Compute TF-IDF of N texts: (N, V) sparse rows of 1-2 grams, and the function for other texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=3)
    try:
        return vectorizer.fit_transform(texts), vectorizer.transform
    except ValueError as error:
        raise RRMError(f"{name}: {error}") from error


def fit_words(texts: Iterable[str], good: np.ndarray, name: str) -> Callable[[Iterable[str]], np.ndarray]:
    """Fit TF-IDF and logistic regression: texts → P(good). Raises RRMError naming `name`."""
    from sklearn.linear_model import LogisticRegression

    if not len(good) or good.all() or not good.any():
        raise RRMError(f"{name}: what it is trained on holds one class only; give it rows of both outcomes")
    features, transform = tfidf_features(texts, name)
    model = LogisticRegression(C=C, max_iter=500).fit(features, good)
    return lambda others: model.predict_proba(transform(others))[:, 1]


def fit_tfidf(trajectories: Sequence[Trajectory], labels: np.ndarray) -> Scorer:
    p_good = fit_words(map(tfidf_text, trajectories), labels >= 0.5, "TF-IDF baseline")
    return lambda rows: p_good(map(tfidf_text, rows)) if rows else np.empty(0)


def fit_agent(trajectories: Sequence[Trajectory], labels: np.ndarray) -> Scorer:
    """Score a run by the training success rate of its `meta["agent"]`; an unseen agent has the mean."""
    outcomes: dict[str, list[float]] = defaultdict(list)
    for trajectory, label in zip(trajectories, labels.tolist(), strict=True):
        if trajectory.meta.get("agent") is not None:
            outcomes[str(trajectory.meta["agent"])].append(label)
    if not outcomes:
        raise RRMError('agent baseline: no training row has meta["agent"]')
    rates = {agent: float(np.mean(values)) for agent, values in outcomes.items()}
    mean = float(np.mean(labels))

    def score(rows: Sequence[Trajectory]) -> np.ndarray:
        return np.array([rates.get(str(t.meta.get("agent")), mean) for t in rows])

    return score


LEARNED: dict[str, Fit] = {"tfidf": fit_tfidf, "agent": fit_agent}


def across_folds(
    fit: Callable[[list[Trajectory], list[L]], Callable[[list[Trajectory]], Iterable[T]]],
    trajectories: Sequence[Trajectory],
    labels: Sequence[L],
    *,
    k: int = 5,
    seed: int = 0,
) -> list[T]:
    """Score each row by a fit on the other folds' questions."""
    folds = grouped_folds([question_of(t) for t in trajectories], k, seed)
    results: dict[int, T] = {}
    for fold in range(k):
        learn, test = np.flatnonzero(folds != fold).tolist(), np.flatnonzero(folds == fold).tolist()
        scorer = fit([trajectories[i] for i in learn], [labels[i] for i in learn])
        results |= zip(test, scorer([trajectories[i] for i in test]), strict=True)
    return [results[i] for i in range(len(trajectories))]


def out_of_fold(
    fit: Fit, trajectories: Sequence[Trajectory], labels: np.ndarray, *, k: int = 5, seed: int = 0
) -> np.ndarray:
    """Return (N,) scores, each row's from a model trained on the other folds' questions."""
    scores = across_folds(lambda rows, y: fit(rows, np.array(y)), trajectories, labels.tolist(), k=k, seed=seed)
    return np.array(scores, dtype=np.float64)


def position_verdicts(step_labels: Sequence[StepLabels | None]) -> Callable[[int], list[Verdict]]:
    """Learn the majority verdict at each position (unseen or tied: over all); n_steps → verdicts."""
    counts: dict[int, Counter[Verdict]] = defaultdict(Counter)
    for labels in step_labels:
        for position, verdict in enumerate(labels or [], 1):
            if verdict is not None:
                counts[position][verdict] += 1
    total = sum(counts.values(), Counter[Verdict]())
    usual: Verdict = "good" if total["good"] > total["bad"] else "bad"

    def verdict_at(position: int) -> Verdict:
        good, bad = counts[position]["good"], counts[position]["bad"]
        return usual if good == bad else ("good" if good > bad else "bad")

    return lambda n_steps: [verdict_at(position) for position in range(1, n_steps + 1)]


# ---- probabilities of steps ------------------------------------------------------------------------------------------


def labelled_steps(
    trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None]
) -> list[tuple[Trajectory, int, bool]]:
    """Return (trajectory, step from 1, whether it is good) of each labelled step."""
    return [
        (t, k, verdict == "good")
        for t, row in zip(trajectories, labels, strict=True)
        for k, verdict in enumerate(row or (), 1)
        if verdict is not None
    ]


def fit_step_position(trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None]) -> StepScorer:
    """Fit the share of good steps at each (step, number of steps), shrunk to the step's and to all.
    Seen n times it weighs n / (n + `PLACE_ROWS`). It uses the run's length, which a judge that reads up to the step does not see."""
    steps = labelled_steps(trajectories, labels)
    if not steps:
        raise RRMError("position baseline: no training step is labelled")
    mean = sum(good for _, _, good in steps) / len(steps)
    verdicts: dict[tuple[int, ...], list[bool]] = defaultdict(list)
    for t, k, good in steps:
        verdicts[(k,)].append(good)
        verdicts[k, len(t.steps)].append(good)

    def share(key: tuple[int, ...], otherwise: float) -> float:
        return (sum(verdicts.get(key, ())) + PLACE_ROWS * otherwise) / (len(verdicts.get(key, ())) + PLACE_ROWS)

    def score(rows: Sequence[Trajectory]) -> list[list[float]]:
        counts = [len(t.steps) for t in rows]
        return [[share((k, n), share((k,), mean)) for k in range(1, n + 1)] for n in counts]

    return score


def prefix_text(trajectory: Trajectory, step: int) -> str:
    """Return the run up to a step (from 1) and its results, as `role: text` blocks."""
    steps = trajectory.steps
    end = steps[step].message_index if step < len(steps) else len(trajectory.messages)
    return "\n".join(f"{m.role}: {message_text(m)}" for m in trajectory.messages[:end])


def fit_step_tfidf(
    trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None], *, most_steps: int = 15_000, seed: int = 0
) -> StepScorer:
    """Apply `fit_words` to runs cut after a labelled step; at most `most_steps`, drawn by `seed`."""
    steps = labelled_steps(trajectories, labels)
    if len(steps) > most_steps:
        steps = random.Random(seed).sample(steps, most_steps)
    good = np.array([g for _, _, g in steps], dtype=bool)
    p_good = fit_words((prefix_text(t, k) for t, k, _ in steps), good, "TF-IDF baseline of steps")

    def score(rows: Sequence[Trajectory]) -> list[list[float]]:
        counts = [len(t.steps) for t in rows]
        if not sum(counts):
            return [[] for _ in rows]
        p = p_good(prefix_text(t, k) for t, n in zip(rows, counts, strict=True) for k in range(1, n + 1))
        return [probabilities.tolist() for probabilities in np.split(p, np.cumsum(counts)[:-1])]

    return score


def rules_step_scores(rows: Sequence[Trajectory]) -> list[list[float]]:
    """Score each step by the rules (`rrm.prompt.rules`): 1 good, 0 bad, 0.5 undecided."""
    score: dict[Verdict | None, float] = {"good": 1.0, "bad": 0.0, None: 0.5}
    verdicts = [step_verdicts(check_steps(t)[0], len(t.steps)) for t in rows]
    return [[score[verdict] for verdict in row] for row in verdicts]


STEP_LEARNED: dict[str, StepFit] = {"position": fit_step_position, "tfidf": fit_step_tfidf}


def step_scores_of(
    test: Sequence[Trajectory],
    labels: Sequence[StepLabels | None],
    train: Sequence[Trajectory] | None = None,
    train_labels: Sequence[StepLabels | None] = (),
    *,
    seed: int = 0,
) -> tuple[dict[str, list[list[float]]], dict[str, str]]:
    """Compute each baseline's probabilities of the labelled test rows' steps, and why any was left out.
    Without `train` what learns is trained on the other four of five folds of the test questions."""
    having = [i for i, row in enumerate(labels) if row]
    rows, row_labels = [test[i] for i in having], [labels[i] for i in having]
    scores, left_out = {"rules": rules_step_scores(rows)}, {}
    for name, fit in STEP_LEARNED.items():
        try:
            scores[name] = (
                across_folds(fit, rows, row_labels, seed=seed) if train is None else fit(train, train_labels)(rows)
            )
        except RRMError as error:
            left_out[name] = str(error)
    position = {i: n for n, i in enumerate(having)}
    spread = {
        name: [values[position[i]] if i in position else [] for i in range(len(test))]
        for name, values in scores.items()
    }
    return spread, left_out
