"""Many continuations of one prefix, evaluated together: a trie whose inner nodes are each run through the model once.

The score grid 0.0 … 1.0, written as single digits, has eleven values of three tokens but only the inner nodes
`0`, `0.`, `1`, `1.` beside the root: four extra tokens give the log-probabilities of all eleven. Pure: no model here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Trie:
    """Inner nodes in breadth-last order of insertion; node 0 is the root (the row itself, it has no token).

    Legend: N inner nodes beside the root; a parent always comes before its children.
    """

    tokens: list[int]  # token of inner node i + 1, length N
    parents: list[int]  # node number (0 is the root) of the parent of inner node i + 1, length N
    # per continuation: (node, token) pairs; log p(continuation) = Σ log p(token | node)
    paths: list[list[tuple[int, int]]]

    def depths(self) -> list[int]:
        """Depth of each inner node (a child of the root has 1): its position id is the row's length + depth − 1."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return depths[1:]

    def sees(self) -> list[list[bool]]:
        """(N, N): inner node i may attend to inner node j, its ancestor or itself."""
        n = len(self.tokens)
        visible = [[False] * n for _ in range(n)]
        for i, parent in enumerate(self.parents):
            if parent:
                visible[i] = list(visible[parent - 1])
            visible[i][i] = True
        return visible


def build_trie(continuations: Sequence[Sequence[int]]) -> Trie:
    """The trie of the continuations' proper prefixes.

    Raises:
        ValueError: no continuation, or an empty one (its log-probability would be 0 whatever the model says).
    """
    if not continuations:
        raise ValueError("no continuations were given")
    numbers: dict[tuple[int, ...], int] = {(): 0}
    tokens: list[int] = []
    parents: list[int] = []
    paths: list[list[tuple[int, int]]] = []
    for position, continuation in enumerate(continuations):
        if not continuation:
            raise ValueError(f"continuation {position} is empty; every continuation needs at least one token")
        path: list[tuple[int, int]] = []
        for depth, token in enumerate(continuation):
            prefix = tuple(continuation[:depth])
            if prefix not in numbers:
                tokens.append(prefix[-1])
                parents.append(numbers[prefix[:-1]])
                numbers[prefix] = len(tokens)
            path.append((numbers[prefix], int(token)))
        paths.append(path)
    return Trie(tokens, parents, paths)


def off_grid_mass(logprobs: Sequence[float]) -> float:
    """1 − Σ exp(log p): the probability that went to anything but the continuations.

    The continuations must exclude each other (none a prefix of another), or the sum means nothing.
    """
    return min(1.0, max(0.0, 1.0 - math.fsum(math.exp(value) for value in logprobs)))
