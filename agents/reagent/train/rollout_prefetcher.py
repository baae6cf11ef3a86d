"""Play the next update's episodes while the present one is learned (`rollout.max_lag=1`).

    ahead.start(n + 1, play_round)      # on the weights after n updates; returns at once
    learn(round n)                      # those after n + 1 updates come to be
    ahead.take(n + 1)                   # waits for what is still at play

Episodes are one update old (`staleness`), which truncated importance weights correct for (`loss.importance_cap`; Espeholt et
al., 1802.01561). Nothing is started before an evaluation or a checkpoint, so that a resumed run repeats; a run that was
interrupted elsewhere plays its cancelled round anew.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from reagent.feedback.base import Round

logger = logging.getLogger(__name__)
DROP_S = 30.0
"""Seconds that a cancelled round may take to notice."""


class RoundCancelled(Exception): ...


class RolloutPrefetcher:
    """Plays at most one round at a time, in a daemon thread."""

    def __init__(self) -> None:
        self._update = -1
        self._future: Future[tuple[Round, float]] | None = None
        self._wanted = threading.Event()

    @property
    def busy(self) -> bool:
        return self._future is not None

    def start(self, update: int, play: Callable[[Callable[[], None]], tuple[Round, float]]) -> None:
        """Begin an update's round. Raises ValueError: another one has not been taken.

        `play` returns the round and its seconds; it calls its argument between episodes, which raises `RoundCancelled`."""
        if self._future is not None:
            raise ValueError(f"the round of update {self._update} has not been taken")
        future: Future[tuple[Round, float]] = Future()
        active = self._wanted = threading.Event()
        active.set()

        def check() -> None:
            if not active.is_set():
                raise RoundCancelled

        def work() -> None:
            try:
                future.set_result(play(check))
            except BaseException as error:  # noqa: BLE001 - it is raised where the round is taken
                future.set_exception(error)

        self._update, self._future = update, future
        threading.Thread(target=work, daemon=True, name=f"round {update}").start()

    def take(self, update: int) -> tuple[Round, float, float] | None:
        """(round, seconds at play, seconds waited) of an update, None if not started; raises what play raised.

        Raises ValueError: the round at play is another update's."""
        if self._future is None:
            return None
        if update != self._update:
            raise ValueError(f"the round at play is of update {self._update}, not {update}")
        begun = time.perf_counter()
        try:
            round_, seconds = self._future.result()
        finally:
            if self._future.done():
                self._future = None
        return round_, seconds, time.perf_counter() - begun

    def drop(self) -> None:
        """Cancel the round at play, and wait until it has noticed."""
        future, self._future = self._future, None
        if future is None:
            return
        self._wanted.clear()
        if wait([future], DROP_S).not_done:
            logger.warning("the episodes of update %d are still at play, and not waited for", self._update)
            return
        problem = future.exception()
        if problem is not None and not isinstance(problem, RoundCancelled):
            logger.warning("the episodes of update %d, given up: %s", self._update, problem)
