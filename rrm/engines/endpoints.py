"""Addresses of one model: which to ask next, how many requests at once, when to pause one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx2

from rrm.engines.http_errors import Retry
from rrm.engines.replies import MAX_WAIT_S
from rrm.engines.server_options import shown_address

log = logging.getLogger(__name__)
STRIKES = 3  # failures in a row that put an address out where another answers; no connection does at once
OUT_S = 5.0  # first time out; doubled each time it fails again
MAX_OUT_S = 300.0
LONG_S = 10.0  # a pause that a server asks for is logged from here on
MANY = 3  # tries after which a server that always says "too much" has closed
THROTTLED_S = 65.0  # or so long: more than a minute, after which per-minute limits begin anew
LOOK_S = 0.1  # a reply in another thread's event loop frees a slot, and wakes nobody here
SPARE_FILES = 256  # files beside connections that a process may need


@dataclass(eq=False)
class Endpoint:
    url: str
    limit: float  # requests at once: halved where the server is asked too much, slowly raised again
    in_flight: int = 0
    strikes: int = 0  # failures since it answered last
    out_until: float = 0.0
    rests_until: float = 0.0  # as the server asked (`Retry-After`)
    out_s: float = OUT_S
    bursts: int = field(default=0)  # how often the limit was halved: replies of one burst halve it once


class Endpoints:
    """Choose among addresses of one model; `concurrency`: requests at once at all of them together."""

    def __init__(self, urls: Sequence[str], concurrency: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.all = [Endpoint(url, float(concurrency)) for url in urls]
        self.concurrency, self.clock = concurrency, clock
        self._turn = 0
        self.answers = 0  # answers of all of them
        # since when they only throttle; moved by the pauses that they asked for
        self._throttled_since: float | None = None
        self._asked_until = 0.0  # end of the last such pause

    def begin(self) -> None:
        self._throttled_since = None

    def free(self, before: Endpoint | None = None) -> Endpoint | None:
        """Choose the least busy free address, `before` (which has the prefix) among equals; or None."""
        now = self.clock()
        alive = [e for e in self.all if e.out_until <= now] or self.all
        able = [e for e in alive if e.rests_until <= now and e.in_flight < self._most(e)]
        if not able:
            return None
        least = min(e.in_flight for e in able)
        equal = [e for e in able if e.in_flight == least]
        if before in equal:
            return before
        self._turn += 1
        return equal[self._turn % len(equal)]

    def _most(self, endpoint: Endpoint) -> float:
        # one that was out is tried with one request, while others do the work
        return 1.0 if endpoint.out_until and len(self.all) > 1 else endpoint.limit

    def wait_s(self) -> float | None:
        """Seconds until an address is free without a reply; None: only a reply changes that."""
        now = self.clock()
        times = [t for e in self.all if (t := max(e.rests_until, e.out_until)) > now]
        return max(min(times) - now, 0.001) if times else None

    def rest_s(self) -> float:
        """Seconds for which all addresses asked to be left alone; 0 where one did not."""
        return max(min(e.rests_until for e in self.all) - self.clock(), 0.0)

    def why_closed(self, throttled: int | None, answers: int) -> str | None:
        """Say why to stop and what to do: all ask for too long a pause, or only throttle; else None.

        Args:
            throttled: tries of a request that has no more; None: it has more.
            answers: `answers` when it was first sent.
        """
        if (rest := self.rest_s()) > MAX_WAIT_S:
            return f"it asks to wait {rest:,.0f} s: what was judged is kept; run the same command again then"
        seconds = 0.0 if self._throttled_since is None else self.clock() - self._throttled_since
        alone = sum(e.in_flight for e in self.all) <= 1  # else it may be at work on a long reply
        duration = f"{seconds:.0f} s" if seconds >= THROTTLED_S and alone else None
        if throttled is not None and throttled > MANY and self.answers == answers:
            duration = f"{throttled} tries"
        way_on = "run the same command again when its rate limit has passed, with a lower --concurrency"
        return duration and f"in {duration} it answered nothing else: what was judged is kept; {way_on}"

    def answered(self, endpoint: Endpoint) -> None:
        self.answers += 1
        self._throttled_since = None
        endpoint.strikes, endpoint.out_until, endpoint.out_s = 0, 0.0, OUT_S
        endpoint.limit = min(self.concurrency, endpoint.limit + 1.0 / endpoint.limit)

    def failed(self, endpoint: Endpoint, error: Retry, burst: int, pause: float) -> bool:
        """Note a failure; tell whether another address can be asked at once.

        Args:
            burst: `endpoint.bursts` when the request was sent.
            pause: seconds to leave it alone, where it asked for some.
        """
        now = self.clock()
        if error.retry_after > 0:
            if pause >= LONG_S and endpoint.rests_until <= now:
                log.warning("%s asks to wait %.0f s, and is left alone so long", shown_address(endpoint.url), pause)
            endpoint.rests_until = max(endpoint.rests_until, now + pause)
        self._note_throttled(error, now)
        if error.throttled:
            if burst == endpoint.bursts:
                endpoint.limit, endpoint.bursts = max(1.0, endpoint.limit / 2), burst + 1
            return any(e is not endpoint and max(e.rests_until, e.out_until) <= now for e in self.all)
        endpoint.strikes += 1
        if len(self.all) > 1 and (error.unconnected or endpoint.strikes >= STRIKES) and endpoint.out_until <= now:
            if not endpoint.out_until:
                # not what it said: that may quote a secret header
                why = "nobody answers there" if error.unconnected else f"it failed {endpoint.strikes} times in a row"
                log.warning("%s is left out for now: %s", shown_address(endpoint.url), why)
            endpoint.out_until, endpoint.out_s = now + endpoint.out_s, min(endpoint.out_s * 2, MAX_OUT_S)
        return any(e.out_until <= now for e in self.all if e is not endpoint)

    def _note_throttled(self, error: Retry, now: float) -> None:
        if not error.throttled:
            self._throttled_since = None
            return
        since, until = self._throttled_since, now + error.retry_after
        self._throttled_since = (now if since is None else since) + max(until - max(self._asked_until, now), 0.0)
        self._asked_until = max(self._asked_until, until)


class ConcurrencyLimiter:
    """Wait for slots at `Endpoints` of one client; of one event loop."""

    def __init__(self, endpoints: Endpoints, http: httpx2.AsyncClient) -> None:
        self.endpoints, self.http, self._changed = endpoints, http, asyncio.Condition()
        endpoints.begin()

    async def take(self, before: Endpoint | None = None) -> Endpoint:
        async with self._changed:
            while (endpoint := self.endpoints.free(before)) is None:
                try:
                    async with asyncio.timeout(min(self.endpoints.wait_s() or LOOK_S, LOOK_S)):
                        await self._changed.wait()
                except TimeoutError:
                    continue
            endpoint.in_flight += 1
            self._changed.notify()  # there may be room for the next one too
            return endpoint

    async def give(self, endpoint: Endpoint) -> None:
        endpoint.in_flight -= 1
        async with self._changed:
            self._changed.notify()


def room_for(connections: int) -> int:
    """Raise the limit of open files as needed; return how many connections fit, at most `connections`."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= files:
        return connections
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # macOS has a lower limit of its own
        most = soft
    room = max(1, min(connections, most - SPARE_FILES if most > SPARE_FILES else most // 2))
    if room < connections:
        log.warning(
            "this process may open %d files: %d requests are sent at once, not %d (ulimit -n raises that)",
            most,
            room,
            connections,
        )
    return room
