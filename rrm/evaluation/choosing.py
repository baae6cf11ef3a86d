"""Choosing one of several attempts at a question, and the expected outcome of each choice.

`judge` takes the highest score, `weighted` the answer with the highest sum of scores (DiVeRSe, Li et al., arXiv 2206.02336),
`majority` the most frequent answer, `oracle` the best outcome (an upper bound: pass@n). Figures are exact expectations over every
draw of n of a question's N attempts and over ties (`weighted` beyond `MOST_DRAWS`: a sample), averaged over questions. Attempts
without a score come last, those without an answer do not vote.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb, lgamma, log, log1p
from typing import Any

import numpy as np

from rrm.data.questions import question_of
from rrm.data.seeds import derive_seed
from rrm.data.text import answer_form
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.baselines import transcript_length
from rrm.evaluation.bootstrap import JUDGE, Statistic, by_questions, compare, too_few
from rrm.prompt.actions import final_answer

WEIGHTED = "weighted"
STRATEGIES = (JUDGE, WEIGHTED, "majority", "longest", "shortest", "random", "oracle")
OF_SCORES = frozenset({JUDGE, WEIGHTED})
OF_ANSWERS = frozenset({WEIGHTED, "majority"})
MOST_DRAWS = 20_000
UNSCORED = -np.inf


def strategies_of(words: Iterable[str]) -> list[str]:
    """Parse a command line's strategies: separate words or comma lists, `all` for every one; each once."""
    names = [name.strip() for text in words for name in text.split(",") if name.strip()]
    strategies = list(
        dict.fromkeys(strategy for name in names for strategy in (STRATEGIES if name == "all" else (name,)))
    )
    if unknown := [name for name in strategies if name not in STRATEGIES]:
        raise RRMError(f"no strategy {unknown[0]!r} of choosing; there are {', '.join(STRATEGIES)}, or all")
    return strategies


def answers_of(rows: Sequence[Trajectory]) -> list[str | None]:
    finals = [final_answer(t) for t in rows]
    return [as_compared(answer[1]) if answer is not None else None for answer in finals]


def as_compared(answer: str | None) -> str | None:
    """Return an answer in the form that is compared (`rrm.data.text.answer_form`); None for an empty one."""
    return (answer_form(answer) or None) if answer is not None else None


def expected_best(preference: np.ndarray, outcomes: np.ndarray, n: int) -> float:
    """Compute the expected outcome of the most preferred of n attempts drawn without replacement.
    E = Σ_v P(best is v) · mean outcome at v, with P = (C(b + m, n) − C(b, n)) / C(N, n), m attempts with preference v and b below.
    `preference` and `outcomes` are (N,). Raises ValueError unless 1 ≤ n ≤ N."""
    total = _draws(len(outcomes), n)
    value, below = 0.0, 0
    for level in np.unique(preference):
        equal = preference == level
        count = int(equal.sum())
        value += (comb(below + count, n) - comb(below, n)) / total * float(outcomes[equal].mean())
        below += count
    return value


def expected_majority(answers: Sequence[str | None], outcomes: np.ndarray, n: int) -> float:
    """Compute the expected outcome of an attempt with the most frequent of n drawn answers.
    Where no drawn attempt has an answer, any is taken. For every largest count t, `ways[x, j]` is the share of draws of x attempts with
    j answers given t times and none more often, and `worth[x, j]` sums the mean outcomes of those j answers over them. Counts of draws
    overflow a float, so shares are of draws that take each attempt by itself with p = n / N and happen to take n."""
    _draws(len(outcomes), n)
    if n == len(outcomes):
        return expected_best(votes_of(answers), outcomes, n)
    chance = n / len(outcomes)
    places: dict[str, list[int]] = defaultdict(list)
    silent = [i for i, answer in enumerate(answers) if answer is None]
    for i, answer in enumerate(answers):
        if answer is not None:
            places[answer].append(i)
    of_size = {m: _taken(m, chance) for m in {len(silent), len(outcomes), *map(len, places.values())}}
    none = _taken(len(outcomes) - len(silent), chance)[0]
    value = of_size[len(silent)][n] * none * float(outcomes[silent].mean()) if len(silent) >= n else 0.0
    for top in range(1, min(n, max(map(len, places.values()), default=0)) + 1):
        ways = np.zeros((n + 1, n // top + 1))
        ways[: len(silent) + 1, 0] = of_size[len(silent)][: n + 1]
        worth = np.zeros_like(ways)
        for members in places.values():
            mean, shares = float(outcomes[members].mean()), of_size[len(members)]
            grown, grown_worth = np.zeros_like(ways), np.zeros_like(worth)
            for x in range(min(top, len(members) + 1)):  # given less often than the top
                grown[x:] += shares[x] * ways[: n + 1 - x]
                grown_worth[x:] += shares[x] * worth[: n + 1 - x]
            if len(members) >= top:  # one of the most frequent
                many, rest = shares[top], slice(0, n + 1 - top)
                grown[top:, 1:] += many * ways[rest, :-1]
                grown_worth[top:, 1:] += many * (worth[rest, :-1] + mean * ways[rest, :-1])
            ways, worth = grown, grown_worth
        value += float((worth[n, 1:] / np.arange(1, worth.shape[1])).sum())
    return value / float(of_size[len(outcomes)][n])


def _taken(m: int, chance: float) -> np.ndarray:
    """Return (m + 1,) probabilities that 0 … m of m attempts are taken."""
    x = np.arange(m + 1)
    choices = np.array([lgamma(m + 1) - lgamma(k + 1) - lgamma(m - k + 1) for k in range(m + 1)])
    return np.exp(choices + x * log(chance) + (m - x) * log1p(-chance))


def votes_of(answers: Sequence[str | None]) -> np.ndarray:
    votes = Counter(answer for answer in answers if answer is not None)
    return np.array([votes[answer] if answer is not None else 0 for answer in answers], dtype=np.float64)


def weighted_votes(answers: Sequence[str | None], scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Sum the scores of each attempt's answer in each draw, (D, N), with `drawn` (D, N) and `scores` (N,).
    −1 for an attempt without an answer, −inf for one that is not drawn; scores below 0 count as 0."""
    names = {answer: i for i, answer in enumerate(dict.fromkeys(a for a in answers if a is not None))}
    gives = np.zeros((len(answers), len(names)))
    for i, answer in enumerate(answers):
        if answer is not None:
            gives[i, names[answer]] = 1.0
    sums = (drawn * np.maximum(scores, 0.0)) @ gives
    column = np.array([-1 if answer is None else names[answer] for answer in answers])
    votes = np.where(column < 0, -1.0, sums[:, column]) if names else np.full(drawn.shape, -1.0)
    return np.where(drawn, votes, UNSCORED)


def best_weighted(answers: Sequence[str | None], scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Mark the attempts, (D, N), that `weighted` may take of each draw."""
    votes = weighted_votes(answers, scores, drawn)
    winners = np.isclose(
        votes, votes.max(axis=1, keepdims=True), rtol=0.0, atol=1e-12
    )  # sums of the same numbers in another order
    by_score = np.where(winners, scores, UNSCORED)
    return winners & (by_score == by_score.max(axis=1, keepdims=True))


def expected_weighted(
    answers: Sequence[str | None], scores: np.ndarray, outcomes: np.ndarray, n: int, seed: int = 0
) -> float:
    """Compute the expected outcome of `weighted` among n drawn attempts, exact or of `MOST_DRAWS` draws."""
    size, total = len(outcomes), _draws(len(outcomes), n)
    if total <= MOST_DRAWS:
        places = np.array(list(combinations(range(size), n)))
    else:
        shuffled = np.random.default_rng(seed).random((MOST_DRAWS, size))
        places = np.argpartition(shuffled, n - 1, axis=1)[:, :n]
    drawn = np.zeros((len(places), size), dtype=bool)
    np.put_along_axis(drawn, places, values=True, axis=1)
    best = best_weighted(answers, scores, drawn)
    return float(((best * outcomes).sum(axis=1) / best.sum(axis=1)).mean())


def _draws(attempts: int, n: int) -> int:
    if not 1 <= n <= attempts:
        raise ValueError(f"n={n} of {attempts} attempts cannot be drawn: 1 ≤ n ≤ {attempts}")
    return comb(attempts, n)


@dataclass(frozen=True)
class Attempts:
    """The attempts at one question: (N,) each, in one order."""

    question: str
    rows: Sequence[int]
    """Their indices in the caller's list."""
    lengths: np.ndarray
    answers: Sequence[str | None]
    outcomes: np.ndarray
    """Values in [0, 1], NaN where unknown."""
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Scorer (`judge` or a rival) → scores: higher is better, `UNSCORED` where there is none."""
    asked: str | None = None
    """Name shared by questions that are one, worded in several ways: they are drawn together."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def known(self) -> bool:
        return bool(np.isfinite(self.outcomes).all())

    def preference(self, strategy: str) -> np.ndarray:
        """Return (N,) preferences of a strategy for the attempts; it takes one of the highest."""
        if strategy in self.scores:
            return self.scores[strategy]
        if strategy == WEIGHTED and JUDGE in self.scores:
            everyone = np.ones((1, len(self)), dtype=bool)
            return best_weighted(self.answers, self.scores[JUDGE], everyone)[0].astype(np.float64)
        if strategy == "majority":
            return votes_of(self.answers)
        if strategy == "oracle":
            return np.where(np.isfinite(self.outcomes), self.outcomes, UNSCORED)
        if strategy in ("longest", "shortest"):
            return self.lengths if strategy == "longest" else -self.lengths
        if strategy == "random":
            return np.zeros(len(self))
        raise RRMError(f"choosing by {strategy!r} needs its scores of the attempts, and there are none")

    def expected(self, strategy: str, n: int | None = None) -> float:
        """Compute the expected outcome of the choice among n drawn attempts (None: all), of known outcome."""
        drawn = len(self) if n is None else n
        if strategy == "majority":
            return expected_majority(self.answers, self.outcomes, drawn)
        if strategy == WEIGHTED and JUDGE in self.scores:
            return expected_weighted(self.answers, self.scores[JUDGE], self.outcomes, drawn)
        return expected_best(self.preference(strategy), self.outcomes, drawn)

    def choose(self, strategy: str, seed: int) -> int:
        """Return the index of the attempt chosen among all; ties are drawn by seed."""
        preference = self.preference(strategy)
        best = np.flatnonzero(preference == preference.max())
        return int(random.Random(derive_seed(seed, "choose", strategy, self.question)).choice(best.tolist()))


def expected_distinct(copies: Iterable[int], attempts: int) -> list[float]:
    """Compute (attempts + 1,) expected distinct contents among 0, 1, 2 … drawn; `copies` of each content."""
    counts = list(copies)
    return [sum(1 - comb(attempts - k, n) / comb(attempts, n) for k in counts) for n in range(attempts + 1)]


def grouped(rows: Sequence[Trajectory], scores: Mapping[str, Sequence[float | None]] | None = None) -> list[Attempts]:
    """Group transcripts by question in order; `scores`: scorer → one score a transcript or None."""
    places: dict[str, list[int]] = defaultdict(list)
    for i, t in enumerate(rows):
        places[question_of(t)].append(i)
    preferences = {name: as_preference(values) for name, values in (scores or {}).items()}
    lengths = np.array([transcript_length(t) for t in rows], dtype=np.float64)
    outcomes = np.array([np.nan if t.outcome is None else t.outcome for t in rows], dtype=np.float64)
    answers = answers_of(rows)
    return [
        Attempts(
            question,
            indices,
            lengths[indices],
            [answers[i] for i in indices],
            outcomes[indices],
            {name: values[indices] for name, values in preferences.items()},
        )
        for question, indices in places.items()
    ]


def as_preference(scores: Sequence[float | None]) -> np.ndarray:
    return np.array([UNSCORED if s is None else s for s in scores], dtype=np.float64)


def measure(
    groups: Sequence[Attempts],
    strategies: Sequence[str],
    *,
    n: int | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any] | None:
    """Compute each strategy's mean outcome among n attempts (None: all of a group).
    Groups count with n attempts or more, all of known outcome; None without any. Returns `n, questions, attempts, metrics, differences`
    (judge − strategy, `rrm.evaluation.bootstrap.compare`) and `weighted_differences` (weighted − strategy)."""
    enough = [g for g in groups if g.known and len(g) >= (n or 1)]
    if not enough:
        return None
    question_names = [g.asked or g.question for g in enough]
    table: dict[str, dict[str, Statistic]] = {
        name: {"outcome": by_questions([g.expected(name, n) for g in enough], question_names)} for name in strategies
    }
    questions, attempts = len(set(question_names)), sum(map(len, enough))
    few = too_few(questions, attempts)
    drawing: dict[str, Any] = {"thin": lambda _: few, "n": resamples, "seed": seed}
    measured = compare(table, questions, **drawing)
    if WEIGHTED in table:
        others = {name: statistics for name, statistics in table.items() if name not in OF_SCORES}
        by_votes = compare({JUDGE: table[WEIGHTED], **others}, questions, **drawing)
        measured["weighted_differences"] = by_votes["differences"]
    return {"n": n, "questions": questions, "attempts": attempts, **measured}


def success_of(measured: Mapping[str, Any]) -> dict[str, Any]:
    figures = {"success": {name: metrics["outcome"] for name, metrics in measured["metrics"].items()}}
    for key, name in (("differences", "judge_minus"), ("weighted_differences", "weighted_minus")):
        if key in measured:
            figures[name] = {other: metrics["outcome"] for other, metrics in measured[key].items() if metrics}
    return figures
