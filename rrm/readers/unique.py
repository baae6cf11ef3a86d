"""Ids that stay unique over any number of files, in eight bytes an id."""

from __future__ import annotations

import hashlib

import numpy as np

FLUSH = 65_536


class UniqueIds:
    """Hands out each id once; a repeated one gets the lowest free suffix `#2`, `#3`, … in reading order.

    Only 64-bit hashes are held: up to 65,536 in a set, the rest in one sorted array (8 MB a million). Two ids that
    collide (about one chance in 37 million over a million ids) cost a needless suffix, never a duplicate.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted = np.empty(0, dtype=np.uint64)

    def __contains__(self, name: str) -> bool:
        key = key_of(name)
        if key in self._recent:
            return True
        index = int(np.searchsorted(self._sorted, np.uint64(key)))
        return index < len(self._sorted) and int(self._sorted[index]) == key

    def take(self, name: str) -> str:
        """`name` itself, or `name#k` where it was taken before."""
        unique = name if name not in self else self._next(name)
        self._recent.add(key_of(unique))
        if len(self._recent) >= FLUSH:
            fresh = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
            self._sorted = np.sort(np.concatenate([self._sorted, fresh]))
            self._recent.clear()
        return unique

    def _next(self, name: str) -> str:
        """Find a free suffix by doubling and bisection: a million rows of one id cost log n look-ups each."""
        low, high = 1, 2  # `low` is taken, `high` is not yet known
        while f"{name}#{high}" in self:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if f"{name}#{middle}" in self else (low, middle)
        return f"{name}#{high}"


def key_of(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
