"""Whether a piece of work takes time of its input's length, whatever else the machine does."""

from __future__ import annotations

import time
from collections.abc import Callable


def assert_linear(work: Callable[[int], object], count: int) -> None:
    """Four times the input may cost six times the processor time, and not the sixteen of its square.

    Args:
        work: does the work on an input of so many pieces.
        count: pieces of the smaller input. The best of three readings counts, as other programs only ever add to one.
    """

    def seconds(pieces: int) -> float:
        readings = []
        for _ in range(3):
            began = time.process_time()
            work(pieces)
            readings.append(time.process_time() - began)
        return min(readings)

    small = seconds(count)
    for _ in range(3):
        large = seconds(4 * count)
        if large <= 6 * small + 0.05:
            return
        small = max(small, seconds(count))
    raise AssertionError(f"{count} pieces took {small:.3f} s and {4 * count} took {large:.3f} s")
