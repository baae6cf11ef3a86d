"""Requests to one server together, which share one patience."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rrm.engines.http import backoff

log = logging.getLogger(__name__)
PATIENCE_S = 60.0  # seconds of retries of a busy or absent server, from its first failure on
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
AT_ONCE_S = 0.01  # rest of a patience that counts as over


class Busy(Exception):
    """Retry a request, after `after_s` seconds where the server says when."""

    # silent: nobody answered, or the answer broke off; else the server asks for patience. timed_out: the answer's time limit was over.
    # absent: no connection came about.
    def __init__(
        self, why: str, after_s: float = 0.0, *, silent: bool = True, timed_out: bool = False, absent: bool = False
    ) -> None:
        super().__init__(why)
        self.why, self.after_s, self.silent, self.timed_out, self.absent = why, after_s, silent, timed_out, absent


async def _nobody() -> bool:
    return False


class Calls:
    """Requests in one event loop.

    Args:
        patience_s: seconds of retries of all together while none is answered, from the first failure.
        is_there: asks the server, once the patience is over.
        until: time (`time.monotonic`) after which nobody waits; a time-out is then not retried.
        absent_s: `patience_s` while no connection comes about.
    """

    def __init__(
        self,
        patience_s: float = PATIENCE_S,
        where: str = "the server",
        is_there: Callable[[], Awaitable[bool]] = _nobody,
        until: float | None = None,
        absent_s: float | None = None,
    ) -> None:
        self.absent_s = patience_s if absent_s is None else absent_s
        self.patience_s, self.where, self.is_there, self.until = patience_s, where, is_there, until
        self.over: str | None = None  # why nothing more is sent: the patience is over, and nobody is there
        self._looking = asyncio.Lock()
        self._since: float | None = None  # the first failure since the last answer, or since the server was last seen
        self._told = False
        self._accepted = 0

    @contextmanager
    def accepted(self) -> Iterator[None]:
        """Keep the patience from ending while an answer may still come."""
        self._accepted += 1
        try:
            yield
        finally:
            self._accepted -= 1

    def answered(self) -> None:
        if self._told:
            log.warning("%s answers again", self.where)
        self._told, self._since, self.over = False, None, None

    async def left_s(self, busy: Busy, since: float) -> float:
        """Return seconds left to retry a request that fails since `since`; logs the first failure of all."""
        now = monotonic()  # `since` is for its own patience, where others are answered or the server is busy
        waited = math.inf if self.until is None else 0.0 if busy.timed_out else self.until - now
        if self.over is not None or waited <= 0:
            return 0.0
        first = self._since = now if self._since is None else self._since
        patience_s = self.absent_s if busy.absent else self.patience_s
        if busy.silent and not self._told:
            self._told = True
            log.warning("%s; it is asked again, for %g s if nothing is answered", busy.why, patience_s)
        own, all_together = since + patience_s - now, first + patience_s - now
        if all_together > AT_ONCE_S:
            return min(own, all_together, waited)
        if not self._accepted and await self._is_gone(busy, first):
            return 0.0
        return min(self.patience_s if self._accepted else own, waited)

    async def _is_gone(self, busy: Busy, first: float) -> bool:
        """Check whether anybody is there, once for all; `first` is the failure that began the patience."""
        async with self._looking:
            if self.over is not None or self._since != first:  # another has looked, or something was answered
                return self.over is not None
            there = await self.is_there()
            if self._since != first or self._accepted:  # meanwhile
                return False
            if there:
                self._since = monotonic()
            else:
                self.over = f"{busy.why}; asked for {self.absent_s if busy.absent else self.patience_s:g} s"
            return not there


class Backoff:
    """Pauses between the tries of one request, until a patience is over."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.since: float | None = None
        self.tries = 0

    def answered(self) -> None:
        self.since, self.tries = None, 0
        self.calls.answered()

    async def wait(self, busy: Busy) -> bool:
        """Wait before a retry; False where the time is over."""
        self.since = monotonic() if self.since is None else self.since
        left = await self.calls.left_s(busy, self.since)
        if left > AT_ONCE_S:
            await self.pause(busy.after_s, left)
        return left > AT_ONCE_S

    async def pause(self, least_s: float = 0.0, most_s: float = LONGEST_PAUSE_S) -> None:
        self.tries += 1
        await asyncio.sleep(min(max(backoff(FIRST_PAUSE_S, self.tries, LONGEST_PAUSE_S), least_s), most_s))
