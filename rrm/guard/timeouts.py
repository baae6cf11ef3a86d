"""A deadline for a function: it runs in a thread, which is left behind when the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import TypeVar

from rrm.engines.async_runner import in_thread

T = TypeVar("T")


class Deadline:
    """A time, `seconds` from now, by which something is done or counts as failed."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.at = seconds, time.monotonic() + seconds  # `at` on the clock of `time.monotonic`
        self.late = False  # a thread was left behind, and may still be at work

    def within(self, do: Callable[[], T]) -> T:
        """Call a function in a thread of its own; TimeoutError if it is late, and its result is lost."""
        future = in_thread(do, "rrm-deadline")
        wait([future], max(0.0, self.at - time.monotonic()))
        if future.done():
            return future.result()
        self.late = True
        raise TimeoutError(f"it was not done within the {self.seconds:g} s for which it is waited")
