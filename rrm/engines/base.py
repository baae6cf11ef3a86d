"""Contracts of engines: `TokenEngine` (tokens in, tokens out), `ChatEngine` (messages in, text out)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from rrm.data.usage import Usage
from rrm.engines.cost import WorkSize
from rrm.errors import EngineError

StopReason = Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class SamplingParams:
    """Sampling settings. Each row derives its seed from (`seed`, row key), so batches do not matter."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end a row once generated (kept in the output)."""
    timeout_s: float = 60.0
    """Seconds a request may take, in engines that call a server."""
    top_logprobs: int = 0
    """Alternatives a token to ask a server for."""
    json_schema: dict[str, Any] | None = field(default=None, hash=False)
    """Schema of a server's reply; a server that refuses one raises EngineError of kind `schema`."""


@dataclass(frozen=True)
class Completion:
    """A TokenEngine's sample for one row."""

    ids: list[int]
    logprobs: list[float]
    """log π(id | prefix) per sampled token under the sampling temperature, same length as `ids`."""
    stop_reason: StopReason
    version: int = 0
    """Version of the weights that sampled it, where an engine's weights change (`SyncedEngine.sync`)."""
    server: str = ""
    """Address that sampled it, without a password; "": this process."""


@dataclass(frozen=True)
class Span:
    """Positions [start, stop) of a row whose tokens' log-probabilities are wanted (start ≥ 1)."""

    start: int
    stop: int


@dataclass
class EngineCounters:
    """Counts of an in-process engine since it was made; subtract two readings to measure a call."""

    prefilled: int = 0  # tokens of prompts and observations, padding not counted
    decoded: int = 0  # sampled tokens that were run to get the next one
    prefill_forwards: int = 0
    decode_forwards: int = 0


class Session(Protocol):
    """A running batch: rows are submitted at any time, and finish at their own time."""

    @property
    def idle(self) -> bool: ...

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        """Queue a row under a key that has no other row at work; at most `max_new_tokens` of the session's."""
        ...

    def step(self) -> list[tuple[str, Completion]]:
        """Do some work; returns (key, completion) of the rows that finished."""
        ...


class TokenEngine(Protocol):
    """Token in, token out. Stateless, except that an engine may keep a row's KV cache under its key."""

    eos_token_id: int

    def generate(
        self, rows: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[str] | None = None
    ) -> list[Completion]: ...

    def logprobs(self, rows: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[list[float]]:
        """log p(row[t] | row[:t]) at temperature 1 for t in each row's span."""
        ...

    def continuation_logprobs(
        self, rows: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], keys: Sequence[str] | None = None
    ) -> list[list[float]]:
        """log p(continuation | row) at temperature 1, summed over its tokens: (rows, continuations)."""
        ...

    def choice_logprobs(
        self,
        rows: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        choices: Sequence[int],
        keys: Sequence[str] | None = None,
    ) -> list[list[list[float]]]:
        """log p(choice | row[:position + 1], one of the choices follows): (rows, positions, choices).

        At temperature 1. A row is kept under its key up to its last position, and reused before its first one.
        """
        ...

    def release(self, keys: Sequence[str]) -> None: ...


@runtime_checkable
class SyncedEngine(Protocol):
    """A TokenEngine beside the process that trains: it samples from the weights it was sent last."""

    @property
    def version(self) -> int: ...

    def sync(self, model: Any, version: int) -> None: ...

    def close(self) -> None:
        """Leave the server as it was found."""
        ...


def check_choices(rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], choices: Sequence[int]) -> None:
    """Raise EngineError unless positions lie in their rows and choices are ≥ 2 distinct token ids."""
    if len(positions) != len(rows):
        raise EngineError(f"{len(rows)} rows need as many lists of positions, got {len(positions)}")
    if len(choices) < 2 or len(set(choices)) != len(choices) or min(choices) < 0:
        raise EngineError(f"choices {list(choices)}: give at least two different token ids")
    for i, (row, row_positions) in enumerate(zip(rows, positions, strict=True)):
        outside = [position for position in row_positions if not 0 <= position < len(row)]
        if outside:
            raise EngineError(f"row {i}: position {outside[0]} lies outside its {len(row)} tokens")


@dataclass(frozen=True)
class Reply:
    """A ChatEngine's answer."""

    text: str
    stop_reason: StopReason
    top_logprobs: list[dict[str, float]] | None = None
    """Per generated token: alternative token text → log-probability, where the server gives them."""
    tokens: list[str] = field(default_factory=list)
    """The generated tokens' texts, aligned with `top_logprobs`."""
    usage: Usage | None = None
    """Usage of the server, failed tries included; None: not a server."""
    repaired: str | None = None
    """Error of the first reply, where this one replaces it."""
    others: tuple[Reply, ...] = ()
    """Complete texts of alternative endings, where requested (`rrm.judge.expected_score`)."""


@dataclass(frozen=True)
class Request:
    """A request to a ChatEngine."""

    messages: list[dict[str, Any]]
    """A content is text, or parts of text and pictures as Chat Completions has them."""
    key: str
    """Names the row: its seed derives from it."""
    begins: bool = True
    """True: begins a piece of work, which a spending limit omits as a unit."""
    about: Any = None
    """Data of the caller."""
    prompts: Sequence[Sequence[int]] = ()
    """Token ids instead of messages: `top_logprobs` are of the token after each, no text is written."""
    json_schema: dict[str, Any] | None = field(default=None, hash=False)
    """Schema of the reply; left out where the server takes none."""
    readings: int = 1
    """Requests of about this size in the piece of work, as far as known."""

    @property
    def work(self) -> WorkSize:
        sent = sum(map(_characters, self.messages)) + 4 * sum(map(len, self.prompts))
        return WorkSize(sent * self.readings, self.readings)


IMAGE_CHARACTERS = 4_000  # estimate for a picture: about a thousand tokens


def _characters(message: dict[str, Any]) -> int:
    content = message["content"]
    if isinstance(content, str):
        return len(content)
    return sum(len(item["text"]) if "text" in item else IMAGE_CHARACTERS for item in content)


# takes a reply or its error; returns the next request of its turn, None where there is none
Answered = Callable[[Request, Reply | EngineError], Request | None]


class ChatEngine(Protocol):
    """Messages in, text out. Raises `rrm.errors.EngineError` when no reply could be had."""

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        """One reply. `key` names the row: its seed and its retries' seeds derive from (params.seed, key, try)."""
        ...


def converse(engine: ChatEngine, requests: Iterable[Request], params: SamplingParams, answered: Answered) -> None:
    """Ask each request, and the request that `answered` returns after it, until it returns None.

    Uses the engine's own `converse`, else `concurrency` threads. Raises EngineError of kind `refused`; SpendingLimit where requests were left out.
    """
    at_once = getattr(engine, "converse", None)
    if at_once is not None:
        at_once(requests, params, answered)
        return
    left, reading, answering, stopped = iter(requests), threading.Lock(), threading.Lock(), threading.Event()

    def turns() -> None:
        while not stopped.is_set():
            with reading:
                following = next(left, None)
            if following is None:
                return
            while following is not None and not stopped.is_set():
                try:
                    reply: Reply | EngineError = engine.complete(following.messages, params, following.key)
                except EngineError as error:
                    if error.kind == "refused":
                        raise
                    reply = error
                with answering:
                    following = answered(following, reply)

    threads = getattr(engine, "concurrency", 1)
    if threads == 1:
        return turns()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for ended in as_completed([pool.submit(turns) for _ in range(threads)]):
                ended.result()
        finally:
            stopped.set()  # after an error or Ctrl-C nothing more is asked


def one_reply(engine: Any, messages: list[dict[str, Any]], params: SamplingParams, key: str) -> Reply:
    replies = list[Reply | EngineError]()
    engine.converse([Request(messages, key)], params, lambda request, reply: replies.append(reply))
    if isinstance(replies[0], EngineError):
        raise replies[0]
    return replies[0]
