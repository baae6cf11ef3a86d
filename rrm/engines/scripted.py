"""`scripted`: engines that answer from a list (in order), a dict (by key) or a callable, for tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from rrm.engines.base import Completion, Reply, SamplingParams, Span, check_choices
from rrm.errors import EngineError

A = TypeVar("A")
TokenAnswer = Completion | Sequence[int]
ChatAnswer = Reply | str | Exception


def _listed(script: Sequence[A] | Mapping[str, A], key: str, calls: int) -> A:
    """Answer to call number `calls` (from 0) under `key`; EngineError where there is none."""
    if isinstance(script, Mapping):
        if key not in script:
            raise EngineError(f"the script has no answer for key {key!r}; it knows {sorted(script)[:8]}")
        return script[key]
    if calls >= len(script):
        raise EngineError(f"the script has {len(script)} answers and was asked for one more (key {key!r})")
    return script[calls]


class ScriptedEngine:
    """A TokenEngine that returns scripted ids.

    Args:
        script: per row, ids or a `Completion`; a callable gets (row, params, key).
        logprob: log-probability of `row[t]` given `row[:t]`, as `f(row, t)`; default −1.
    """

    def __init__(
        self,
        script: Sequence[TokenAnswer]
        | Mapping[str, TokenAnswer]
        | Callable[[list[int], SamplingParams, str], TokenAnswer],
        logprob: Callable[[list[int], int], float] | None = None,
        eos_token_id: int = 0,
        eos_ids: Collection[int] | None = None,
    ) -> None:
        self.eos_ids = frozenset(eos_ids or ()) | {eos_token_id}
        self.script, self.logprob, self.eos_token_id = script, logprob or (lambda row, t: -1.0), eos_token_id
        self.calls: list[tuple[list[int], SamplingParams, str]] = []  # every row asked for: (ids, params, key)
        self.released: list[str] = []

    def generate(
        self, rows: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[str] | None = None
    ) -> list[Completion]:
        return [self._answer(list(row), params, keys[i] if keys else "") for i, row in enumerate(rows)]

    def _answer(self, row: list[int], params: SamplingParams, key: str) -> Completion:
        calls = len(self.calls)
        self.calls.append((row, params, key))
        answer = self.script(row, params, key) if callable(self.script) else _listed(self.script, key, calls)
        if isinstance(answer, Completion):
            return answer
        ids = list(answer)[: params.max_new_tokens]
        full_row = row + ids
        logprobs = [self.logprob(full_row, t) for t in range(len(row), len(full_row))]
        return Completion(ids, logprobs, "eos" if ids and ids[-1] in self.eos_ids else "length")

    def logprobs(self, rows: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[list[float]]:
        return [
            [self.logprob(list(row), t) for t in range(span.start, span.stop)]
            for row, span in zip(rows, spans, strict=True)
        ]

    def continuation_logprobs(
        self, rows: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], keys: Sequence[str] | None = None
    ) -> list[list[float]]:
        return [
            [
                sum(self.logprob([*row, *more], t) for t in range(len(row), len(row) + len(more)))
                for more in continuations
            ]
            for row in rows
        ]

    def choice_logprobs(
        self,
        rows: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        choices: Sequence[int],
        keys: Sequence[str] | None = None,
    ) -> list[list[list[float]]]:
        check_choices(rows, positions, choices)
        results: list[list[list[float]]] = []
        for row, row_positions in zip(rows, positions, strict=True):
            results.append([self._choose([*row[: position + 1]], choices) for position in row_positions])
        return results

    def _choose(self, before: list[int], choices: Sequence[int]) -> list[float]:
        values = [self.logprob([*before, choice], len(before)) for choice in choices]
        top = max(values)
        total = top + math.log(sum(math.exp(value - top) for value in values))
        return [value - total for value in values]

    def release(self, keys: Sequence[str]) -> None:
        self.released.extend(keys)


class ScriptedChatEngine:
    """Return scripted replies: texts, `Reply` or exceptions; a callable gets (messages, params, key)."""

    asks_again = False  # an unreadable reply is not asked for once more

    def __init__(
        self,
        script: Sequence[ChatAnswer]
        | Mapping[str, ChatAnswer]
        | Callable[[list[dict[str, str]], SamplingParams, str], ChatAnswer],
    ) -> None:
        self.script = script
        # every request: (messages, params, key)
        self.calls: list[tuple[list[dict[str, str]], SamplingParams, str]] = []

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        calls = len(self.calls)
        self.calls.append((messages, params, key))
        answer = self.script(messages, params, key) if callable(self.script) else _listed(self.script, key, calls)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(text=answer, stop_reason="eos")
