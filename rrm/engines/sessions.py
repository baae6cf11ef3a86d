"""Sessions over any `TokenEngine`: continuous with its own `session(params)`, else batch by batch."""

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
    def session(self, params: SamplingParams) -> AbstractContextManager[Session]: ...


class BatchSession:
    """A session over `TokenEngine.generate`: a step runs all waiting rows of one token limit to the end."""

    def __init__(self, engine: TokenEngine, params: SamplingParams) -> None:
        self.engine, self.params = engine, params
        self._waiting: list[tuple[str, list[int], int]] = []

    @property
    def idle(self) -> bool:
        return not self._waiting

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        self._waiting.append((key, list(ids), max_new_tokens or self.params.max_new_tokens))

    def step(self) -> list[tuple[str, Completion]]:
        if not self._waiting:
            return []
        limit = self._waiting[0][2]
        now = [row for row in self._waiting if row[2] == limit]
        self._waiting = [row for row in self._waiting if row[2] != limit]
        keys = [key for key, _, _ in now]
        completions = self.engine.generate([ids for _, ids, _ in now], replace(self.params, max_new_tokens=limit), keys)
        return list(zip(keys, completions, strict=True))


def open_session(engine: TokenEngine, params: SamplingParams) -> AbstractContextManager[Session]:
    """Open the engine's own session, or one over its `generate`."""
    if isinstance(engine, ContinuousEngine):
        return engine.session(params)
    return nullcontext(BatchSession(engine, params))


POLL_S = 0.005  # longest wait of a session's step, after which the caller handles its tools' answers


class VLLMSession:
    """Rows running at the servers; `start` begins a request for (key, ids, most new tokens)."""

    def __init__(self, start: Callable[[str, Sequence[int], int], Future[Completion]], limit: int) -> None:
        self._start, self._limit = start, limit
        self._running: dict[str, Future[Completion]] = {}
        self._done: queue.SimpleQueue[tuple[str, Future[Completion]]] = queue.SimpleQueue()

    @property
    def idle(self) -> bool:
        return not self._running

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        """Send a row; EngineError for an empty one, or a key with another row running."""
        if not ids or key in self._running:
            raise EngineError(f"row {key!r}: " + ("it has no tokens" if not ids else "another turn of it is at work"))
        future = self._start(key, ids, self._limit if max_new_tokens is None else max_new_tokens)
        self._running[key] = future
        future.add_done_callback(lambda done: self._done.put((key, done)))

    def step(self) -> list[tuple[str, Completion]]:
        """Return the rows that finished, waiting `POLL_S` for one; EngineError where no server completed it."""
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
        """Cancel what still runs: servers stop where the connection ends."""
        for future in self._running.values():
            future.cancel()
        for future in self._running.values():
            try:
                future.exception(timeout=1.0)
            except (CancelledError, TimeoutError):
                continue
        self._running.clear()
