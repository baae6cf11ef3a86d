"""A trie of continuations of one prefix, whose inner nodes each run through the model once.

The score grid 0.0 … 1.0 has eleven values of three tokens, but only four inner nodes beside the root: `0`, `0.`, `1`, `1.`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Trie:
    """Inner nodes of a trie, parents first; node 0 is the root (the row itself, without a token)."""

    tokens: list[int]  # token of inner node i + 1, length N
    parents: list[int]  # parent node (0 is the root) of inner node i + 1, length N
    # per continuation (node, token) pairs: log p(continuation) = Σ log p(token | node)
    paths: list[list[tuple[int, int]]]

    def depths(self) -> list[int]:
        """Depth of each inner node: its position id is the row's length + depth − 1."""
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
    """Build the trie of the continuations' proper prefixes; ValueError for none, or an empty one."""
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
    """1 − Σ exp(log p): mass of anything else; no continuation may be a prefix of another."""
    return min(1.0, max(0.0, 1.0 - math.fsum(math.exp(value) for value in logprobs)))
