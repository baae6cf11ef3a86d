"""Who meets whom, and what it comes to: attempts at one question in heats, and the heats' orders as relative scores (pure).

A group that one prompt holds is one heat. A larger one is read in heats of `size` along a circle drawn by seed, each starting half a
heat (rounded down) after the one before it, so that every attempt stands in two heats or three and neighbours share members: in two where
`size` is even and its half divides the attempts, in three where it is 3.

    score(i) = mean over the other attempts j of P(i before j)

P is how often i was placed before j where the two met, ties ½. Where they did not, it is 1 if others lead from i down to j and none
back up, and ½ if none lead either way: orders that contradict each other nowhere keep whom they place above whom. Where others lead
both ways, the heats contradict each other, and P is e^(a_i) / (e^(a_i) + e^(a_j)) with the strengths a of a Bradley-Terry model of all
meetings (Bradley and Terry 1952; ties ½; one virtual tie of each attempt with an average one, so that nobody's strength is infinite).
In one heat the score is the share of the others that an attempt was placed before: first is 1,
last is 0, and all alike are ½.
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
ROUNDS = 200
"""Of the fit; each is exact in one strength, and the strengths of a few dozen attempts settle in far fewer."""


def draw_heats(attempts: Sequence[A], size: int, seed: int) -> list[list[A]]:
    """The heats of a group, each in the order in which it is shown, drawn by seed.

    Args:
        size: most attempts of a heat, at least 2.

    Raises:
        ValueError: fewer than two attempts, or a size below 2.
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
    """What heats said: for each pair how often they met, and how often the one was placed before the other."""

    wins: dict[tuple[A, A], float] = field(default_factory=lambda: defaultdict(float))
    """(i, j) → how often i was before j; a tie is ½ to both."""
    earlier: float = 0.0
    """Decided meetings that the attempt won which was shown first."""
    decided: int = 0

    def add(self, shown: Sequence[A], places: Sequence[int]) -> None:
        """One heat's outcome.

        Args:
            shown: attempts in the order in which they were shown.
            places: their places, 1 the best; equal places are ties.
        """
        for (i, place_i), (j, place_j) in combinations(zip(shown, places, strict=True), 2):
            won = 0.5 if place_i == place_j else float(place_i < place_j)
            self.wins[i, j] += won
            self.wins[j, i] += 1.0 - won
            if won != 0.5:
                self.decided += 1
                self.earlier += won

    def met(self, i: A, j: A) -> float:
        """How often two attempts met."""
        return self.wins.get((i, j), 0.0) + self.wins.get((j, i), 0.0)

    def together(self, attempts: Sequence[A]) -> list[list[A]]:
        """The attempts in sets that meetings connect, largest first, then by who stands first."""
        left, found = list(attempts), list[list[A]]()
        while left:
            reached, waiting = {left[0]}, [left[0]]
            while waiting:
                here = waiting.pop()
                more = [j for j in left if j not in reached and self.met(here, j)]
                reached.update(more)
                waiting += more
            found.append([a for a in left if a in reached])
            left = [a for a in left if a not in reached]
        return sorted(found, key=len, reverse=True)

    def scores(self, attempts: Sequence[A]) -> list[float]:
        """Relative scores in [0, 1] of at least two connected attempts; their mean is ½."""
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
        """Those that meetings lead down to from an attempt, each placed no later than the next."""
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
        """e^a of each attempt, by the minorise-maximise rounds of Hunter (2004)."""
        strength = dict.fromkeys(attempts, 1.0)
        rivals = {i: [j for j in attempts if j != i and self.met(i, j)] for i in attempts}
        for _ in range(ROUNDS):
            for i in attempts:
                won = math.fsum(self.wins[i, j] for j in rivals[i]) + 0.5
                played = math.fsum(self.met(i, j) / (strength[i] + strength[j]) for j in rivals[i])
                strength[i] = won / (played + 1.0 / (strength[i] + 1.0))
        return strength
