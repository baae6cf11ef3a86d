"""What was asked and is not answered yet, and the workers that answer it.

Items wait by request. A worker that is free takes a batch: items of equal settings and different ids, one of each request in turn, so that a
request of thousands does not keep one of a few waiting. Nothing waits for a batch to fill; where a whole one waits for the only worker, it is
handed over ahead, and the worker finds it there as it ends its batch. Batches change no score: a transcript's seed is that of its id.

A worker that dies gives back what it had not answered. Each such item is tried again by itself, so that one which ends the process
again takes no other with it; then its row is a `judge_error`, as is that of an item which raises what no judge should. A worker of which nothing
is heard for `job_s` while it has items is ended, and counts as one that died. A worker that cannot be started, or that loads another judge than
the one the server began with, is tried again for as long as the server lives.
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
TRIES = 2
"""Deaths of a worker at an item by itself, after which it is given up."""
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 30.0
"""Between starts of a worker that does not start; doubled from one to the next."""
JOB_S = 1800.0
"""Between two rows of a worker that has items: longer is a worker that hangs."""
T = TypeVar("T")


class Full(RRMError):
    """More would wait than may."""


class TooMany(RRMError):
    """More at once than ever may wait."""


class JudgeRefused(RRMError):
    """The judge cannot be asked for this; the message says why.

    Args:
        at: the field of the request that asks for it, where that is known.
        again: it can be asked later: the money for its server is spent.
    """

    def __init__(self, message: str, at: str | None = None, *, again: bool = False) -> None:
        super().__init__(message)
        self.at, self.again = at, again


class ItemFailed(RRMError):
    """An item that no worker could judge; the message says why."""


@dataclass(eq=False)
class PendingItem:
    """One item, and who waits for its row."""

    what: str
    how: str
    """JSON of the settings: items of one batch have equal ones."""
    item: str
    """JSON, made before: an item may be large."""
    ids: frozenset[str]
    done: asyncio.Future[dict[str, Any]]
    alone: bool = False
    """It was in a batch that failed."""
    deaths: int = 0


class WorkerPool:
    """Workers over one queue.

    Args:
        options: `JudgeOptions` by name, of the judge that each worker loads.
        workers: processes.
        batch: items that a worker is given at once.
        most_waiting: items that may wait.
        job_s: seconds between two rows, after which a worker is taken for one that hangs.
        command: what is run as a worker.
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
        self._held: dict[WorkerProcess, OrderedDict[int, dict[int, PendingItem]]] = {}
        """Worker → number of each job that it has → what it has not answered of it."""
        self._closing = False

    # ---- life ----

    async def start(self) -> dict[str, Any]:
        """Start the workers; returns what the judge is (`rrm.serve.schemas.About`) once the first is ready.

        Raises:
            RRMError: the judge cannot be loaded.
        """
        first = await self._launch()  # its error is the user's, before anything is served
        assert self.about is not None
        self._tasks = [asyncio.create_task(self._work(first if n == 0 else None)) for n in range(self.workers)]
        return self.about

    async def close(self) -> None:
        """Answer what somebody waits for, as far as `job_s` allows, then end the workers."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_answered(), self.job_s)
        await self._give_up("the server was stopped")
        await self.kill()

    async def kill(self) -> None:
        """End the workers, whatever they do."""
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
        """What workers have, and somebody waits for."""
        return [
            ask
            for held in self._held.values()
            for left in held.values()
            for ask in left.values()
            if not ask.done.done()
        ]

    # ---- asking ----

    async def submit(
        self, what: str, how: Mapping[str, Any], items: Sequence[tuple[str, Sequence[str]]]
    ) -> list[PendingItem]:
        """Accept items, all or none.

        Args:
            what: `score`, `rank` or `measure`.
            items: JSON, each with the ids of its transcripts.

        Raises:
            Full: too many wait already.
            TooMany: they are more than may wait.
        """
        said, loop = json.dumps(how, sort_keys=True), asyncio.get_running_loop()
        if len(items) > self.most_waiting:
            raise TooMany(f"{len(items)} items at once, and at most {self.most_waiting} may wait: send fewer")
        if self.load.waiting + len(items) > self.most_waiting:
            raise Full(f"{self.load.waiting} of at most {self.most_waiting} items wait: ask again later, or for fewer")
        asks = [PendingItem(what, said, item, frozenset(ids), loop.create_future()) for item, ids in items]
        for ask in asks:
            ask.done.add_done_callback(_looked_at)
        async with self._changed:
            self._requests[next(self._numbers)] = deque(asks)
            self._count(waiting=len(asks))
            self._changed.notify_all()
            self._hand_ahead()
        return asks

    async def cancel(self, asks: Sequence[PendingItem]) -> None:
        """Take back items for which nobody waits any more; what is being judged is judged."""
        gone = {ask for ask in asks if not ask.done.done()}
        if not gone:
            return
        async with self._changed:
            for number, waiting in list(self._requests.items()):
                kept = deque(ask for ask in waiting if ask not in gone)
                self._count(waiting=len(kept) - len(waiting))
                if kept:
                    self._requests[number] = kept
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
        """One worker's life: started again whenever it ends."""
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
        """All that waits, and what workers have."""
        for ask in self._awaited():
            ask.done.set_exception(ItemFailed(why))
        async with self._changed:
            for ask in [ask for waiting in self._requests.values() for ask in waiting]:
                if not ask.done.done():
                    ask.done.set_exception(ItemFailed(why))
            self._requests.clear()
            self._count(waiting=-self.load.waiting)
            self._changed.notify_all()

    async def _launch(self) -> WorkerProcess:
        """A process with the judge loaded.

        Raises:
            RRMError: it cannot be, or it is another judge than at first.
        """
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
        """Hand a process batches until it ends or the pool does."""
        held = self._held[process] = OrderedDict()
        try:
            while held or await self._next(process, held):
                said = await self._soon(process.read_line())
                number = said["job"]
                left = held[number]
                if "error" in said:
                    del held[number]
                    self._count(judging=-len(left))
                    self._failed(left, said)
                elif "end" in said:
                    if left:
                        raise EOFError("it left items out")
                    del held[number]
                else:
                    ask = left.pop(said["at"])
                    self._count(judging=-1)
                    if not ask.done.done():
                        ask.done.set_result(said["row"])
                self._hand_ahead()
                if "error" in said or not self._awaited():
                    await self._wake()  # a worker that is free, or whoever waits for all to be answered
        except BaseException as error:
            self._died(held, hung=isinstance(error, TimeoutError))
            raise
        finally:  # without a pause since: what it had is always either a worker's or waiting
            del self._held[process]
            self._count(judging=-sum(map(len, held.values())))
            await self._wake()

    async def _soon(self, said: Awaitable[T]) -> T:
        """What is said to a worker, or heard of it.

        Raises:
            TimeoutError: it hangs.
        """
        try:
            return await asyncio.wait_for(said, self.job_s)
        except TimeoutError:
            raise TimeoutError(f"nothing was heard of it for {self.job_s:g} s") from None

    def _failed(self, left: Mapping[int, PendingItem], said: Mapping[str, Any]) -> None:
        """What a job that ended in an error did not answer."""
        why, refused = said["error"], said["refused"]
        if not refused and not all(ask.alone for ask in left.values()):
            self._again(left.values())
            return
        for ask in left.values():
            if not ask.done.done():
                ask.done.set_exception(
                    JudgeRefused(why, said.get("at"), again=said.get("again", False)) if refused else ItemFailed(why)
                )

    def _died(self, held: Mapping[int, Mapping[int, PendingItem]], *, hung: bool) -> None:
        """What a process that ended did not answer: of its first batch each is suspected, the one handed over ahead it had not begun."""
        first, *ahead = list(held.values()) or [{}]
        again = []
        for ask in first.values():
            ask.deaths += ask.alone
            if ask.alone and hung and not ask.done.done():  # a second wait as long would tell no more
                ask.done.set_exception(ItemFailed(f"the judge's process said nothing for {self.job_s:g} s at this one"))
            elif ask.deaths >= TRIES and not ask.done.done():
                ask.done.set_exception(ItemFailed(f"the judge's process ended {TRIES} times at this one"))
            else:
                again.append(ask)
        self._again([ask for left in ahead for ask in left.values()], alone=False)
        self._again(again)

    def _again(self, asks: Iterable[PendingItem], *, alone: bool = True) -> None:
        """Let them wait again, before all others; who is to know of it is woken by the caller."""
        for ask in asks:
            if not ask.done.done():
                ask.alone |= alone
                self._requests[next(self._numbers)] = deque([ask])
                self._requests.move_to_end(next(reversed(self._requests)), last=False)  # it has waited longest
                self._count(waiting=1)

    async def _next(self, process: WorkerProcess, held: OrderedDict[int, dict[int, PendingItem]]) -> bool:
        """Wait for what may be asked, and hand it over; False once the pool is closed.

        Raises:
            EOFError: the process ended while it had nothing to do.
        """
        ended = asyncio.create_task(process.ended())
        ended.add_done_callback(lambda _: asyncio.ensure_future(self._wake()))
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._requests or self._closing or ended.done())
                if ended.done():
                    raise EOFError(f"exit code {ended.result()}")
                if not self._requests:
                    return False
                self._hand(process, held)
        finally:
            ended.cancel()
        await self._soon(process.drained())
        return True

    def _hand_ahead(self) -> None:
        """Where a whole batch waits for the only worker, a second one to it: waiting would make that no larger. Of several workers another may be
        free before the one that has it."""
        for process, held in self._held.items():
            if self.workers == 1 and len(held) == 1 and self.load.waiting >= self.batch:
                self._hand(process, held)

    def _hand(self, process: WorkerProcess, held: OrderedDict[int, dict[int, PendingItem]]) -> None:
        """A batch of what waits, to a process that may still have one: it then finds the next as it ends the first."""
        batch = self._draw()
        self._count(waiting=-len(batch), judging=len(batch))
        self.metrics.batch(len(batch))
        number = next(self._jobs)
        held[number] = dict(enumerate(batch))
        job = {"job": number, "what": batch[0].what, "how": json.loads(batch[0].how)}
        items = ",".join(ask.item for ask in batch)
        process.write(f'{json.dumps(job)[:-1]}, "items": [{items}]}}')

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _draw(self) -> list[PendingItem]:
        """Items of the oldest one's kind, one of each request in turn."""
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
    """An error for which nobody waits any more is no news."""
    if not done.cancelled():
        done.exception()


def _other(said: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """How two judges differ."""
    one, two = ({**about, **about.get("describe", {})} for about in (said, own))
    names = sorted(name for name in {*one, *two} - {"describe"} if one.get(name) != two.get(name))
    first = names[0] if names else "describe"
    return f"the judge that is there now is another one ({first} {one.get(first)}, and was {two.get(first)})"
