"""The two engine contracts: tokens in, tokens out; and chat messages in, text out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from rrm.data.usage import Usage
from rrm.engines.cost import WorkSize
from rrm.errors import EngineError, KeyRefused

StopReason = Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class SamplingParams:
    """How to sample. `seed` is the run's; each row derives its own from (seed, row key), so batches do not matter."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end a row once generated (kept in the output)."""
    timeout_s: float = 60.0
    """For engines that call a server."""
    top_logprobs: int = 0
    """How many alternatives a token to ask a server for."""
    json_schema: dict[str, Any] | None = field(default=None, hash=False)
    """What a server's reply must be, where it can be held to that; one that refuses raises `rrm.errors.SchemaRefused`."""


@dataclass(frozen=True)
class Completion:
    """What a TokenEngine sampled for one row."""

    ids: list[int]
    logprobs: list[float]
    """log π(id | prefix) per sampled token under the sampling temperature, same length as `ids`."""
    stop_reason: StopReason
    version: int = 0
    """Of the weights that sampled it, where an engine's weights change (`SyncedEngine.sync`)."""
    server: str = ""
    """Address that sampled it, without a password; "": this process."""


@dataclass(frozen=True)
class Span:
    """Positions [start, stop) of a row whose tokens' log-probabilities are wanted (start ≥ 1)."""

    start: int
    stop: int


@dataclass
class EngineCounters:
    """What an in-process engine ran through its model since it was made; subtract two readings to measure a call."""

    prefilled: int = 0
    """Tokens of prompts and observations, padding not counted."""
    decoded: int = 0
    """Sampled tokens that were run to get the next one."""
    prefill_forwards: int = 0
    decode_forwards: int = 0


class Session(Protocol):
    """A running batch: rows are submitted at any time, and finish at their own time (`rrm.engines.sessions`)."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decode."""
        ...

    def submit(self, key: str, ids: Sequence[int], max_new_tokens: int | None = None) -> None:
        """Queue a row under a key that has no other row at work; at most `max_new_tokens` of the session's."""
        ...

    def step(self) -> list[tuple[str, Completion]]:
        """Do some work; returns (key, completion) of the rows that finished."""
        ...


class TokenEngine(Protocol):
    """Token in, token out. Stateless unless `keys` are given, under which an engine may keep a row's KV cache."""

    eos_token_id: int

    def generate(
        self, rows: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[str] | None = None
    ) -> list[Completion]:
        """One completion per row, in order."""
        ...

    def logprobs(self, rows: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[list[float]]:
        """log p(row[t] | row[:t]) at temperature 1 for t in each row's span."""
        ...

    def continuation_logprobs(
        self, rows: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], keys: Sequence[str] | None = None
    ) -> list[list[float]]:
        """log p(continuation | row) at temperature 1, summed over its tokens: one list per row, one value per
        continuation. With a row's key, only what is not cached under it is computed."""
        ...

    def choice_logprobs(
        self,
        rows: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        choices: Sequence[int],
        keys: Sequence[str] | None = None,
    ) -> list[list[list[float]]]:
        """log p(choice | row[:position + 1], one of the choices follows) at temperature 1: one list per row, of one list per
        position of `positions[row]`, of one value per choice. Their probabilities sum to 1. With a row's key, what is computed
        may be kept under it as far as the row's last position, and what its kept tokens share with it before its first position
        is not computed again."""
        ...

    def release(self, keys: Sequence[str]) -> None:
        """Forget what was cached under `keys`."""
        ...


@runtime_checkable
class SyncedEngine(Protocol):
    """A TokenEngine beside the process that trains: it samples from the weights it was sent last."""

    @property
    def version(self) -> int:
        """Of those weights."""
        ...

    def sync(self, model: Any, version: int) -> None:
        """Sample from this model's weights from the next row on."""
        ...

    def close(self) -> None:
        """Leave the server as it was found."""
        ...


def check_choices(rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], choices: Sequence[int]) -> None:
    """Refuse what `choice_logprobs` cannot answer.

    Raises:
        EngineError: as many lists of positions as rows are missing, a position lies outside its row, or the choices are
            fewer than two different tokens.
    """
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
    """What a ChatEngine answered."""

    text: str
    stop_reason: StopReason
    top_logprobs: list[dict[str, float]] | None = None
    """Per generated token: alternative token text → log-probability, where the server gives them."""
    tokens: list[str] = field(default_factory=list)
    """The generated tokens' texts, aligned with `top_logprobs`."""
    usage: Usage | None = None
    """What a server used for it, tries that failed included; None: not a server."""
    repaired: str | None = None
    """Why a first reply could not be read, in whose place this one stands; None: it is the first."""
    others: tuple[Reply, ...] = ()
    """Ways it could have gone on, as far as that was asked for (`rrm.judge.expected_score`); whole, with the reply's own beginning."""


@dataclass(frozen=True)
class Request:
    """What a ChatEngine is asked."""

    messages: list[dict[str, Any]]
    """A content is text, or parts of text and pictures as Chat Completions has them."""
    key: str
    """Names the row: its seed derives from it."""
    begins: bool = True
    """Whether it begins a piece of work, which a spending limit leaves out whole; False: it belongs to that of the request before."""
    about: Any = None
    """The asker's own."""
    prompts: Sequence[Sequence[int]] = ()
    """Token ids, in the place of messages: nothing is written, the reply's `top_logprobs` are those of the token after each."""
    json_schema: dict[str, Any] | None = field(default=None, hash=False)
    """What its reply must be, where the server can be held to one; asked without where it cannot."""
    readings: int = 1
    """Requests of about this size that the piece of work takes, as far as that is known."""

    @property
    def work(self) -> WorkSize:
        """How much it is, with all its readings; a token id counts as four characters."""
        sent = sum(map(_characters, self.messages)) + 4 * sum(map(len, self.prompts))
        return WorkSize(sent * self.readings, self.readings)


IMAGE_CHARACTERS = 4_000
"""What a picture counts as in an estimate: about a thousand tokens."""


def _characters(message: dict[str, Any]) -> int:
    """Of a message's text, with its pictures as `IMAGE_CHARACTERS` each."""
    content = message["content"]
    if isinstance(content, str):
        return len(content)
    return sum(len(item["text"]) if "text" in item else IMAGE_CHARACTERS for item in content)


Answered = Callable[[Request, Reply | EngineError], Request | None]
"""Takes a reply, or the error in its place; returns what to ask next in its turn, None where that is all."""


class ChatEngine(Protocol):
    """Messages in, text out. Raises `rrm.errors.EngineError` when no reply could be had."""

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        """One reply. `key` names the row: its seed and its retries' seeds derive from (params.seed, key, try)."""
        ...


def converse(engine: ChatEngine, requests: Iterable[Request], params: SamplingParams, answered: Answered) -> None:
    """Ask each request, and what `answered` says comes after it: as many at once as the engine can (a `converse` of its own; `concurrency`:
    in so many threads), else one after the other.

    Raises:
        KeyRefused: the server does not take the key.
        SpendingLimit: requests were left out.
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
                except KeyRefused:
                    raise
                except EngineError as error:
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
    """`complete` of an engine that can `converse`."""
    replies = list[Reply | EngineError]()
    engine.converse([Request(messages, key)], params, lambda request, reply: replies.append(reply))
    if isinstance(replies[0], EngineError):
        raise replies[0]
    return replies[0]
