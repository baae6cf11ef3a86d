"""One update ahead (`rollout.max_lag=1`): the next update's episodes are played while the present one is learned.

    ahead.start(n + 1, play_round)      # on the weights after n updates; returns at once
    learn(round n)                      # those after n + 1 updates come to be
    ahead.take(n + 1)                   # waits for what is still at play

So episodes are one update old when they are learned from (`staleness`), which truncated importance weights correct for
(`loss.importance_cap`; Espeholt et al., 1802.01561, have the idea for actors that lag). Where the weights must be those of
now (an evaluation, a checkpoint that is due), nothing is started: whoever runs the updates says so. A run that goes on from such
a checkpoint makes the updates of one that was never stopped. One that a guard, a signal or an error ended may have a round at
play, which is given up and in no checkpoint: it is played anew on the weights of then, so the updates from there on are others.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait

from reagent.feedback.base import Round

logger = logging.getLogger(__name__)
DROP_S = 30.0
"""How long a round that is given up may take to notice."""


class RoundCancelled(Exception):
    """A round that is not wanted any more."""


class RolloutPrefetcher:
    """At most one round at play in a thread of its own, a daemon: one that hangs does not keep the process."""

    def __init__(self) -> None:
        self._update = -1
        self._future: Future[tuple[Round, float]] | None = None
        self._wanted = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether a round was started that nobody has taken."""
        return self._future is not None

    def start(self, update: int, play: Callable[[Callable[[], None]], tuple[Round, float]]) -> None:
        """Begin an update's round. Raises ValueError: another one has not been taken. `play`: plays it, and says how many seconds that
        took; it calls what it is given between episodes, which raises `RoundCancelled` where the round is not wanted any more."""
        if self._future is not None:
            raise ValueError(f"the round of update {self._update} has not been taken")
        future: Future[tuple[Round, float]] = Future()
        wanted = self._wanted = threading.Event()
        wanted.set()

        def check() -> None:
            if not wanted.is_set():
                raise RoundCancelled

        def work() -> None:
            try:
                future.set_result(play(check))
            except BaseException as error:  # noqa: BLE001 - it is raised where the round is taken
                future.set_exception(error)

        self._update, self._future = update, future
        threading.Thread(target=work, daemon=True, name=f"round {update}").start()

    def take(self, update: int) -> tuple[Round, float, float] | None:
        """(round, seconds it was at play, seconds waited for it) of an update; None where it was not started. Raises ValueError: the one at
        play is another update's. And what playing it raised."""
        if self._future is None:
            return None
        if update != self._update:
            raise ValueError(f"the round at play is of update {self._update}, not {update}")
        begun = time.perf_counter()
        try:
            found, seconds = self._future.result()
        finally:
            if self._future.done():
                self._future = None
        return found, seconds, time.perf_counter() - begun

    def drop(self) -> None:
        """Give up what is at play, and wait until it has noticed."""
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
