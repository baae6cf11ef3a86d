"""Sessions: a batch that rows join and leave while it runs, over any `TokenEngine`.

An engine that can decode continuously says so by a method `session(params)` (see `HFEngine.session`). Any other is asked
batch by batch: what was submitted since the last step runs together, and nothing overlaps with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol, runtime_checkable

from rrm.engines.base import Completion, SamplingParams, Session, TokenEngine


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
        found = self.engine.generate([ids for _, ids, _ in now], replace(self.params, max_new_tokens=limit), keys)
        return list(zip(keys, found, strict=True))


def open_session(engine: TokenEngine, params: SamplingParams) -> AbstractContextManager[Session]:
    """The engine's own session, or one over its `generate`."""
    if isinstance(engine, ContinuousEngine):
        return engine.session(params)
    return nullcontext(BatchSession(engine, params))
