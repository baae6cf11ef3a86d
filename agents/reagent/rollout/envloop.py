"""Environments beside the model: their steps run in an event loop of their own while the policy generates.

One background thread holds the loop, so that tools of finished turns wait for their servers while other rows are decoded.
Resets may block, so each runs in a thread. Whatever a job raises stays in its future.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

from reagent.env.threads import in_thread

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
"""Longer than a job's own time-out: by then its event loop must be blocked."""
_CLOSE_S = 10.0
_LINGER_S = 0.002
"""While nothing else is to do: how long to wait for further jobs, so that rows go on together."""


async def _contained(job: Coroutine[Any, Any, Any]) -> Any:
    """`job`, in which SystemExit and KeyboardInterrupt are errors like any other: they would end the loop's thread."""
    try:
        return await job
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__} in an environment: {error}") from error


class EnvLoop:
    """Runs jobs under names and hands back their futures as they end; a context manager. `timeout_s`: a job that takes longer ends with
    TimeoutError."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="environments")
        self._done: queue.SimpleQueue[tuple[str, Future[Any]]] = queue.SimpleQueue()
        self._running: dict[str, tuple[Future[Any], float, float]] = {}
        """Each with its deadline, and the seconds that it was allowed."""
        self._in_threads: set[Future[Any]] = set()
        self._blocked = False
        self._closing: list[Future[Any]] = []

    @property
    def pending(self) -> int:
        """Jobs that `ready` has not handed back yet."""
        return len(self._running)

    def start(self, name: str, job: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine; one job a name at a time."""
        timed = asyncio.wait_for(_contained(job), self.timeout_s)
        self._watch(name, asyncio.run_coroutine_threadsafe(timed, self._loop))

    def start_blocking(self, name: str, function: Callable[[], Any], timeout_s: float | None = None) -> None:
        """Run a plain function in a thread of its own (a daemon: one that hangs does not keep the process). `timeout_s`: instead of the
        loop's."""
        future = in_thread(function, name)
        self._in_threads.add(future)
        self._watch(name, future, timeout_s)

    def _watch(self, name: str, future: Future[Any], timeout_s: float | None = None) -> None:
        allowed, grace = (self.timeout_s, _GRACE_S) if timeout_s is None else (timeout_s, 0.0)
        self._running[name] = (future, time.monotonic() + allowed + grace, allowed)
        future.add_done_callback(lambda done: self._done.put((name, done)))

    def ready(self, wait: bool) -> list[tuple[str, Future[Any]]]:
        """The jobs that ended since the last call; with `wait` at least one, if any runs.

        A job whose thread or loop is blocked beyond its time-out is handed back with a TimeoutError.
        """
        found: list[tuple[str, Future[Any]]] = []
        while self._running:
            late = min(deadline for _, deadline, _ in self._running.values()) - time.monotonic()
            timeout = (_LINGER_S if found else max(late, 0.0)) if wait else 0.0
            try:
                name, future = self._done.get(timeout=timeout) if timeout > 0 else self._done.get_nowait()
            except queue.Empty:
                if not found and late <= 0:
                    found += self._overdue()
                if found or not wait:
                    return found
                continue
            if self._running.get(name, (None,))[0] is future:
                del self._running[name]
                found.append((name, future))
        return found

    def _overdue(self) -> list[tuple[str, Future[Any]]]:
        now, found = time.monotonic(), []
        for name, (future, deadline, allowed) in list(self._running.items()):
            if deadline <= now:
                del self._running[name]
                self._blocked |= future not in self._in_threads
                failed: Future[Any] = Future()
                failed.set_exception(TimeoutError(f"no answer within {allowed:g} s, and it blocks its thread"))
                found.append((name, failed))
        return found

    def close_later(self, job: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine whose outcome matters to nobody; it is waited for at the end, and its error logged."""
        if self._blocked:
            job.close()
            logger.warning("an environment was not closed: another one blocks the event loop (a plain call in `step`?)")
            return
        timed = asyncio.wait_for(_contained(job), _CLOSE_S)
        self._closing.append(asyncio.run_coroutine_threadsafe(timed, self._loop))

    def __enter__(self) -> EnvLoop:
        self._thread.start()
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
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_GRACE_S)
        if not self._thread.is_alive():
            self._end_tasks()
            self._loop.close()

    def _end_tasks(self) -> None:
        """Let what was cancelled end, so that nothing complains of it later."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_GRACE_S))
