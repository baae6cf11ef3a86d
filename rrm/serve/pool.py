"""The queue of `rrm serve`, and the workers that answer it.

A free worker takes a batch: items of equal settings and different ids, one of each request in turn, so that large requests do not delay
small ones. No batch waits to fill; a full one that waits for the only worker is handed over ahead. Batches change no score.

Items of a worker that died, or was silent for `job_s`, are retried one by one; after `TRIES` deaths, or an error that no judge should
raise, their row is a `judge_error`. A worker that does not start, or loads another judge, is retried as long as the server lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import sys
from collections import OrderedDict, deque
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rrm.errors import RRMError
from rrm.serve.metrics import Load, Metrics
from rrm.serve.process import WorkerProcess

log = logging.getLogger(__name__)
TRIES = 2  # deaths of a worker at an item by itself, after which it is given up
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 30.0  # between starts of a worker that does not start; doubles
JOB_S = 1800.0  # between two rows of a worker that has items: longer is a worker that hangs
T = TypeVar("T")


class RequestRefused(RRMError):
    """A request, or its field `at`, is refused with a status of HTTP; 500: no worker could judge an item."""

    def __init__(self, message: str, at: str | None = None, status: int = 422) -> None:
        super().__init__(message)
        self.at, self.status = at, status


@dataclass(eq=False)
class PendingItem:
    """An item and the future of its row."""

    what: str
    how: str  # JSON of the settings: items of one batch have equal ones
    item: str  # JSON, made before: an item may be large
    ids: frozenset[str]
    done: asyncio.Future[dict[str, Any]]
    alone: bool = False  # it was in a batch that failed
    deaths: int = 0


class WorkerPool:
    """Worker processes over one queue.

    Args:
        options: `JudgeOptions` by name, of the judge that each worker loads.
        batch: most items that a worker is given at once.
        job_s: seconds without a row after which a worker hangs.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        workers: int,
        batch: int,
        most_waiting: int,
        metrics: Metrics,
        job_s: float = JOB_S,
        command: Sequence[str] = (sys.executable, "-m", "rrm.serve.worker"),
    ) -> None:
        self.options, self.workers, self.batch, self.most_waiting = dict(options), workers, batch, most_waiting
        self.metrics, self.job_s, self.command = metrics, job_s, command
        self.load = Load()
        metrics.load(self.load)
        self.about: dict[str, Any] | None = None
        self._requests: OrderedDict[int, deque[PendingItem]] = OrderedDict()
        self._numbers, self._jobs = itertools.count(), itertools.count()
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: set[WorkerProcess] = set()
        # worker → number of a job that it has → the job's unanswered items, by index
        self._held: dict[WorkerProcess, OrderedDict[int, dict[int, PendingItem]]] = {}
        self._closing = False

    # ---- life ----

    async def start(self) -> dict[str, Any]:
        """Start the workers; returns `rrm.serve.schemas.About` once one is ready, or raises RRMError."""
        first = await self._launch()  # its error is the user's, before anything is served
        assert self.about is not None
        self._tasks = [asyncio.create_task(self._work(first if n == 0 else None)) for n in range(self.workers)]
        return self.about

    async def close(self) -> None:
        """Answer pending items for at most `job_s`, then end the workers."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_answered(), self.job_s)
        await self._give_up("the server was stopped")
        await self.kill()

    async def kill(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in list(self._processes):
            await self._end(process)

    async def _all_answered(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self.load.waiting and not self._awaited())

    def _awaited(self) -> list[PendingItem]:
        """Return items that workers have and somebody waits for."""
        return [
            ask
            for jobs in self._held.values()
            for left in jobs.values()
            for ask in left.values()
            if not ask.done.done()
        ]

    # ---- asking ----

    async def submit(
        self, task: str, how: Mapping[str, Any], items: Sequence[tuple[str, Sequence[str]]]
    ) -> list[PendingItem]:
        """Accept items, all or none; RequestRefused where more would wait than may, now (429) or ever (413).

        Args:
            task: `score`, `rank` or `measure`.
            items: JSON of each, with its transcripts' ids.
        """
        settings, loop = json.dumps(how, sort_keys=True), asyncio.get_running_loop()
        if len(items) > self.most_waiting:
            why = f"{len(items)} items at once, and at most {self.most_waiting} may wait: send fewer"
            raise RequestRefused(why, status=413)
        if self.load.waiting + len(items) > self.most_waiting:
            why = f"{self.load.waiting} of at most {self.most_waiting} items wait: ask again later, or for fewer"
            raise RequestRefused(why, status=429)
        asks = [PendingItem(task, settings, item, frozenset(ids), loop.create_future()) for item, ids in items]
        for ask in asks:
            ask.done.add_done_callback(_looked_at)
        async with self._changed:
            self._requests[next(self._numbers)] = deque(asks)
            self._count(waiting=len(asks))
            self._changed.notify_all()
            self._hand_ahead()
        return asks

    async def cancel(self, asks: Sequence[PendingItem]) -> None:
        """Drop items for which nobody waits any more; workers finish theirs."""
        gone = {ask for ask in asks if not ask.done.done()}
        if not gone:
            return
        async with self._changed:
            for number, waiting in list(self._requests.items()):
                remaining = deque(ask for ask in waiting if ask not in gone)
                self._count(waiting=len(remaining) - len(waiting))
                if remaining:
                    self._requests[number] = remaining
                else:
                    del self._requests[number]
            for ask in gone:
                ask.done.cancel()
            self._changed.notify_all()

    def _count(self, *, waiting: int = 0, judging: int = 0, ready: int = 0) -> None:
        self.load.waiting += waiting
        self.load.judging += judging
        self.load.ready += ready

    # ---- workers ----

    async def _work(self, process: WorkerProcess | None) -> None:
        """Run a worker, started again whenever it ends."""
        wait = FIRST_RETRY_S
        while not self._closing:
            if process is None:
                try:
                    process = await self._launch()
                except Exception as error:  # noqa: BLE001 - whatever it is: without workers nobody would be answered
                    log.error("a worker did not start, and is tried again in %.1f s: %s", wait, error)
                    self.metrics.unstarted()
                    if not self.load.ready:
                        self.load.failing = str(error)
                        if wait >= LAST_RETRY_S:
                            await self._give_up(f"no worker starts: {error}")
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LAST_RETRY_S)
                    continue
            wait, self.load.failing = FIRST_RETRY_S, None
            self._count(ready=1)
            try:
                await self._jobs_of(process)
            except Exception as error:  # noqa: BLE001 - likewise
                log.warning("a worker ended (%s): its items are judged again", error or "without a word")
                self.metrics.restarted()
            finally:
                self._count(ready=-1)
                await self._end(process)
                process = None

    async def _give_up(self, why: str) -> None:
        """Fail all items, those at workers too."""
        for ask in self._awaited():
            ask.done.set_exception(RequestRefused(why, status=500))
        async with self._changed:
            for ask in [ask for waiting in self._requests.values() for ask in waiting]:
                if not ask.done.done():
                    ask.done.set_exception(RequestRefused(why, status=500))
            self._requests.clear()
            self._count(waiting=-self.load.waiting)
            self._changed.notify_all()

    async def _launch(self) -> WorkerProcess:
        """Start a process and load the judge; RRMError where that fails or it is another judge now."""
        process = await WorkerProcess.started(self.command)
        self._processes.add(process)
        try:
            about = await process.load(self.options)
            if self.about is not None and about != self.about:
                raise RRMError(f"{_other(about, self.about)}: start the server again for it")
        except BaseException:
            await self._end(process)
            raise
        self.about = about
        return process

    async def _end(self, process: WorkerProcess) -> None:
        await process.end()
        self._processes.discard(process)

    async def _jobs_of(self, process: WorkerProcess) -> None:
        """Hand a process batches until it or the pool ends."""
        jobs = self._held[process] = OrderedDict()
        try:
            while jobs or await self._next(process, jobs):
                message = await self._soon(process.read_line())
                number = message["job"]
                left = jobs[number]
                if "error" in message:
                    del jobs[number]
                    self._count(judging=-len(left))
                    self._failed(left, message)
                elif "end" in message:
                    if left:
                        raise EOFError("it left items out")
                    del jobs[number]
                else:
                    ask = left.pop(message["at"])
                    self._count(judging=-1)
                    if not ask.done.done():
                        ask.done.set_result(message["row"])
                self._hand_ahead()
                if "error" in message or not self._awaited():
                    await self._wake()  # a worker that is free, or whoever waits for all to be answered
        except BaseException as error:
            self._died(jobs, hung=isinstance(error, TimeoutError))
            raise
        finally:  # without a pause since: what it had is always either a worker's or waiting
            del self._held[process]
            self._count(judging=-sum(map(len, jobs.values())))
            await self._wake()

    async def _soon(self, message: Awaitable[T]) -> T:
        """Await a message to or from a worker; TimeoutError after `job_s`."""
        try:
            return await asyncio.wait_for(message, self.job_s)
        except TimeoutError:
            raise TimeoutError(f"nothing was heard of it for {self.job_s:g} s") from None

    def _failed(self, left: Mapping[int, PendingItem], message: Mapping[str, Any]) -> None:
        """Retry or fail what a job that ended in an error left unanswered."""
        why, refused = message["error"], message["refused"]
        if not refused and not all(ask.alone for ask in left.values()):
            self._again(left.values())
            return
        for ask in left.values():
            if not ask.done.done():
                status = 500 if not refused else 503 if message.get("again") else 422
                ask.done.set_exception(RequestRefused(why, message.get("at"), status))

    def _died(self, jobs: Mapping[int, Mapping[int, PendingItem]], *, hung: bool) -> None:
        """Retry or fail a dead process's items; a batch handed over ahead had not begun."""
        first, *ahead = list(jobs.values()) or [{}]
        again = []
        for ask in first.values():
            ask.deaths += ask.alone
            if ask.alone and hung and not ask.done.done():  # a second wait as long would tell no more
                why = f"the judge's process said nothing for {self.job_s:g} s at this one"
                ask.done.set_exception(RequestRefused(why, status=500))
            elif ask.deaths >= TRIES and not ask.done.done():
                why = f"the judge's process ended {TRIES} times at this one"
                ask.done.set_exception(RequestRefused(why, status=500))
            else:
                again.append(ask)
        self._again([ask for left in ahead for ask in left.values()], alone=False)
        self._again(again)

    def _again(self, asks: Iterable[PendingItem], *, alone: bool = True) -> None:
        """Put items before all others in the queue; the caller wakes the workers."""
        for ask in asks:
            if not ask.done.done():
                ask.alone |= alone
                self._requests[next(self._numbers)] = deque([ask])
                self._requests.move_to_end(next(reversed(self._requests)), last=False)  # it has waited longest
                self._count(waiting=1)

    async def _next(self, process: WorkerProcess, jobs: OrderedDict[int, dict[int, PendingItem]]) -> bool:
        """Wait for items and hand them over; False: the pool is closed. EOFError: the process ended idle."""
        ended = asyncio.create_task(process.ended())
        ended.add_done_callback(lambda _: asyncio.ensure_future(self._wake()))
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._requests or self._closing or ended.done())
                if ended.done():
                    raise EOFError(f"exit code {ended.result()}")
                if not self._requests:
                    return False
                self._hand(process, jobs)
        finally:
            ended.cancel()
        await self._soon(process.drained())
        return True

    def _hand_ahead(self) -> None:
        """Hand the only worker a full second batch; of several workers another may be free first."""
        for process, jobs in self._held.items():
            if self.workers == 1 and len(jobs) == 1 and self.load.waiting >= self.batch:
                self._hand(process, jobs)

    def _hand(self, process: WorkerProcess, jobs: OrderedDict[int, dict[int, PendingItem]]) -> None:
        """Hand a batch to a process, which may still have one."""
        batch = self._draw()
        self._count(waiting=-len(batch), judging=len(batch))
        self.metrics.batch(len(batch))
        number = next(self._jobs)
        jobs[number] = dict(enumerate(batch))
        job = {"job": number, "what": batch[0].what, "how": json.loads(batch[0].how)}
        items = ",".join(ask.item for ask in batch)
        process.write(f'{json.dumps(job)[:-1]}, "items": [{items}]}}')

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _draw(self) -> list[PendingItem]:
        """Take items of the oldest one's task and settings, one of each request in turn."""
        first = next(iter(self._requests.values()))[0]
        batch: list[PendingItem] = []
        ids: set[str] = set()
        served: dict[int, None] = {}
        while len(batch) < self.batch:
            before = len(batch)
            for number, waiting in list(self._requests.items()):
                ask = waiting[0]
                fits = (ask.what, ask.how) == (first.what, first.how) and not ask.ids & ids
                if len(batch) >= self.batch or not fits or (batch and (ask.alone or batch[0].alone)):
                    continue
                batch.append(waiting.popleft())
                ids |= ask.ids
                served[number] = None
                if not waiting:
                    del self._requests[number]
            if len(batch) == before:
                break
        for number in served:  # who was served goes behind the others
            if number in self._requests:
                self._requests.move_to_end(number)
        return batch


def _looked_at(done: asyncio.Future[Any]) -> None:
    """Retrieve an error for which nobody waits, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()


def _other(loaded: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    new, old = ({**about, **about.get("describe", {})} for about in (loaded, own))
    names = sorted(name for name in {*new, *old} - {"describe"} if new.get(name) != old.get(name))
    first = names[0] if names else "describe"
    return f"the judge that is there now is another one ({first} {new.get(first)}, and was {old.get(first)})"
