"""What a judge must beat: length, TF-IDF words, the agent's identity; and for steps, their position.

Anything that learns is trained on other questions than it scores: on a split's training part, or out of fold.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rrm.annotation import Verdict
from rrm.errors import RRMError
from rrm.evaluation.metrics.localisation import StepLabels
from rrm.splits import question_of
from rrm.text import message_text
from rrm.trajectory import Trajectory

Scorer = Callable[[Sequence[Trajectory]], np.ndarray]
"""Trajectories → (N,) scores, higher is better."""
Fit = Callable[[Sequence[Trajectory], np.ndarray], Scorer]
"""Training trajectories and labels (N,) → a scorer."""
C = 1.0
"""Inverse strength of the logistic regression's L2 penalty (scikit-learn's default)."""


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


def tfidf_features(trajectories: Sequence[Trajectory]) -> tuple[Any, Callable[[Sequence[Trajectory]], Any]]:
    """TF-IDF of the transcripts' words (1-2 grams, sublinear, at least 3 documents), as (N, V) sparse rows, and the
    function that makes such rows of other transcripts.

    Raises:
        BaselineError: no word in three transcripts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=3)
    try:
        features = vectorizer.fit_transform(map(tfidf_text, trajectories))
    except ValueError as error:
        raise BaselineError(f"TF-IDF baseline: {error} ({len(trajectories)} training rows)") from error
    return features, lambda rows: vectorizer.transform(map(tfidf_text, rows))


def fit_tfidf(trajectories: Sequence[Trajectory], labels: np.ndarray) -> Scorer:
    """TF-IDF and logistic regression; scores are P(label ≥ 0.5).

    Raises:
        BaselineError: one class only, or no word in three training transcripts.
    """
    from sklearn.linear_model import LogisticRegression

    positive = labels >= 0.5
    if not len(labels) or positive.all() or not positive.any():
        raise BaselineError("TF-IDF baseline: the training rows hold one class only; give it rows of both outcomes")
    features, transform = tfidf_features(trajectories)
    model = LogisticRegression(C=C, max_iter=500).fit(features, positive)

    def score(rows: Sequence[Trajectory]) -> np.ndarray:
        return model.predict_proba(transform(rows))[:, 1] if rows else np.empty(0)

    return score


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


def grouped_folds(groups: Sequence[str], k: int, seed: int) -> np.ndarray:
    """(N,) fold of each row, 0 … k − 1; all rows of a group share one, and folds differ by at most one group."""
    order = sorted(set(groups))
    if len(order) < k:
        raise BaselineError(f"{k} folds need at least {k} questions, there are {len(order)}")
    random.Random(seed).shuffle(order)
    fold = {group: i % k for i, group in enumerate(order)}
    return np.array([fold[group] for group in groups])


def out_of_fold(
    fit: Fit, trajectories: Sequence[Trajectory], labels: np.ndarray, *, k: int = 5, seed: int = 0
) -> np.ndarray:
    """(N,) scores, each row's from a model trained on the other folds' questions."""
    folds = grouped_folds([question_of(t) for t in trajectories], k, seed)
    scores = np.empty(len(trajectories))
    for fold in range(k):
        held_out = folds == fold
        scorer = fit([t for t, held in zip(trajectories, held_out, strict=True) if not held], labels[~held_out])
        scores[held_out] = scorer([t for t, held in zip(trajectories, held_out, strict=True) if held])
    return scores


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
