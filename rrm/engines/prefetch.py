"""What is read in a thread of its own, a little ahead, for a loop that must not wait: a slow input delays no reply."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")
CLOSE_S = 1.0
"""How long closing waits for an item that is being read: a pipe may never give one."""


class Feed(Generic[T]):
    """The items of an iterable, awaited one after the other; a sequence is read where it is.

    Args:
        ahead: most items that are read before they are asked for.
    """

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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._here is None:
            self._room.release()
            self._thread.join(CLOSE_S)

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
