"""Run coroutines from synchronous code, and read iterables in a thread for coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar

from rrm.data.stop_signals import STOPS

T = TypeVar("T")
CLOSE_S = 10.0  # how long closing waits for what it ends


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where a loop already runs in this thread (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with STOPS.left_to_asyncio():
            return asyncio.run(_stoppable(work))
    loop = Background("run")
    try:
        return loop.run(work)
    finally:
        loop.close()


async def _stoppable(work: Coroutine[Any, Any, T]) -> T:
    STOPS.hand_to_asyncio()
    return await work


async def together(work: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """Await coroutines at once, results in order; the first failure ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine()) for coroutine in work]
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]


class Background:
    """Run an event loop in a daemon thread, for work that goes on while the caller does something else."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=name)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine; its future may be waited for, or cancelled. RuntimeError after `close`."""
        if self.closed:
            work.close()  # it is never awaited
            raise RuntimeError(f"{self._thread.name} was closed, and begins nothing")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:  # an interrupt ends the work as well
            future.cancel()
            raise

    def close(self, wait_s: float = CLOSE_S) -> None:
        """End what still runs, and the thread; one that something blocks is left behind."""
        if self.closed:
            return
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end()))
        self._thread.join(wait_s)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()


FEED_CLOSE_S = 1.0  # a pipe that is being read may never give an item


class Feed(Generic[T]):
    """Await an iterable's items; a thread reads up to `ahead` of them, unless it is a sequence."""

    def __init__(self, source: Iterable[T], ahead: int) -> None:
        self._here: Iterator[T] | None = iter(source) if isinstance(source, Sequence) else None
        self._source, self._room = source, threading.Semaphore(ahead)
        self._queue: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue()
        self._closed, self._thread = False, threading.Thread(target=self._read, name="feed", daemon=True)

    def __enter__(self) -> Feed[T]:
        if self._here is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._here is None:
            self._room.release()
            self._thread.join(FEED_CLOSE_S)

    async def next(self) -> T | None:
        """The next item, None after the last; raises what reading raised."""
        if self._here is not None:
            return next(self._here, None)
        item, error = await self._queue.get()
        if error is not None:
            raise error
        self._room.release()
        return item

    def _read(self) -> None:
        try:
            for item in self._source:
                self._room.acquire()
                if self._closed:
                    return
                self._put(item, None)
            self._put(None, None)
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            self._put(None, error)

    def _put(self, item: T | None, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (item, error))
        except RuntimeError:
            if not self._closed:  # the loop ended, and nobody waits any more
                raise


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Run a function in its own daemon thread, which delays no exit; its error stays in the future."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # nobody can take back what runs

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - the caller reads it from the future
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=name).start()
    return future
