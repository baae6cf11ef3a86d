"""Heats of attempts at one question, and the relative scores of their orders (pure).

A group that fits one prompt is one heat. A larger one is read in heats of `size` along a circle drawn by seed, each starting
half a heat (rounded down) after the last, so every attempt is in two or three heats and neighbours share members.

    score(i) = mean over the other attempts j of P(i before j)

P is the share of meetings in which i was placed before j, ties ½. For a pair that never met it is 1 if meetings lead from i
down to j and none back, ½ if none lead either way, and else e^(a_i) / (e^(a_i) + e^(a_j)) with the strengths a of a
Bradley-Terry model of all meetings (Bradley and Terry 1952; ties ½; one virtual tie of each attempt with an average one keeps
strengths finite). In one heat the first scores 1, the last 0, and all alike ½.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Generic, TypeVar

A = TypeVar("A", bound=Hashable)
ROUNDS = 200  # of the fit; a few dozen attempts settle in far fewer


def draw_heats(attempts: Sequence[A], size: int, seed: int) -> list[list[A]]:
    """Draw a group's heats by seed, each in display order, of at most `size` attempts.

    Raises ValueError for fewer than two attempts, or a size below 2.
    """
    if size < 2 or len(attempts) < 2:
        raise ValueError(f"a heat compares at least two attempts, got {len(attempts)} in heats of {size}")
    rng = random.Random(seed)
    order = rng.sample(list(attempts), len(attempts))
    if len(order) <= size:
        return [order]
    heats = []
    for start in range(0, len(order), max(size // 2, 1)):
        heat = [order[(start + k) % len(order)] for k in range(size)]
        heats.append(rng.sample(heat, len(heat)))
    return heats


@dataclass
class ComparisonGraph(Generic[A]):
    # (i, j) → times i was placed before j; a tie is ½ for both
    wins: dict[tuple[A, A], float] = field(default_factory=lambda: defaultdict(float))
    earlier: float = 0.0  # decided meetings won by the attempt displayed first
    decided: int = 0

    def add(self, order: Sequence[A], places: Sequence[int]) -> None:
        """Add one heat: attempts in display order, and their places (1 the best, equal ones tied)."""
        for (i, place_i), (j, place_j) in combinations(zip(order, places, strict=True), 2):
            won = 0.5 if place_i == place_j else float(place_i < place_j)
            self.wins[i, j] += won
            self.wins[j, i] += 1.0 - won
            if won != 0.5:
                self.decided += 1
                self.earlier += won

    def met(self, i: A, j: A) -> float:
        return self.wins.get((i, j), 0.0) + self.wins.get((j, i), 0.0)

    def together(self, attempts: Sequence[A]) -> list[list[A]]:
        """Return the connected sets of attempts, largest first, then by their first member."""
        left, sets = list(attempts), list[list[A]]()
        while left:
            reached, waiting = {left[0]}, [left[0]]
            while waiting:
                here = waiting.pop()
                more = [j for j in left if j not in reached and self.met(here, j)]
                reached.update(more)
                waiting += more
            sets.append([a for a in left if a in reached])
            left = [a for a in left if a not in reached]
        return sorted(sets, key=len, reverse=True)

    def scores(self, attempts: Sequence[A]) -> list[float]:
        """Return relative scores in [0, 1] of at least two connected attempts; their mean is ½."""
        strength = self._strengths(attempts)
        below = {i: self._below(i, attempts) for i in attempts}

        def before(i: A, j: A) -> float:
            if met := self.met(i, j):
                return self.wins[i, j] / met
            down, up = j in below[i], i in below[j]
            if down and up:
                return strength[i] / (strength[i] + strength[j])
            return 0.5 + 0.5 * (down - up)

        return [math.fsum(before(i, j) for j in attempts if j != i) / (len(attempts) - 1) for i in attempts]

    def _below(self, top: A, attempts: Sequence[A]) -> set[A]:
        """Return attempts reachable from `top` by meetings placed no later than the next."""
        reached, waiting = {top}, [top]
        while waiting:
            here = waiting.pop()
            more = [
                j
                for j in attempts
                if j not in reached and self.met(here, j) and 2 * self.wins[here, j] >= self.met(here, j)
            ]
            reached.update(more)
            waiting += more
        return reached

    def _strengths(self, attempts: Sequence[A]) -> dict[A, float]:
        """Return e^a of each attempt, by the minorise-maximise rounds of Hunter (2004)."""
        strength = dict.fromkeys(attempts, 1.0)
        rivals = {i: [j for j in attempts if j != i and self.met(i, j)] for i in attempts}
        for _ in range(ROUNDS):
            for i in attempts:
                won = math.fsum(self.wins[i, j] for j in rivals[i]) + 0.5
                played = math.fsum(self.met(i, j) / (strength[i] + strength[j]) for j in rivals[i])
                strength[i] = won / (played + 1.0 / (strength[i] + 1.0))
        return strength
