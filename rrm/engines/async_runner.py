"""Coroutines from code that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from rrm.data.stop_signals import STOPS

T = TypeVar("T")
CLOSE_S = 10.0
"""How long closing waits for what it ends."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where a loop already runs in this thread (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with STOPS.left_to_asyncio():
            return asyncio.run(_stoppable(work))
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _stoppable(work: Coroutine[Any, Any, T]) -> T:
    """The work; a command's signals cancel it, as asyncio does on Ctrl-C: raised in the loop, they would leave tracebacks of its tasks."""
    STOPS.hand_to_asyncio()
    return await work


async def together(work: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """What these come to, in order; the first that fails ends the others, and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for one in work]
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]


class Background:
    """An event loop in a thread of its own, for work that goes on while the caller does something else.

    The thread is a daemon: a process may end without closing it.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=name)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether nothing can be begun any more."""
        return self._loop.is_closed()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine; its future may be waited for, or cancelled.

        Raises:
            RuntimeError: it was closed.
        """
        if self.closed:
            work.close()  # it is never awaited
            raise RuntimeError(f"{self._thread.name} was closed, and begins nothing")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:  # an interrupt ends the work as well
            future.cancel()
            raise

    def close(self) -> None:
        """End what still runs, and the thread."""
        if self.closed:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
