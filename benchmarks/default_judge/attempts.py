"""Best of n on real attempts: what choosing by a judge gives, beside majority, longest, shortest, random and oracle.

Of the attempts at a question n are drawn without replacement, `DRAWS` times by a seed (all of them once, where there are no
more), a strategy picks one, and its outcome counts; attempts that a strategy cannot tell apart count with their mean. The value
is the mean over questions, each one vote.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rrm.annotators.actions import final_answer
from rrm.evaluation.baselines import transcript_length
from rrm.evaluation.bootstrap import JUDGE, Ratio, Statistic, compare, too_few
from rrm.questions import question_of
from rrm.seeds import derive_seed
from rrm.text import normalise
from rrm.trajectory import Trajectory

DRAWS = 100
Choice = Callable[[Sequence[int]], float]
"""Places of n attempts → the outcome of the one that is picked."""


def best(scores: np.ndarray, outcomes: np.ndarray) -> Choice:
    """The attempt with the highest score; of several the mean outcome."""

    def choose(attempts: Sequence[int]) -> float:
        at = np.asarray(attempts)
        return float(outcomes[at][scores[at] == scores[at].max()].mean())

    return choose


def answers_of(rows: Sequence[Trajectory]) -> list[str | None]:
    """Each attempt's final answer as it is compared; None where it gives none."""
    found = [final_answer(t) for t in rows]
    return [(normalise(answer[1]) or None) if answer is not None else None for answer in found]


def majority(answers: Sequence[str | None], outcomes: np.ndarray) -> Choice:
    """An attempt with the answer that most attempts give; those without one do not vote. Ties, and no answer at all: the mean."""

    def choose(attempts: Sequence[int]) -> float:
        votes = Counter(answer for i in attempts if (answer := answers[i]) is not None)
        top = max(votes.values(), default=0)
        chosen = [i for i in attempts if top and votes.get(answers[i] or "", 0) == top] or list(attempts)
        return float(outcomes[chosen].mean())

    return choose


def choices(rows: Sequence[Trajectory], scores: Mapping[str, np.ndarray], compare_answers: bool) -> dict[str, Choice]:
    """The strategies over all rows; `scores` holds the judge's and what it is compared with."""
    outcomes = np.array([t.outcome for t in rows], dtype=np.float64)
    length = np.array([transcript_length(t) for t in rows], dtype=np.float64)
    ranked = {**scores, "longest": length, "shortest": -length, "random": np.zeros(len(rows)), "oracle": outcomes}
    found = {name: best(s, outcomes) for name, s in ranked.items()}
    return {**found, "majority": majority(answers_of(rows), outcomes)} if compare_answers else found


def best_of_n(
    rows: Sequence[Trajectory],
    scores: Mapping[str, np.ndarray],
    n: int,
    *,
    compare_answers: bool,
    resamples: int,
    seed: int,
) -> dict[str, Any] | None:
    """Mean outcome of what each strategy picks among n attempts, over the questions with n or more; None without any.

    Args:
        rows: attempts with an outcome, each scored.
        scores: name → (N,) scores, higher is better; `judge` is the one that the others are compared with.
        n: attempts to choose from.
        compare_answers: whether final answers can be compared, for `majority`.

    Returns:
        `n, questions, attempts`, and `metrics` and `differences` (judge − strategy) of `outcome` with paired intervals.
    """
    attempts: dict[str, list[int]] = defaultdict(list)
    for i, t in enumerate(rows):
        attempts[question_of(t)].append(i)
    enough = {question: found for question, found in attempts.items() if len(found) >= n}
    if not enough:
        return None
    drawn: list[list[Sequence[int]]] = []
    for question, found in enough.items():
        rng = random.Random(derive_seed(seed, "best of n", question))
        drawn.append([found] if len(found) == n else [rng.sample(found, n) for _ in range(DRAWS)])
    ones = np.ones(len(enough))
    table: dict[str, dict[str, Statistic]] = {
        name: {"outcome": Ratio(np.array([np.mean([pick(d) for d in draws]) for draws in drawn]), ones)}
        for name, pick in choices(rows, scores, compare_answers).items()
    }
    few = too_few(len(enough), sum(map(len, enough.values())))
    measured = compare(table, len(enough), thin=lambda _: few, n=resamples, seed=seed)
    assert JUDGE in measured["metrics"]
    return {"n": n, "questions": len(enough), "attempts": sum(map(len, enough.values())), **measured}
