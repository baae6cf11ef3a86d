"""What an agent waits for only so long: it is done in a thread, which is left behind when the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import TypeVar

from rrm.engines.async_runner import in_thread
from rrm.errors import RRMError

T = TypeVar("T")


class OutOfTime(RRMError):
    """Something was not done by its deadline."""


class Deadline:
    """A time by which something is done, or counts as failed.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.at = seconds, time.monotonic() + seconds
        """`at`: on the clock of `time.monotonic`."""
        self.late = False
        """Whether a thread was left behind, which may still be at work."""

    def within(self, do: Callable[[], T]) -> T:
        """What a function returns or raises, in a thread of its own.

        Raises:
            OutOfTime: it is not done by then; what it comes to is never heard.
        """
        future = in_thread(do, "rrm-deadline")
        wait([future], max(0.0, self.at - time.monotonic()))
        if future.done():
            return future.result()
        self.late = True
        raise OutOfTime(f"it was not done within the {self.seconds:g} s for which it is waited")
