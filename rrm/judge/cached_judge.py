"""Batch the requests of many callers to one judge: those that wait are judged together next."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from rrm.data.feedback import Feedback, Mode, clear, format_findings
from rrm.data.trajectory import Trajectory


class BatchJudge(Protocol):
    @property
    def judge(self) -> Callable[..., list[Feedback]]:
        """`judge(trajectories, *, mode, samples, seed)` returns one Feedback per trajectory, in order."""
        ...


# one per judge, as a local engine serves one thread at a time
_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()


def lock_of(judge: BatchJudge) -> threading.Lock:
    return _LOCKS.setdefault(judge, threading.Lock())


class JudgeQueue:
    """A judge, its arguments and the queue before it; pickled without the queue."""

    def __init__(self, judge: BatchJudge, *, mode: Mode = "score", samples: int = 1, seed: int = 0) -> None:
        self.judge, self.mode, self.samples, self.seed = judge, mode, samples, seed
        self._lock = lock_of(judge)
        self._waiting: SimpleQueue[tuple[Trajectory, Future[Feedback]]] = SimpleQueue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge")

    def __getstate__(self) -> dict[str, Any]:
        return {"judge": self.judge, "mode": self.mode, "samples": self.samples, "seed": self.seed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    def ask(self, trajectories: Sequence[Trajectory]) -> list[Feedback]:
        """Judge in the caller's thread, in order; equal trajectories are judged once."""
        keys = [self._key(t) for t in trajectories]
        by_key: dict[tuple[str, str, str], Feedback] = {}
        with self._lock:
            for batch in _of_unlike_names(dict(zip(keys, trajectories, strict=True))):
                rows = self.judge.judge(list(batch.values()), mode=self.mode, samples=self.samples, seed=self.seed)
                by_key |= zip(batch, rows, strict=True)
        return [by_key[key] for key in keys]

    def submit(self, trajectory: Trajectory) -> Future[Feedback]:
        future: Future[Feedback] = Future()
        self._waiting.put((trajectory, future))
        self._thread.submit(self._drain)
        return future

    async def ask_async(self, trajectories: Sequence[Trajectory]) -> list[Feedback]:
        """`ask` in another thread; requests of concurrent coroutines share a batch."""
        return list(await asyncio.gather(*(asyncio.wrap_future(self.submit(t)) for t in trajectories)))

    def _key(self, trajectory: Trajectory) -> tuple[str, str, str]:
        # equal keys have one judgement
        criteria = getattr(self.judge, "criteria", None)
        reference = trajectory.meta.get("reference") if criteria is not None and criteria.see_reference else None
        return trajectory.id, trajectory.digest, repr(reference)

    def _drain(self) -> None:
        batch: list[tuple[Trajectory, Future[Feedback]]] = []
        try:
            while True:
                batch.append(self._waiting.get_nowait())
        except Empty:
            pass
        batch = [pair for pair in batch if pair[1].set_running_or_notify_cancel()]
        if batch:
            self._answer(batch)

    def _answer(self, batch: list[tuple[Trajectory, Future[Feedback]]]) -> None:
        """Judge a batch; on an exception judge each alone, so that only its cause gets it."""
        try:
            judged = self.ask([trajectory for trajectory, _ in batch])
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                for pair in batch:
                    self._answer([pair])
        except BaseException as error:  # noqa: BLE001 - the process ends, and nobody may wait for ever
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), feedback in zip(batch, judged, strict=True):
                future.set_result(feedback)


K = TypeVar("K", bound=tuple[str, ...])


def _of_unlike_names(rows: dict[K, Trajectory]) -> list[dict[K, Trajectory]]:
    # judges tell rows apart by id
    batches: list[dict[K, Trajectory]] = []
    met: Counter[str] = Counter()
    for key, trajectory in rows.items():
        if met[trajectory.id] == len(batches):
            batches.append({})
        batches[met[trajectory.id]][key] = trajectory
        met[trajectory.id] += 1
    return batches


def by_content(trajectory: Trajectory) -> Trajectory:
    """Return the transcript named by its digest, so equal ones get equally seeded replies."""
    return trajectory.model_copy(update={"id": trajectory.digest})


def first_finding(feedback: Feedback) -> str | None:
    """Return the first bad finding, else the first good one, as one line."""
    findings = sorted(clear(feedback.findings), key=lambda f: (f.verdict != "bad", f.step))
    return format_findings(findings[:1]) or None


def log_fields(feedback: Feedback) -> dict[str, Any]:
    """Return log fields of a judgement: score (nan if none), failed, status, first finding, reason."""
    return {
        "score": math.nan if feedback.score is None else feedback.score,
        "failed": feedback.score is None,
        "status": feedback.status,
        "finding": first_finding(feedback),
        "reason": feedback.reason,
    }
