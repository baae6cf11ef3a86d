"""Windows of work sized by time, in seconds, and the order of items in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
FIRST_WINDOW = 32  # items
WINDOW_SECONDS = 60.0
GROWTH = 4.0  # most growth between windows


def windows(
    items: Iterable[T], largest: int, *, first: int = FIRST_WINDOW, seconds: float = WINDOW_SECONDS
) -> Iterator[list[T]]:
    """Yield lists of consecutive items, sized so that the caller takes about `seconds` for each.

    Args:
        largest: most items of a window.
        first: items of the first window.
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
    """Yield the items, those of one group together as far as they are within `ahead` of each other."""
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
