"""What the study of the guard compares: runs with what the judge said after each step, and each way of stopping them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rrm.guard.policy import GuardPolicy, GuardSignals, Signal

GRID: dict[str, np.ndarray] = {
    "guard": np.round(np.arange(0.0, 1.0001, 0.01), 2),
    "turns": np.round(np.arange(1.0, 31.0, 0.05), 2),
    "random": np.round(np.arange(0.0, 1.0001, 0.005), 3),
    "turns_of_source": np.round(np.arange(0.3, 4.0001, 0.02), 2),
}
"""Parameters: a threshold, turns, a probability, times the median."""
POLICIES: dict[str, tuple[Signal, int]] = {
    "guard": ("score", 2),
    "guard_patience_1": ("score", 1),
    "guard_p_good": ("p_good", 2),
    "guard_p_good_patience_1": ("p_good", 1),
}
"""`guard` is the primary one."""


@dataclass(frozen=True)
class Run:
    """One run and what the judge said after each of its steps."""

    id: str
    source: str
    question: str
    good: bool
    tokens: list[int]  # that each step added
    score: list[float]
    p_good: list[float]
    judge_tokens: list[int]
    judge_seconds: list[float]

    @property
    def left(self) -> np.ndarray:
        """(n,) tokens that come after each step."""
        return sum(self.tokens) - np.cumsum(self.tokens)


@dataclass(frozen=True)
class Effect:
    """What one setting does to some runs, an entry a run; expectations where it draws."""

    stopped: np.ndarray
    tokens: np.ndarray  # saved
    steps: np.ndarray  # saved


def guarded(signal: Signal, patience: int) -> Callable[[Sequence[Run], float], Effect]:
    """The guard at a threshold, replayed over the judge's words."""

    def effect(runs: Sequence[Run], threshold: float) -> Effect:
        policy = GuardPolicy(signal=signal, halt_below=threshold, patience=patience)
        at = [halt(getattr(run, signal), policy) for run in runs]
        return _stopped(runs, [{k: 1.0} if k is not None else {} for k in at])

    return effect


def halt(signals: Sequence[float], policy: GuardPolicy) -> int | None:
    """The first step, from 1, after which the guard halts; None: it lets the run end."""
    watch = GuardSignals()
    for step, signal in enumerate(signals, 1):
        watch = watch.after(signal, policy)
        if watch.action(policy) == "halt":
            return step
    return None


def turns(runs: Sequence[Run], most: float) -> Effect:
    """Stop what runs longer than so many turns."""
    k, share = int(most), most - int(most)
    return _stopped(runs, [{k: 1.0 - share, k + 1: share} for _ in runs])


def at_random(runs: Sequence[Run], p: float) -> Effect:
    """Stop after each step with this probability."""
    return _stopped(runs, [{k: p * (1.0 - p) ** (k - 1) for k in range(1, len(run.tokens) + 1)} for run in runs])


def _stopped(runs: Sequence[Run], chances: Sequence[Mapping[int, float]]) -> Effect:
    """Of each run, step → the chance that it is stopped after it; after the last one there is nothing to stop."""
    rows = []
    for run, chance in zip(runs, chances, strict=True):
        n, left = len(run.tokens), run.left
        live = {k: p for k, p in chance.items() if k < n}
        saved = (sum(p * left[k - 1] for k, p in live.items()), sum(p * (n - k) for k, p in live.items()))
        rows.append((sum(live.values()), *saved))
    return Effect(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


def source_alone(every: Sequence[Run]) -> Way:
    """Stop after the first step where the source's other runs are good less often than the threshold says."""
    good, all_of = Counter(run.source for run in every if run.good), Counter(run.source for run in every)

    def effect(runs: Sequence[Run], threshold: float) -> Effect:
        rates = [(good[run.source] - run.good) / max(all_of[run.source] - 1, 1) for run in runs]
        return _stopped(runs, [{1: 1.0} if rate < threshold else {} for rate in rates])

    return effect


def turns_of_source(every: Sequence[Run]) -> Way:
    """Stop what runs longer than so many times the median length of its source's runs."""
    lengths = {s: [len(run.tokens) for run in its] for s, its in of_sources(every).items()}
    middle = {source: float(np.median(its)) for source, its in lengths.items()}

    def effect(runs: Sequence[Run], times: float) -> Effect:
        return _stopped(runs, [{max(math.ceil(times * middle[run.source] - 1e-9), 1): 1.0} for run in runs])

    return effect


def of_sources(runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {source: [run for run in runs if run.source == source] for source in sorted({run.source for run in runs})}


def shuffled(runs: Sequence[Run], seed: int) -> list[Run]:
    """The runs, each with the scores of another one of its source: cut to its length, or their last one repeated. A source's only run
    keeps its own."""
    rng = np.random.default_rng(seed)
    given: dict[str, list[float]] = {}
    for its in of_sources(runs).values():
        order = [its[i] for i in rng.permutation(len(its))]
        for run, other in zip(order, [*order[1:], order[0]], strict=True):
            n = len(run.tokens)
            given[run.id] = [*other.score, *[other.score[-1]] * n][:n]
    return [replace(run, score=given[run.id]) for run in runs]


Way = Callable[[Sequence[Run], float], Effect]
WAYS: dict[str, Way] = {**{name: guarded(*how) for name, how in POLICIES.items()}, "turns": turns, "random": at_random}


def grid_of(way: str) -> np.ndarray:
    """The parameters that are tried, from the one that stops least."""
    grid = GRID.get(way, GRID["guard"])
    return grid[::-1] if way in ("turns", "turns_of_source") else grid
