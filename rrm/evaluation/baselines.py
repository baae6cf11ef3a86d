"""What a judge must beat: length, TF-IDF words, the agent's identity; and for steps, their position, words and the rules.

Anything that learns is trained on other questions than it scores: on a split's training part, or out of fold.
"""

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
"""Trajectories → a probability of "good" for each of their steps."""
StepFit = Callable[[Sequence[Trajectory], Sequence[StepLabels | None]], StepScorer]
"""Training trajectories and their step labels → a scorer of steps."""
C = 1.0
"""Inverse strength of the logistic regression's L2 penalty (scikit-learn's default)."""
PLACE_ROWS = 5.0
"""Steps of the wider group that a place in a run counts as having seen beside its own."""


class BaselineError(RRMError):
    """A baseline cannot be trained on the rows at hand; the message says why."""


def tfidf_text(trajectory: Trajectory) -> str:
    """The whole transcript as `role: text` blocks, what the TF-IDF baseline reads."""
    return "\n".join(f"{m.role}: {message_text(m)}" for m in trajectory.messages)


def transcript_length(trajectory: Trajectory) -> int:
    """Characters in all messages."""
    return sum(len(message_text(m)) for m in trajectory.messages)


def length_scores(trajectories: Sequence[Trajectory]) -> np.ndarray:
    """Minus the number of characters (failing runs go on for longer)."""
    return -np.array([transcript_length(t) for t in trajectories], dtype=np.float64)


def tfidf_features(texts: Iterable[str], what: str = "TF-IDF baseline") -> tuple[Any, Callable[[Iterable[str]], Any]]:
    """TF-IDF of N texts' words (1-2 grams, sublinear, at least 3 documents), as (N, V) sparse rows, and the function that makes
    such rows of other texts.

    Raises:
        BaselineError: no word in three texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=3)
    try:
        return vectorizer.fit_transform(texts), vectorizer.transform
    except ValueError as error:
        raise BaselineError(f"{what}: {error}") from error


def fit_words(texts: Iterable[str], good: np.ndarray, what: str) -> Callable[[Iterable[str]], np.ndarray]:
    """TF-IDF and logistic regression: texts → P(good). `what` is named in errors.

    Raises:
        BaselineError: one class only, or no word in three texts.
    """
    from sklearn.linear_model import LogisticRegression

    if not len(good) or good.all() or not good.any():
        raise BaselineError(f"{what}: what it is trained on holds one class only; give it rows of both outcomes")
    features, transform = tfidf_features(texts, what)
    model = LogisticRegression(C=C, max_iter=500).fit(features, good)
    return lambda others: model.predict_proba(transform(others))[:, 1]


def fit_tfidf(trajectories: Sequence[Trajectory], labels: np.ndarray) -> Scorer:
    """`fit_words` on whole transcripts; scores are P(label ≥ 0.5)."""
    p_good = fit_words(map(tfidf_text, trajectories), labels >= 0.5, "TF-IDF baseline")
    return lambda rows: p_good(map(tfidf_text, rows)) if rows else np.empty(0)


def fit_agent(trajectories: Sequence[Trajectory], labels: np.ndarray) -> Scorer:
    """The training success rate of `meta["agent"]`, which no judge can see; an unseen agent has the mean of all rows.

    Raises:
        BaselineError: no row names its agent.
    """
    outcomes: dict[str, list[float]] = defaultdict(list)
    for trajectory, label in zip(trajectories, labels.tolist(), strict=True):
        if trajectory.meta.get("agent") is not None:
            outcomes[str(trajectory.meta["agent"])].append(label)
    if not outcomes:
        raise BaselineError('agent baseline: no training row has meta["agent"]')
    rates = {agent: float(np.mean(found)) for agent, found in outcomes.items()}
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
    """What a fit says of each row, having learned from the other folds' questions."""
    folds = grouped_folds([question_of(t) for t in trajectories], k, seed)
    said: dict[int, T] = {}
    for fold in range(k):
        learn, held = np.flatnonzero(folds != fold).tolist(), np.flatnonzero(folds == fold).tolist()
        scorer = fit([trajectories[i] for i in learn], [labels[i] for i in learn])
        said |= zip(held, scorer([trajectories[i] for i in held]), strict=True)
    return [said[i] for i in range(len(trajectories))]


def out_of_fold(
    fit: Fit, trajectories: Sequence[Trajectory], labels: np.ndarray, *, k: int = 5, seed: int = 0
) -> np.ndarray:
    """(N,) scores, each row's from a model trained on the other folds' questions."""
    scores = across_folds(lambda rows, of: fit(rows, np.array(of)), trajectories, labels.tolist(), k=k, seed=seed)
    return np.array(scores, dtype=np.float64)


def position_verdicts(step_labels: Sequence[StepLabels | None]) -> Callable[[int], list[Verdict]]:
    """The majority verdict at each step position, learned from training labels; n_steps → one verdict a step.

    A position never seen, and a tie, get the majority over all positions (a tie there is bad).
    """
    at: dict[int, Counter[Verdict]] = defaultdict(Counter)
    for labels in step_labels:
        for position, verdict in enumerate(labels or [], 1):
            if verdict is not None:
                at[position][verdict] += 1
    total = sum(at.values(), Counter[Verdict]())
    usual: Verdict = "good" if total["good"] > total["bad"] else "bad"

    def verdict_at(position: int) -> Verdict:
        good, bad = at[position]["good"], at[position]["bad"]
        return usual if good == bad else ("good" if good > bad else "bad")

    return lambda n_steps: [verdict_at(position) for position in range(1, n_steps + 1)]


# ---- probabilities of steps ------------------------------------------------------------------------------------------


def labelled_steps(
    trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None]
) -> list[tuple[Trajectory, int, bool]]:
    """(trajectory, step from 1, whether it is good) of each labelled step."""
    return [
        (t, k, verdict == "good")
        for t, row in zip(trajectories, labels, strict=True)
        for k, verdict in enumerate(row or (), 1)
        if verdict is not None
    ]


def fit_step_position(trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None]) -> StepScorer:
    """The share of good steps at each (step, number of steps), shrunk to that at the step, and that to the share of all.

    A place seen n times has n / (n + `PLACE_ROWS`) of its own share. It knows how long the run gets, which a judge that
    reads up to the step does not.

    Raises:
        BaselineError: no step is labelled.
    """
    seen = labelled_steps(trajectories, labels)
    if not seen:
        raise BaselineError("position baseline: no training step is labelled")
    mean = sum(good for _, _, good in seen) / len(seen)
    at: dict[tuple[int, ...], list[bool]] = defaultdict(list)
    for t, k, good in seen:
        at[(k,)].append(good)
        at[k, len(t.steps)].append(good)

    def share(place: tuple[int, ...], otherwise: float) -> float:
        return (sum(at.get(place, ())) + PLACE_ROWS * otherwise) / (len(at.get(place, ())) + PLACE_ROWS)

    def score(rows: Sequence[Trajectory]) -> list[list[float]]:
        counts = [len(t.steps) for t in rows]
        return [[share((k, n), share((k,), mean)) for k in range(1, n + 1)] for n in counts]

    return score


def prefix_text(trajectory: Trajectory, step: int) -> str:
    """The run up to and with a step (from 1) and what came back, as `role: text` blocks."""
    steps = trajectory.steps
    end = steps[step].message_index if step < len(steps) else len(trajectory.messages)
    return "\n".join(f"{m.role}: {message_text(m)}" for m in trajectory.messages[:end])


def fit_step_tfidf(
    trajectories: Sequence[Trajectory], labels: Sequence[StepLabels | None], *, most_steps: int = 15_000, seed: int = 0
) -> StepScorer:
    """`fit_words` on runs up to and with a labelled step; of more than `most_steps` so many are drawn by `seed`."""
    seen = labelled_steps(trajectories, labels)
    if len(seen) > most_steps:
        seen = random.Random(seed).sample(seen, most_steps)
    good = np.array([g for _, _, g in seen], dtype=bool)
    p_good = fit_words((prefix_text(t, k) for t, k, _ in seen), good, "TF-IDF baseline of steps")

    def score(rows: Sequence[Trajectory]) -> list[list[float]]:
        counts = [len(t.steps) for t in rows]
        if not sum(counts):
            return [[] for _ in rows]
        p = p_good(prefix_text(t, k) for t, n in zip(rows, counts, strict=True) for k in range(1, n + 1))
        return [part.tolist() for part in np.split(p, np.cumsum(counts)[:-1])]

    return score


def rules_step_scores(rows: Sequence[Trajectory]) -> list[list[float]]:
    """What the rules say of each step (`rrm.prompt.rules`): 1 good, 0 bad, 0.5 where they are silent."""
    score: dict[Verdict | None, float] = {"good": 1.0, "bad": 0.0, None: 0.5}
    said = [step_verdicts(check_steps(t)[0], len(t.steps)) for t in rows]
    return [[score[verdict] for verdict in row] for row in said]


STEP_LEARNED: dict[str, StepFit] = {"position": fit_step_position, "tfidf": fit_step_tfidf}


def step_scores_of(
    test: Sequence[Trajectory],
    labels: Sequence[StepLabels | None],
    train: Sequence[Trajectory] | None = None,
    train_labels: Sequence[StepLabels | None] = (),
    *,
    seed: int = 0,
) -> tuple[dict[str, list[list[float]]], dict[str, str]]:
    """Each baseline's probabilities of the labelled test rows' steps, and why any was left out.

    What learns is trained on `train`, or without it on the test rows of the other four of five folds of questions.

    Returns:
        name → per test row one probability a step (none for a row without labels); name → reason.
    """
    having = [i for i, row in enumerate(labels) if row]
    rows, known = [test[i] for i in having], [labels[i] for i in having]
    found, left_out = {"rules": rules_step_scores(rows)}, {}
    for name, fit in STEP_LEARNED.items():
        try:
            found[name] = across_folds(fit, rows, known, seed=seed) if train is None else fit(train, train_labels)(rows)
        except RRMError as error:
            left_out[name] = str(error)
    place = {i: n for n, i in enumerate(having)}
    spread = {name: [said[place[i]] if i in place else [] for i in range(len(test))] for name, said in found.items()}
    return spread, left_out
