import asyncio
import threading
from collections import deque


class FairLimiter:
    """Lock with at most `limit` holders at a time, first come first served; across event loops and threads.
    asyncio.Semaphore belongs to one event loop, but a tool outlives loops, and a timed-out call's thread releases its slot from outside."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a limit on concurrent calls must be at least 1, got {limit}")
        self._free = limit
        self._lock = threading.Lock()
        self._queue: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def acquire(self, timeout_s: float) -> bool:
        """Take a slot, waiting at most `timeout_s` seconds; False where none came free."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._queue.append((loop, waiter))
        try:
            await asyncio.wait({waiter}, timeout=timeout_s)
        except asyncio.CancelledError:
            if waiter.done():
                self.release()
            waiter.cancel()
            raise
        return waiter.done() or not waiter.cancel()

    def release(self) -> None:
        """Give a slot back, from any thread: to the first who still waits, or to whoever comes next."""
        with self._lock:
            while self._queue:
                loop, waiter = self._queue.popleft()
                try:
                    loop.call_soon_threadsafe(self._grant, waiter)
                except RuntimeError:  # that loop is closed, so nobody waits there
                    continue
                return
            self._free += 1

    def _grant(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            self.release()
        else:
            waiter.set_result(None)
