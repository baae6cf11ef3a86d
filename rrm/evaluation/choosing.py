"""Choosing one of several attempts at a question: by a judge, or by what needs none; and what each choice gives.

| strategy | chooses |
|---|---|
| judge | the highest score; an attempt without one only where no attempt has one |
| weighted | the answer whose attempts' scores have the highest sum (the voting verifier of DiVeRSe, Li et al., arXiv 2206.02336), and of these attempts the highest score |
| majority | an attempt with the answer that most attempts give; those without an answer do not vote |
| longest, shortest | by the characters of all messages |
| random | any: its expected outcome is the attempts' mean |
| oracle | the best outcome: what choosing could give at most (pass@n where outcomes are 0 and 1) |

What a strategy gives at n attempts is its exact expectation over every draw of n of a question's N attempts and over the
attempts that it cannot tell apart, not a mean of some draws (`expected_best`, `expected_majority`); of `weighted` a mean over 20,000 draws where there are more (`expected_weighted`). Figures are means over
questions, each one vote, with intervals over questions; differences are paired.

Legend: N attempts at a question, n of them drawn, Q questions.
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
"""Those that a judge is asked for."""
OF_ANSWERS = frozenset({WEIGHTED, "majority"})
"""Those that compare final answers."""
MOST_DRAWS = 20_000
"""Draws that are gone through one by one."""
UNSCORED = -np.inf
"""The preference for an attempt without a score: it orders attempts and is no score."""


def strategies_of(given: Iterable[str]) -> list[str]:
    """The strategies that a command line names: separate words or comma lists, `all` for every one; each once.

    Raises:
        RRMError: a name that is no strategy.
    """
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    found = list(dict.fromkeys(one for name in names for one in (STRATEGIES if name == "all" else (name,))))
    if unknown := [name for name in found if name not in STRATEGIES]:
        raise RRMError(f"no strategy {unknown[0]!r} of choosing; there are {', '.join(STRATEGIES)}, or all")
    return found


def answers_of(rows: Sequence[Trajectory]) -> list[str | None]:
    """Each attempt's final answer as it is compared; None where it gives none."""
    found = [final_answer(t) for t in rows]
    return [as_compared(answer[1]) if answer is not None else None for answer in found]


def as_compared(answer: str | None) -> str | None:
    """An answer in the form that attempts' answers are compared in (`rrm.data.text.answer_form`); None for none and for an empty one."""
    return (answer_form(answer) or None) if answer is not None else None


def expected_best(preference: np.ndarray, outcomes: np.ndarray, n: int) -> float:
    """Expected outcome of the most preferred of n attempts drawn without replacement, ties drawn alike.

    Among the draws whose best attempts have preference v each of the m attempts at v is as likely to be the one taken, so
    E = Σ_v P(best is v) · mean outcome at v, with P = (C(b + m, n) − C(b, n)) / C(N, n) and b attempts below v.

    Args:
        preference: (N,), higher is better, −inf allowed.
        outcomes: (N,).

    Raises:
        ValueError: n is not in 1 … N.
    """
    total = _draws(len(outcomes), n)
    value, below = 0.0, 0
    for level in np.unique(preference):
        at = preference == level
        count = int(at.sum())
        value += (comb(below + count, n) - comb(below, n)) / total * float(outcomes[at].mean())
        below += count
    return value


def expected_majority(answers: Sequence[str | None], outcomes: np.ndarray, n: int) -> float:
    """Expected outcome of an attempt with the most frequent answer among n attempts drawn without replacement.

    Answers that are equally frequent are as likely to be taken, and so is each attempt that gives one; where no attempt
    drawn gives an answer, each of them is. For every t the draws in which t is the largest count are added up: `ways[x, j]`
    is the share of those of x attempts with j answers given t times and none more often, `worth[x, j]` sums over them the mean
    outcomes of those j answers.

    Counts of draws outgrow a float, so shares are of draws that take each attempt by itself with p = n / N, and that turn
    out to take n: C(m, x) pˣ (1 − p)ᵐ⁻ˣ in the place of C(m, x), and C(N, n) pⁿ (1 − p)ᴺ⁻ⁿ in that of C(N, n).

    Raises:
        ValueError: n is not in 1 … N.
    """
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
        for at in places.values():
            mean, shares = float(outcomes[at].mean()), of_size[len(at)]
            grown, grown_worth = np.zeros_like(ways), np.zeros_like(worth)
            for x in range(min(top, len(at) + 1)):  # given less often than the top
                grown[x:] += shares[x] * ways[: n + 1 - x]
                grown_worth[x:] += shares[x] * worth[: n + 1 - x]
            if len(at) >= top:  # one of the most frequent
                many, held = shares[top], slice(0, n + 1 - top)
                grown[top:, 1:] += many * ways[held, :-1]
                grown_worth[top:, 1:] += many * (worth[held, :-1] + mean * ways[held, :-1])
            ways, worth = grown, grown_worth
        value += float((worth[n, 1:] / np.arange(1, worth.shape[1])).sum())
    return value / float(of_size[len(outcomes)][n])


def _taken(m: int, chance: float) -> np.ndarray:
    """(m + 1,) probabilities that 0 … m of m attempts are taken, each by itself with 0 < chance < 1."""
    x = np.arange(m + 1)
    choices = np.array([lgamma(m + 1) - lgamma(k + 1) - lgamma(m - k + 1) for k in range(m + 1)])
    return np.exp(choices + x * log(chance) + (m - x) * log1p(-chance))


def votes_of(answers: Sequence[str | None]) -> np.ndarray:
    """(N,) how many attempts give each attempt's answer; 0 for one without."""
    votes = Counter(answer for answer in answers if answer is not None)
    return np.array([votes[answer] if answer is not None else 0 for answer in answers], dtype=np.float64)


def weighted_votes(answers: Sequence[str | None], scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """(D, N) the sum of the scores of an attempt's answer among the attempts of each draw; −1 for an attempt without an answer, −inf for one
    that is not drawn.

    Args:
        scores: (N,); one below 0, or none (`UNSCORED`), votes with nothing.
        drawn: (D, N) booleans.
    """
    names = {answer: i for i, answer in enumerate(dict.fromkeys(a for a in answers if a is not None))}
    gives = np.zeros((len(answers), len(names)))
    for i, answer in enumerate(answers):
        if answer is not None:
            gives[i, names[answer]] = 1.0
    sums = (drawn * np.maximum(scores, 0.0)) @ gives
    column = np.array([-1 if answer is None else names[answer] for answer in answers])
    held = np.where(column < 0, -1.0, sums[:, column]) if names else np.full(drawn.shape, -1.0)
    return np.where(drawn, held, UNSCORED)


def best_weighted(answers: Sequence[str | None], scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """(D, N) whether an attempt is one of those that `weighted` would take of a draw."""
    votes = weighted_votes(answers, scores, drawn)
    held = np.isclose(
        votes, votes.max(axis=1, keepdims=True), rtol=0.0, atol=1e-12
    )  # sums of the same numbers in another order
    by_score = np.where(held, scores, UNSCORED)
    return held & (by_score == by_score.max(axis=1, keepdims=True))


def expected_weighted(
    answers: Sequence[str | None], scores: np.ndarray, outcomes: np.ndarray, n: int, seed: int = 0
) -> float:
    """Expected outcome of what `weighted` takes of n attempts drawn without replacement: exact up to `MOST_DRAWS` draws, else the mean of as
    many by seed.

    Raises:
        ValueError: n is not in 1 … N.
    """
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
    """C(N, n)."""
    if not 1 <= n <= attempts:
        raise ValueError(f"n={n} of {attempts} attempts cannot be drawn: 1 ≤ n ≤ {attempts}")
    return comb(attempts, n)


@dataclass(frozen=True)
class Attempts:
    """The attempts at one question, as strategies see them: (N,) each, in one order."""

    question: str
    rows: Sequence[int]
    """Their places in the caller's list."""
    lengths: np.ndarray
    """Characters."""
    answers: Sequence[str | None]
    """As they are compared; None where an attempt gives none."""
    outcomes: np.ndarray
    """In [0, 1], NaN where unknown."""
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    """`judge`, and any other scorer that is compared with it: higher is better, `UNSCORED` where there is none."""
    asked: str | None = None
    """What several of these ask, where one question is asked in several ways: they are drawn together. None: nobody else asks it."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def known(self) -> bool:
        """Whether every attempt's outcome is known."""
        return bool(np.isfinite(self.outcomes).all())

    def preference(self, strategy: str) -> np.ndarray:
        """(N,) what a strategy makes of all the attempts: it takes one of the highest.

        Raises:
            RRMError: the judge is asked for and there are no scores; or no such strategy.
        """
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
        """Expected outcome of the attempt chosen among n drawn of them (all, where n is None); outcomes must be known."""
        drawn = len(self) if n is None else n
        if strategy == "majority":
            return expected_majority(self.answers, self.outcomes, drawn)
        if strategy == WEIGHTED and JUDGE in self.scores:
            return expected_weighted(self.answers, self.scores[JUDGE], self.outcomes, drawn)
        return expected_best(self.preference(strategy), self.outcomes, drawn)

    def choose(self, strategy: str, seed: int) -> int:
        """The number (0 … N − 1) of the attempt chosen among all; of several that are preferred alike one by seed."""
        preference = self.preference(strategy)
        best = np.flatnonzero(preference == preference.max())
        return int(random.Random(derive_seed(seed, "choose", strategy, self.question)).choice(best.tolist()))


def expected_distinct(copies: Iterable[int], attempts: int) -> list[float]:
    """(attempts + 1) how many contents there are among 0, 1, 2 … attempts drawn without putting back, in expectation: what a judge
    reads, that reads copies once.

    Args:
        copies: of each content, how many of the attempts have it; where there are several questions, of all their contents.
        attempts: at each question.
    """
    counts = list(copies)
    return [sum(1 - comb(attempts - k, n) / comb(attempts, n) for k in counts) for n in range(attempts + 1)]


def grouped(rows: Sequence[Trajectory], scores: Mapping[str, Sequence[float | None]] | None = None) -> list[Attempts]:
    """The questions of transcripts, in the order in which they first come.

    Args:
        scores: scorer → one score a transcript, None where it has none.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for i, t in enumerate(rows):
        places[question_of(t)].append(i)
    held = {name: as_preference(values) for name, values in (scores or {}).items()}
    lengths = np.array([transcript_length(t) for t in rows], dtype=np.float64)
    outcomes = np.array([np.nan if t.outcome is None else t.outcome for t in rows], dtype=np.float64)
    answers = answers_of(rows)
    return [
        Attempts(
            question,
            at,
            lengths[at],
            [answers[i] for i in at],
            outcomes[at],
            {name: values[at] for name, values in held.items()},
        )
        for question, at in places.items()
    ]


def as_preference(scores: Sequence[float | None]) -> np.ndarray:
    """(N,) scores by which attempts are ordered; one without a score comes last."""
    return np.array([UNSCORED if s is None else s for s in scores], dtype=np.float64)


def measure(
    groups: Sequence[Attempts],
    strategies: Sequence[str],
    *,
    n: int | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, Any] | None:
    """Mean outcome of what each strategy chooses among n attempts, over the groups with n or more whose outcomes are all known; None
    without any.

    Args:
        n: attempts to choose from; None: all that a group has.
        seed: of the resamples.

    Returns:
        `n, questions, attempts` (groups that ask one question are one), and `metrics` and `differences` (judge − strategy) of `outcome` with paired intervals over
        questions (`rrm.evaluation.bootstrap.compare`); `weighted_differences` (weighted − strategy) where that is among them.
    """
    enough = [g for g in groups if g.known and len(g) >= (n or 1)]
    if not enough:
        return None
    asked = [g.asked or g.question for g in enough]
    table: dict[str, dict[str, Statistic]] = {
        name: {"outcome": by_questions([g.expected(name, n) for g in enough], asked)} for name in strategies
    }
    questions, attempts = len(set(asked)), sum(map(len, enough))
    few = too_few(questions, attempts)
    drawing: dict[str, Any] = {"thin": lambda _: few, "n": resamples, "seed": seed}
    measured = compare(table, questions, **drawing)
    if WEIGHTED in table:
        others = {name: one for name, one in table.items() if name not in OF_SCORES}
        by_votes = compare({JUDGE: table[WEIGHTED], **others}, questions, **drawing)
        measured["weighted_differences"] = by_votes["differences"]
    return {"n": n, "questions": questions, "attempts": attempts, **measured}


def success_of(measured: Mapping[str, Any]) -> dict[str, Any]:
    """What `measure` found as figures say it: `success` of each strategy, `judge_minus` each other one, and `weighted_minus`."""
    figures = {"success": {name: one["outcome"] for name, one in measured["metrics"].items()}}
    for key, name in (("differences", "judge_minus"), ("weighted_differences", "weighted_minus")):
        if key in measured:
            figures[name] = {other: one["outcome"] for other, one in measured[key].items() if one}
    return figures
