"""Runs environments' steps in an event loop of their own while the policy generates.

One background thread holds the loop. Resets may block, so each runs in a thread. What a job raises stays in its future."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

from rrm.engines.async_runner import Background, in_thread

logger = logging.getLogger(__name__)

_GRACE_S = 5.0  # beyond a job's own time-out: by then its event loop must be blocked
_CLOSE_S = 10.0
_LINGER_S = 0.002  # wait for further jobs while nothing else is to do, so that rows go on together


async def _contained(job: Coroutine[Any, Any, Any]) -> Any:
    """`job`, in which SystemExit and KeyboardInterrupt become RuntimeError: they would end the loop."""
    try:
        return await job
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__} in an environment: {error}") from error


class EnvLoop:
    """Runs jobs (each up to `timeout_s`) under names and hands back their futures as they end."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._loop = Background("environments")
        self._done: queue.SimpleQueue[tuple[str, Future[Any]]] = queue.SimpleQueue()
        self._running: dict[str, tuple[Future[Any], float, float]] = {}  # name → (future, deadline, allowed seconds)
        self._in_threads: set[Future[Any]] = set()
        self._blocked = False
        self._closing: list[Future[Any]] = []

    @property
    def pending(self) -> int:
        return len(self._running)

    def start(self, name: str, job: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine; one job a name at a time."""
        timed = asyncio.wait_for(_contained(job), self.timeout_s)
        self._watch(name, self._loop.start(timed))

    def start_blocking(self, name: str, function: Callable[[], Any], timeout_s: float | None = None) -> None:
        """Run a plain function in a daemon thread. `timeout_s`: instead of the loop's."""
        future = in_thread(function, name)
        self._in_threads.add(future)
        self._watch(name, future, timeout_s)

    def _watch(self, name: str, future: Future[Any], timeout_s: float | None = None) -> None:
        allowed, grace = (self.timeout_s, _GRACE_S) if timeout_s is None else (timeout_s, 0.0)
        self._running[name] = (future, time.monotonic() + allowed + grace, allowed)
        future.add_done_callback(lambda done: self._done.put((name, done)))

    def ready(self, wait: bool) -> list[tuple[str, Future[Any]]]:
        """The jobs that ended since the last call; with `wait` at least one, if any runs.
        A job whose thread or loop is blocked beyond its time-out is handed back with a TimeoutError."""
        ended: list[tuple[str, Future[Any]]] = []
        while self._running:
            late = min(deadline for _, deadline, _ in self._running.values()) - time.monotonic()
            timeout = (_LINGER_S if ended else max(late, 0.0)) if wait else 0.0
            try:
                name, future = self._done.get(timeout=timeout) if timeout > 0 else self._done.get_nowait()
            except queue.Empty:
                if not ended and late <= 0:
                    ended += self._overdue()
                if ended or not wait:
                    return ended
                continue
            if self._running.get(name, (None,))[0] is future:
                del self._running[name]
                ended.append((name, future))
        return ended

    def _overdue(self) -> list[tuple[str, Future[Any]]]:
        now, overdue = time.monotonic(), []
        for name, (future, deadline, allowed) in list(self._running.items()):
            if deadline <= now:
                del self._running[name]
                self._blocked |= future not in self._in_threads
                failed: Future[Any] = Future()
                failed.set_exception(TimeoutError(f"no answer within {allowed:g} s, and it blocks its thread"))
                overdue.append((name, failed))
        return overdue

    def close_later(self, job: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine; the end waits for it, and logs its error."""
        if self._blocked:
            job.close()
            logger.warning("an environment was not closed: another one blocks the event loop (a plain call in `step`?)")
            return
        timed = asyncio.wait_for(_contained(job), _CLOSE_S)
        self._closing.append(self._loop.start(timed))

    def __enter__(self) -> EnvLoop:
        return self

    def __exit__(self, *_: object) -> None:
        for future, _deadline, _allowed in self._running.values():
            future.cancel()
        deadline = time.monotonic() + _CLOSE_S
        for future in self._closing:
            try:
                error = future.exception(timeout=max(deadline - time.monotonic(), 0.0))
            except (TimeoutError, CancelledError) as late:
                error = late
            if error is not None:
                logger.warning("an environment could not be closed: %s: %s", type(error).__name__, error)
        self._loop.close(_GRACE_S)
