"""`vllm`: a TokenEngine over vLLM's HTTP server: ids in, sampled ids and logprobs out (DESIGN §5).

    engine = VLLMEngine("vllm:http://localhost:8000#base", eos_ids={2}, adapters=Path("runs/a/adapters"))
    engine.sync(policy.model, version=3)          # its LoRA adapter, under its own name, at every address
    with engine.session(params) as session: ...   # every row is a request: none waits for the slowest

Start the server with `--logprobs-mode processed_logprobs` (checked); for adapters with `--enable-lora --max-lora-rank R` and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, for whole weights with VLLM_SERVER_DEV_MODE=1. Its kernels may sample differently from the
policy: see `logprob_gap` and `loss.importance_cap`.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rrm.data.seeds import derive_seed
from rrm.engines.async_runner import Background, together
from rrm.engines.base import Completion, SamplingParams, Span, check_choices
from rrm.engines.http_errors import Rejected, Retry, is_too_long
from rrm.engines.sessions import VLLMSession
from rrm.engines.vllm_http import (
    Server,
    choosing_body,
    completion_of,
    next_logprobs_of,
    normalised,
    sampling_body,
    scoring_body,
    servers_of,
)
from rrm.engines.vllm_servers import Servers
from rrm.engines.vllm_weights import NAME, OWN, Weights, save, sweep, version_at
from rrm.errors import EngineError

T = TypeVar("T")
# adapters that stay loaded: rows of the one before may still be at work. Of whole weights a server has one version.
KEPT_VERSIONS = 2


class VLLMEngine:
    """A `TokenEngine` and `ContinuousEngine` over HTTP; `max_positions`: the servers' smallest context.

    Args:
        spec: `vllm:URL[,URL…]#model`; the model may be omitted where the server has only one.
        vocabulary: number of ids the policy knows, padding included; others are an error.
        adapters: folder for LoRA adapters, or whole weights; None: the weights never change.
        whole: the policy is trained whole: servers are first given their own weights back.
        dtype: torch dtype of whole weights as sent; None: unchanged.
        seen_as: the server's path of `adapters`, where it differs.
        patience_s: how long a row is retried (5xx, no connection, time-out): vLLM takes a minute to restart.

    Raises:
        ConfigError: the spec is not of that form.
        EngineError: a server that cannot be reached, lacks the model, or gives raw log-probabilities.
    """

    def __init__(
        self,
        spec: str,
        *,
        eos_ids: Collection[int],
        vocabulary: int | None = None,
        adapters: Path | None = None,
        seen_as: str | None = None,
        whole: bool = False,
        dtype: Any = None,
        concurrency: int = 512,
        timeout_s: float = 600.0,
        patience_s: float = 600.0,
        backoff_s: float = 0.5,
    ) -> None:
        if not eos_ids:
            raise EngineError("a vllm engine must be told the tokens that end a row (eos_ids)")
        urls, model = servers_of(spec)
        self.eos_ids, self.eos_token_id, self.vocabulary = frozenset(eos_ids), min(eos_ids), vocabulary
        self.adapters, self.seen_as, self.dtype = adapters, seen_as, dtype
        self._loop = Background("vllm")
        self._run = secrets.token_hex(4)  # distinguishes this engine's adapters from another run's
        self._kept: list[str] = []  # loaded weights of this process, oldest first
        self._failed: list[str] = []  # weights tried since, which some servers may have
        self._sent_whole = False  # whole weights were sent: servers may have them, or half of them
        # (ids, the next token, its log-probability), see `expect`
        self._expected: list[tuple[list[int], int, float]] = []
        self._bound = 0.0
        self._slots = asyncio.Semaphore(concurrency)
        self._servers = Servers(urls, concurrency, timeout_s, patience_s, backoff_s)
        try:
            connecting = self._servers.connect(model, [min(eos_ids)], restored=whole)
            self.model, self.max_positions = self._loop.run(connecting)
        except BaseException:
            self._loop.close()
            raise
        self.weights = Weights(self.model)

    # ---- weights ----

    @property
    def addresses(self) -> list[str]:
        return [server.url for server in self._servers.all]

    def expect(
        self, rows: Sequence[Sequence[int]], spans: Sequence[Span], logprobs: Sequence[Sequence[float]], bound: float
    ) -> None:
        """Set log-probabilities that a restarted server must match within `bound` nats a token."""
        places = [
            (row[:index], row[index])
            for row, span in zip(rows, spans, strict=True)
            for index in range(span.start, span.stop)
        ]
        values = [value for row in logprobs for value in row]
        self._expected = [(list(ids), token, value) for (ids, token), value in zip(places, values, strict=True)]
        self._bound = bound

    async def _compare(self, server: Server) -> None:
        """Check a restarted server against `expect`; raises EngineError where it differs."""

        async def gap(ids: list[int], token: int, value: float) -> float:
            reply = await server.send("/completions", scoring_body(self.model, ids, [token]))
            return abs(next_logprobs_of(reply, self.model, ids, [token])[0] - value)

        if self.weights.whole is not None and await version_at(server) != OWN:
            return  # it was not started again: an update did not reach it
        gaps = await together([partial(gap, *expected) for expected in self._expected])
        if gaps and not sum(gaps) / len(gaps) <= self._bound:
            reason = f"it was started again, and its {self.model} and the policy differ by {sum(gaps) / len(gaps):.3f} nats a token"
            raise server.error(reason, "start it with the policy's own weights, as it was before")

    @property
    def version(self) -> int:
        return self.weights.version

    def sync(self, model: Any, version: int, tensors: Mapping[str, Any] | None = None) -> None:
        """Sample from these weights from the next row on; EngineError where a server refuses them.

        Args:
            model: its adapter is loaded at every address; a model without one is sent whole, while no row runs.
            version: a number not used for other weights.
            tensors: weights by name, where the model holds only shards.
        """
        if self.adapters is None:
            raise EngineError("this vllm engine was given no folder for adapters: its weights cannot change")
        name, adapter = f"{self._run}-{version}", hasattr(model, "peft_config")
        server_folder = self.seen_as.rstrip("/") if self.seen_as else str(self.adapters.resolve())
        weights = Weights(
            name if adapter else self.model, version, f"{server_folder}/{name}", None if adapter else name
        )
        try:
            save(model, self.adapters, name, tensors, self.dtype)
            # noted before they are sent: of a load that fails a server may keep some
            self._failed, self._sent_whole = [*self._failed, name], self._sent_whole or not adapter
            self._loop.run(self._load_everywhere(weights, server_folder))
        except BaseException:
            for left in (name, f"{name}.part"):
                shutil.rmtree(self.adapters / left, ignore_errors=True)
            raise
        self.weights, self._failed = weights, []
        # those of an earlier process of this run as well, which could not clear up
        for folder in self.adapters.iterdir():
            if NAME.fullmatch(folder.name) and folder.name not in self._kept:
                shutil.rmtree(folder, ignore_errors=True)

    async def _load_everywhere(self, weights: Weights, server_folder: str) -> None:
        loaded = await self._servers.load_everywhere(weights)
        first = not self._kept
        self._kept = [*self._kept, weights.label][-(1 if weights.whole else KEPT_VERSIONS) :]

        def past(name: str, folder: str) -> bool:
            mine = name.startswith(f"{self._run}-") or (
                first and folder == f"{server_folder}/{name}" and NAME.fullmatch(name)
            )
            return bool(mine) and name not in self._kept

        await asyncio.gather(*(sweep(server, past) for server in loaded))

    def close(self) -> None:
        """Unload adapters or restore the servers' own weights; remove sent files. Idempotent."""
        if self._loop.closed:
            return
        try:
            adapters = [] if self._sent_whole else [*self._kept, *self._failed]
            self._loop.run(self._servers.close(adapters, restored=self._sent_whole))
        finally:
            self._loop.close()
            if self.adapters is not None:  # a run that goes on sends its weights anew
                for name in self._kept:
                    shutil.rmtree(self.adapters / name, ignore_errors=True)

    # ---- the contract ----

    @contextmanager
    def session(self, params: SamplingParams) -> Iterator[VLLMSession]:
        """Sample rows at the server; rows still running at the end are cancelled.

        Raises:
            EngineError: `top_p` < 1, where vLLM's log-probabilities are of the truncated distribution.
        """
        if params.top_p < 1 and params.temperature > 0:
            raise EngineError(
                "top_p below 1 cannot be trained on through vLLM: its log-probabilities are then of the cut distribution"
            )
        session = VLLMSession(
            lambda key, ids, limit: self._loop.start(self.sample(key, ids, params, limit)), params.max_new_tokens
        )
        try:
            yield session
        finally:
            session.close()

    def generate(
        self,
        rows: Sequence[Sequence[int]],
        params: SamplingParams,
        keys: Sequence[str] | None = None,
        *,
        at: str | None = None,
    ) -> list[Completion]:
        """See `TokenEngine`; without keys a row's seed derives from its ids. `at`: the address to use.

        Raises EngineError: a row that no server completed."""
        if params.max_new_tokens < 1:
            return [Completion([], [], "length") for _ in rows]
        names = keys or [str(derive_seed(*row)) for row in rows]
        only = None if at is None else self._servers.all[self.addresses.index(at)]
        with self.session(params):  # for its refusals
            pairs = zip(names, rows, strict=True)
            try:
                limit = params.max_new_tokens
                work = [partial(self.sample, name, row, params, limit, only) for name, row in pairs]
                return self._loop.run(together(work))
            finally:
                self.release([] if keys else names)

    def logprobs(self, rows: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[list[float]]:
        """See `TokenEngine`: a request a token, over the server's prefix cache."""
        for i, (row, span) in enumerate(zip(rows, spans, strict=True)):
            if not 1 <= span.start <= span.stop <= len(row):
                raise EngineError(f"row {i}: span [{span.start}, {span.stop}) of {len(row)} tokens")
        places = [
            (i, row[:index], [row[index]])
            for i, (row, span) in enumerate(zip(rows, spans, strict=True))
            for index in range(span.start, span.stop)
        ]
        scores = iter(self._scored(places, scoring_body))
        return [[next(scores)[0] for _ in range(span.start, span.stop)] for span in spans]

    def continuation_logprobs(
        self, rows: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], keys: Sequence[str] | None = None
    ) -> list[list[float]]:
        full_rows = [[*row, *more] for row in rows for more in continuations]
        spans = [Span(len(row), len(row) + len(more)) for row in rows for more in continuations]
        flat = [sum(values) for values in self.logprobs(full_rows, spans)]
        size = len(continuations)
        return [flat[i * size : (i + 1) * size] for i in range(len(rows))]

    def choice_logprobs(
        self,
        rows: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        choices: Sequence[int],
        keys: Sequence[str] | None = None,
    ) -> list[list[list[float]]]:
        """See `TokenEngine`: a request a position, over the server's prefix cache."""
        check_choices(rows, positions, choices)
        places = [
            (i, row[: position + 1], choices)
            for i, (row, row_positions) in enumerate(zip(rows, positions, strict=True))
            for position in row_positions
        ]
        scores = iter(self._scored(places, choosing_body))
        return [[normalised(next(scores)) for _ in row_positions] for row_positions in positions]

    def release(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._servers.release(key)

    # ---- one row ----

    async def sample(
        self, key: str, ids: Sequence[int], params: SamplingParams, limit: int, only: Server | None = None
    ) -> Completion:
        """Sample one row from the weights that are current as it begins."""
        row, weights = list(ids), self.weights
        seed = derive_seed(params.seed, key, len(row)) % 2**31
        completion, server = await self._ask(
            key,
            lambda name: sampling_body(name, row, params, limit, seed, self.eos_ids),
            lambda reply, name: completion_of(
                reply, name, row, limit, self.eos_ids, self.vocabulary, self.max_positions
            ),
            weights,
            only,
        )
        return replace(completion, version=weights.version, server=server.url)

    def _scored(
        self, places: Sequence[tuple[int, Sequence[int], Sequence[int]]], body: Callable[..., dict[str, Any]]
    ) -> list[list[float]]:
        """log p(token | ids) for (row number, ids, tokens); all of a row are asked of one server."""
        call = secrets.token_hex(8)
        names = [f"{call}-{i}" for i, _, _ in places]
        try:
            requests = zip(names, places, strict=True)
            work = [partial(self._next, name, list(ids), list(tokens), body) for name, (_, ids, tokens) in requests]
            return self._loop.run(together(work))
        finally:
            self.release(names)

    async def _next(
        self, key: str, row: list[int], tokens: list[int], body: Callable[..., dict[str, Any]]
    ) -> list[float]:
        values, _ = await self._ask(
            key, lambda name: body(name, row, tokens), lambda reply, name: next_logprobs_of(reply, name, row, tokens)
        )
        return values

    async def _ask(
        self,
        key: str,
        body: Callable[[str], dict[str, Any]],
        parse: Callable[[Any, str], T],
        weights: Weights | None = None,
        only: Server | None = None,
    ) -> tuple[T, Server]:
        """Parse the reply of the key's server or another one (or of `only`); returns it with the server."""
        weights = weights or self.weights
        if self._sent_whole and weights.whole is None:
            raise EngineError(
                "whole weights were sent and did not reach the servers, which may have some of them: send them again, or close"
            )

        async def answer(server: Server) -> tuple[T, Server]:
            try:
                return await self._answer(server, weights, body, parse), server
            except Rejected as refused:
                if is_too_long(refused):
                    hint = "lower rollout.max_episode_tokens, or serve it with a longer context"
                    raise EngineError(str(server.error(refused.text, hint)), "too_long") from refused
                raise server.refusal(refused) from refused

        async with self._slots:
            if only is not None:
                return await self._servers.ask_at(only, lambda: answer(only), self._servers.patience_s)
            return await self._servers.ask(key, answer)

    async def _answer(
        self, server: Server, weights: Weights, body: Callable[[str], dict[str, Any]], parse: Callable[[Any, str], T]
    ) -> T:
        if weights.whole is not None:
            return parse(await self._answer_whole(server, weights, body), weights.name)
        loads = server.loads
        try:
            reply = await server.send("/completions", body(weights.name))
        except Rejected as refused:
            if refused.status != 404 or weights.folder is None:
                raise
            await self._servers.load_again(server, weights, loads, self._compare)
            reply = await server.send("/completions", body(weights.name))
        return parse(reply, weights.name)

    async def _answer_whole(self, server: Server, weights: Weights, body: Callable[[str], dict[str, Any]]) -> Any:
        """Get a reply from whole weights, checking their version before and after: a restart loses it."""
        for _ in range(3):
            loads = server.loads
            if await version_at(server) == weights.whole:
                reply = await server.send("/completions", body(weights.name))
                if await version_at(server) == weights.whole and server.loads == loads:
                    return reply
            await self._servers.load_again(server, weights, loads, self._compare)
        raise Retry("its weights are not those it was sent", "look into its log: is it started again and again?")
