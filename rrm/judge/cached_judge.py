"""One judge for many callers: whoever asks while it judges waits, and is judged in the next batch with all who wait.

Frameworks ask for one transcript at a time, from threads or coroutines; a judge is fast in batches and used by one thread at once.
"""

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
    """What is needed of a judge; every `AgentRRM` is one."""

    @property
    def judge(self) -> Callable[..., list[Feedback]]:
        """`judge(trajectories, *, mode, samples, seed)`: one Feedback a trajectory, in order."""
        ...


_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
"""One a judge, however many ask it: an engine in this process is no two threads' at once."""


def lock_of(judge: BatchJudge) -> threading.Lock:
    """Held by whoever asks this judge."""
    return _LOCKS.setdefault(judge, threading.Lock())


class JudgeQueue:
    """A judge, how it is asked, and the queue before it. It can be pickled where its judge can: the queue stays behind.

    Args:
        judge: in this process or over a server.
        mode: what it gives; `rrm.data.feedback.Mode`.
        samples: replies whose scores are averaged.
        seed: of sampled replies.
    """

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
        """One Feedback a trajectory, in order, judged in the caller's thread. Of those that are alike one is judged."""
        keys = [self._key(t) for t in trajectories]
        said: dict[tuple[str, str, str], Feedback] = {}
        with self._lock:
            for batch in _of_unlike_names(dict(zip(keys, trajectories, strict=True))):
                rows = self.judge.judge(list(batch.values()), mode=self.mode, samples=self.samples, seed=self.seed)
                said |= zip(batch, rows, strict=True)
        return [said[key] for key in keys]

    def submit(self, trajectory: Trajectory) -> Future[Feedback]:
        """Its judgement, once it is made; it has the judge's exception where judging it raised one."""
        future: Future[Feedback] = Future()
        self._waiting.put((trajectory, future))
        self._thread.submit(self._drain)
        return future

    async def ask_async(self, trajectories: Sequence[Trajectory]) -> list[Feedback]:
        """`ask`, in a thread of its own: other coroutines go on, and those that ask meanwhile share a batch."""
        return list(await asyncio.gather(*(asyncio.wrap_future(self.submit(t)) for t in trajectories)))

    def _key(self, trajectory: Trajectory) -> tuple[str, str, str]:
        """What makes two transcripts alike: the name, what every judge reads and, where this one's criteria allow it, the reference."""
        criteria = getattr(self.judge, "criteria", None)
        seen = trajectory.meta.get("reference") if criteria is not None and criteria.see_reference else None
        return trajectory.id, trajectory.digest, repr(seen)

    def _drain(self) -> None:
        """Judge all that wait."""
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
        """Judge these together; where that raises, each alone, so that whoever brought the cause is the only one who hears of it."""
        try:
            said = self.ask([trajectory for trajectory, _ in batch])
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
            for (_, future), feedback in zip(batch, said, strict=True):
                future.set_result(feedback)


K = TypeVar("K", bound=tuple[str, ...])


def _of_unlike_names(rows: dict[K, Trajectory]) -> list[dict[K, Trajectory]]:
    """Batches in which no two transcripts have one name: judges tell rows apart by it."""
    batches: list[dict[K, Trajectory]] = []
    met: Counter[str] = Counter()
    for key, trajectory in rows.items():
        if met[trajectory.id] == len(batches):
            batches.append({})
        batches[met[trajectory.id]][key] = trajectory
        met[trajectory.id] += 1
    return batches


def by_content(trajectory: Trajectory) -> Trajectory:
    """The transcript, named by what a judge reads of it: replies are sampled by a transcript's name, and what a framework asks
    twice then has one answer."""
    return trajectory.model_copy(update={"id": trajectory.digest})


def first_finding(feedback: Feedback) -> str | None:
    """One line of what the judge found: the first step that it calls bad, else the first that it calls good; None: of none."""
    found = sorted(clear(feedback.findings), key=lambda f: (f.verdict != "bad", f.step))
    return format_findings(found[:1]) or None


def said_of(feedback: Feedback) -> dict[str, Any]:
    """What a framework's logs show of a judgement: score (nan where there is none: still a number's type), whether it failed, status,
    first finding, and why there is no score."""
    return {
        "score": math.nan if feedback.score is None else feedback.score,
        "failed": feedback.score is None,
        "status": feedback.status,
        "finding": first_finding(feedback),
        "reason": feedback.reason,
    }
