"""Work in slices sized after the clock: what a kill may cost, and how often progress is heard of, in seconds. And their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
FIRST_WINDOW = 32
"""Items in the first window, until it is known how fast the work goes."""
WINDOW_SECONDS = 60.0
"""What a window should take."""
GROWTH = 4.0
"""Most that a window grows over the one before."""


def windows(
    items: Iterable[T], largest: int, *, first: int = FIRST_WINDOW, seconds: float = WINDOW_SECONDS
) -> Iterator[list[T]]:
    """Lists of consecutive items, sized after the time the caller took for the one before (about `seconds` each).

    Args:
        largest: most items of a window.
        first: items of the first one.
    """
    window: list[T] = []
    size = min(first, largest)
    for item in items:
        window.append(item)
        if len(window) == size:
            started = time.monotonic()
            yield window
            factor = seconds / max(time.monotonic() - started, 1e-3)
            size, window = max(1, min(largest, int(size * min(factor, GROWTH)))), []
    if window:
        yield window


def beside(items: Iterable[T], group: Callable[[T], Hashable], ahead: int) -> Iterator[T]:
    """The items, those of one group one after the other as far as they stand within `ahead` of each other; groups in the order of
    their first items."""
    size, window = min(FIRST_WINDOW, ahead), list[T]()

    def grouped() -> Iterator[T]:
        groups: dict[Hashable, list[T]] = {}
        for item in window:
            groups.setdefault(group(item), []).append(item)
        for several in groups.values():
            yield from several

    for item in items:
        window.append(item)
        if len(window) >= size:
            yield from grouped()
            window, size = [], min(ahead, int(size * GROWTH))  # a slow input is not waited for at first
    yield from grouped()
