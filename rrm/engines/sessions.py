"""Sessions: a batch that rows join and leave while it runs, over any `TokenEngine`.

An engine that can decode continuously says so by a method `session(params)` (see `HFEngine.session`). Any other is asked
batch by batch: what was submitted since the last step runs together, and nothing overlaps with it.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol, runtime_checkable

from rrm.engines.base import Completion, SamplingParams, Session, TokenEngine
from rrm.errors import EngineError


@runtime_checkable
class ContinuousEngine(Protocol):
    """An engine with sessions of its own."""

    def session(self, params: SamplingParams) -> AbstractContextManager[Session]:
        """A running batch."""
        ...


class BatchSession:
    """A session over `TokenEngine.generate`: a step runs all that waits, up to one limit of new tokens, to its end."""

    def __init__(self, engine: TokenEngine, params: SamplingParams) -> None:
        self.engine, self.params = engine, params
        self._waiting: list[tuple[str, list[int], int]] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decode."""
        return not self._waiting

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        """Queue a row for the next step."""
        self._waiting.append((key, list(ids), max_new_tokens or self.params.max_new_tokens))

    def step(self) -> list[tuple[str, Completion]]:
        """Generate for every waiting row that has the first one's limit."""
        if not self._waiting:
            return []
        limit = self._waiting[0][2]
        now = [row for row in self._waiting if row[2] == limit]
        self._waiting = [row for row in self._waiting if row[2] != limit]
        keys = [key for key, _, _ in now]
        completions = self.engine.generate([ids for _, ids, _ in now], replace(self.params, max_new_tokens=limit), keys)
        return list(zip(keys, completions, strict=True))


def open_session(engine: TokenEngine, params: SamplingParams) -> AbstractContextManager[Session]:
    """The engine's own session, or one over its `generate`."""
    if isinstance(engine, ContinuousEngine):
        return engine.session(params)
    return nullcontext(BatchSession(engine, params))


POLL_S = 0.005  # longest wait of a session's step: what the caller's tools have answered by then is taken up


class VLLMSession:
    """Rows at work at the servers (`rrm.engines.base.Session`).

    Args:
        start: begins a request for (key, ids, most new tokens).
        limit: most new tokens of a row that does not say.
    """

    def __init__(self, start: Callable[[str, Sequence[int], int], Future[Completion]], limit: int) -> None:
        self._start, self._limit = start, limit
        self._running: dict[str, Future[Completion]] = {}
        self._done: queue.SimpleQueue[tuple[str, Future[Completion]]] = queue.SimpleQueue()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decode."""
        return not self._running

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        """Send a row, under a key that has no other row at work.

        Raises:
            EngineError: an empty row, or a key at work.
        """
        if not ids or key in self._running:
            raise EngineError(f"row {key!r}: " + ("it has no tokens" if not ids else "another turn of it is at work"))
        future = self._start(key, ids, self._limit if max_new_tokens is None else max_new_tokens)
        self._running[key] = future
        future.add_done_callback(lambda done: self._done.put((key, done)))

    def step(self) -> list[tuple[str, Completion]]:
        """The rows that finished; waits a little for one.

        Raises:
            EngineError: a row that no server completed.
        """
        finished: list[tuple[str, Completion]] = []
        while self._running:
            try:
                key, future = self._done.get_nowait() if finished else self._done.get(timeout=POLL_S)
            except queue.Empty:
                break
            del self._running[key]
            finished.append((key, future.result()))
        return finished

    def close(self) -> None:
        """Give up what still runs: the servers stop at once where the connection ends."""
        for future in self._running.values():
            future.cancel()
        for future in self._running.values():
            try:
                future.exception(timeout=1.0)
            except (CancelledError, TimeoutError):
                continue
        self._running.clear()
