"""Whether a piece of work takes time of its input's length, whatever else the machine does."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

NOTHING = 0.05
"""Seconds that tell nothing."""


def assert_linear(work: Callable[[int], object], count: int) -> None:
    """Four times the input may cost six times the processor time, and not the sixteen of its square.

    Args:
        work: does the work on an input of so many pieces.
        count: pieces of the smaller input. The best of three readings counts, as other programs only ever add to one: so the first
            reading of the larger input that is quick enough decides, and one of less than `NOTHING` needs no other beside it.
    """

    def seconds(pieces: int) -> float:
        gc.disable()  # it looks at all that the process holds, of other tests too, and the more often the more is made
        try:
            began = time.process_time()
            work(pieces)
            return time.process_time() - began
        finally:
            gc.enable()

    def best(pieces: int) -> float:
        return min(seconds(pieces) for _ in range(3))

    large = seconds(4 * count)
    if large <= NOTHING:
        return
    small = best(count)
    for _ in range(3):
        for _ in range(3):
            if large <= 6 * small + NOTHING:
                return
            large = seconds(4 * count)
        small = max(small, best(count))
    raise AssertionError(f"{count} pieces took {small:.3f} s and {4 * count} took {large:.3f} s")
