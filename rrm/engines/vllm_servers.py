"""Addresses at which vLLM serves one policy: choice of server, retries, and weights.

A row asks the server that holds its prefix, else the one with the fewest rows; if it fails, another one, until its patience
ends. A server without connection or with repeated failures is down: paused, then tried by one row.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from rrm.engines.http import UnreadableAnswer, backoff
from rrm.engines.http_errors import Rejected, Retry
from rrm.engines.vllm_http import Server, looking_body, servers_at
from rrm.engines.vllm_weights import Weights, check_own, error_text, load, restore, unload
from rrm.errors import EngineError

log = logging.getLogger(__name__)
T = TypeVar("T")
MAX_BACKOFF_S = 10.0
STRIKES = 3  # failures in a row that put a server down; no connection does at once
DOWN_S, MAX_DOWN_S = 5.0, 60.0  # first pause, doubled each time, and the longest
START_S = 10.0  # patience before the first row, when a wrong address is likelier than a starting server
SYNC_S = 5.0  # patience with a server that fails to load weights, while others may have
REFUSED_S = 60.0  # how long refused weights are sent again: vLLM says 500 of an adapter that it cannot load
LATE_S = 120.0  # longest wait for the others after the first has loaded
RESTORE_S = 120.0  # longest wait on closing for servers to load their own weights
CLOSE_S = 5.0  # longest wait on closing


class Servers:
    """Addresses at which one model is served; of one event loop.

    Args:
        urls: without `/v1`.
        patience_s: how long a row is retried, from its first failure on.
        backoff_s: first pause once all were asked; doubles, with full jitter.
    """

    def __init__(
        self,
        urls: Sequence[str],
        concurrency: int,
        timeout_s: float,
        patience_s: float,
        backoff_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls, self.concurrency, self.timeout_s = urls, concurrency, timeout_s
        self.patience_s, self.backoff_s, self.clock = patience_s, backoff_s, clock
        self.all: list[Server] = []
        self._connected = False  # all answered once: a wrong address is waited for less than a restarting server
        self._roots: dict[Server, str | None] = {}  # the path of each server's own weights
        self.home: dict[str, Server] = {}  # the server that holds a row's prefix, by its key

    # ---- before the first row ----

    async def connect(
        self, model: str | None, prompt: Sequence[int], *, restored: bool = False
    ) -> tuple[str, int | None]:
        """Connect to all; returns (the model's name, tokens of its context). Raises EngineError.

        Args:
            model: None: the only one there is.
            prompt: tokens to test log-probabilities with.
            restored: first restore each server's own weights (`vllm_weights.restore`).
        """
        self.all = servers_at(self.urls, self.concurrency, self.timeout_s)
        contexts: list[int] = []
        for server in self.all:
            model, context, root = await self._model_at(server, model)
            contexts += [] if context is None else [context]
            own = partial(restore, server, root) if restored else partial(check_own, server)
            await self.ask_at(server, own, self._start_s)
            self._roots[server] = root
            await self._check_logprobs(server, model, prompt)
        self._connected = True
        return str(model), min(contexts, default=None)

    async def _model_at(self, server: Server, model: str | None) -> tuple[str, int | None, str | None]:
        """(name, context, path of its weights)."""
        try:
            listed = await self.ask_at(server, lambda: server.send("/models"), self._start_s)
            entries = {str(entry["id"]): entry for entry in listed["data"]}
        except (LookupError, TypeError) as error:
            raise server.error(f"no list of models ({error_text(error)})", "is it vLLM's server?") from error
        base = [name for name, entry in entries.items() if not entry.get("parent")]  # others are adapters
        name = model or (base[0] if len(base) == 1 else None)
        if name not in entries:
            raise server.error(f"it has {', '.join(entries)}, not {model}", "name one of these after #")
        # of an adapter nothing is said: what it is over has the context
        over = entries.get(str(entries[name].get("parent"))) or (entries[base[0]] if base else {})
        context = entries[name].get("max_model_len") or over.get("max_model_len")
        root = entries[name].get("root")
        return name, context if isinstance(context, int) else None, root if isinstance(root, str) else None

    async def _check_logprobs(self, server: Server, model: str, prompt: Sequence[int]) -> None:
        """Refuse a server with raw log-probabilities: processed ones differ at temperature ½."""
        readings: list[dict[str, float]] = []
        for temperature in (1.0, 0.5):
            body = looking_body(model, prompt, temperature)
            try:
                reply = await self.ask_at(server, lambda body=body: server.send("/completions", body), self._start_s)
                top = reply["choices"][0]["logprobs"]["top_logprobs"][0]
                readings.append({str(token): float(value) for token, value in top.items()})
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise server.error(f"no log-probabilities ({error_text(error)})", "is it vLLM's server?") from error
        both = readings[0].keys() & readings[1].keys()
        if both and all(abs(readings[0][token] - readings[1][token]) < 1e-6 for token in both):
            raise server.error(
                "its log-probabilities do not change with the temperature, so they are not of what it samples from",
                "start it with --logprobs-mode processed_logprobs",
            )

    @property
    def _start_s(self) -> float:
        return min(START_S, self.patience_s)

    # ---- whom to ask ----

    async def ask(self, key: str, work: Callable[[Server], Awaitable[T]]) -> T:
        """Await `work` at the row's server, or at another one where that fails.

        Raises:
            EngineError: no answer until the patience ended (its cause: `Retry`), or a wrong reply.
        """

        async def ready(server: Server) -> T:
            self._settle(key, server)
            return await work(server)

        return await self._ask(lambda tried: self._choose(key, tried), ready, self.patience_s)

    async def ask_at(self, server: Server, work: Callable[[], Awaitable[T]], patience_s: float) -> T:
        """Await `work` at this server alone; EngineError where it does not answer (cause: `Retry`) or refuses."""
        try:
            return await self._ask(lambda tried: None if tried else server, lambda _: work(), patience_s)
        except Rejected as refused:
            raise server.refusal(refused) from refused

    async def _ask(
        self,
        choose: Callable[[Collection[Server]], Server | None],
        work: Callable[[Server], Awaitable[T]],
        patience_s: float,
    ) -> T:
        """Await `work` at servers that `choose` returns; once all were tried, pause and try all again."""
        tried: set[Server] = set()
        failures, rounds, since = 0, 0, None
        while True:
            server = choose(tried)
            assert server is not None
            try:
                result = await work(server)
                self._answered(server)
                return result
            except Rejected:
                self._answered(server)  # with a no, but it did
                raise
            except UnreadableAnswer as wrong:
                hint = "nothing may be learned from this server: look at its version and flags"
                raise server.error(f"its reply cannot be one to what was asked: {wrong}", hint) from wrong
            except Retry as error:
                now = self.clock()
                failures, since = failures + 1, now if since is None else since
                tried.add(server)
                self._failed(server, error)
                left = since + patience_s - now
                if choose(tried) is not None:
                    continue
                if left <= 0:
                    reason = f"{error.reason} (tried {failures} times in {now - since:.0f} s)"
                    raise server.error(reason, error.hint) from error
                pause = backoff(self.backoff_s, rounds, MAX_BACKOFF_S)
                await asyncio.sleep(min(left, max(error.retry_after, pause)))
                rounds, tried = rounds + 1, set()

    def release(self, key: str) -> None:
        server = self.home.pop(key, None)
        if server is not None:
            server.rows -= 1

    def _choose(self, key: str, tried: Collection[Server]) -> Server | None:
        """Choose the server to ask next; None: all that are left are down."""
        left = [server for server in self.all if server not in tried]
        up = [server for server in left if server.down_until <= self.clock()]
        if (home := self.home.get(key)) in up:
            return home
        if up:
            return min(up, key=lambda server: server.rows)
        return None if tried else min(left, key=lambda server: server.down_until)

    def _settle(self, key: str, server: Server) -> None:
        previous = self.home.get(key)
        if previous is not server:
            if previous is not None:
                previous.rows -= 1
            self.home[key] = server
            server.rows += 1
        if server.down_until:  # others stay away until this row was answered
            server.down_until, server.probed = self.clock() + DOWN_S, True

    def _answered(self, server: Server) -> None:
        if server.said:
            log.warning("vLLM at %s answers again", server.url)
        server.strikes, server.down_until, server.down_s = 0, 0.0, 0.0
        server.probed = server.said = False

    def _failed(self, server: Server, error: Retry) -> None:
        now = self.clock()
        server.strikes += 1
        if (error.unconnected or server.strikes >= STRIKES) and (server.down_until <= now or server.probed):
            server.down_s = min(max(2 * server.down_s, DOWN_S), MAX_DOWN_S)
            server.down_until, server.probed = now + server.down_s, False
        if error.retry_after > 0:
            server.down_until = max(server.down_until, now + min(error.retry_after, self.patience_s))
        if server.down_until > now and not server.said:
            server.said = True
            able = sum(other.down_until <= now for other in self.all)
            consequence = "its rows go elsewhere" if able else self._waiting()
            log.warning("vLLM at %s: %s; %s", server.url, error.reason, consequence)

    def _waiting(self) -> str:
        if self._connected:
            return f"rows wait for it, each up to {self.patience_s:.0f} s"
        return f"it is waited for, up to {self._start_s:.0f} s"

    # ---- weights ----

    async def load_everywhere(self, weights: Weights) -> list[Server]:
        """Load weights at every server; returns those that took them; the others are down and get them later.

        Raises EngineError: one refuses them, or none answered within `patience_s`."""
        since, rounds = self.clock(), 0
        while True:
            loaded, missed = await self._load_round(weights)
            if loaded:
                return loaded
            # nobody was there: one is being started; an answer, but no success: that does not pass by waiting for long
            unconnected = all(isinstance(error.__cause__, Retry) and error.__cause__.unconnected for error in missed)
            left = since + (self.patience_s if unconnected else min(self.patience_s, REFUSED_S)) - self.clock()
            if left <= 0:
                raise missed[0]
            await asyncio.sleep(min(left, backoff(self.backoff_s, rounds, MAX_BACKOFF_S)))
            rounds += 1

    async def _load_round(self, weights: Weights) -> tuple[list[Server], list[EngineError]]:
        """(servers that took the weights, errors of the others), of all at once."""
        tasks: dict[asyncio.Task[None], Server] = {}
        for server in self.all:
            patience = (
                0.0 if server.strikes else min(SYNC_S, self.patience_s)
            )  # one that fails is asked, not waited for
            work = self.ask_at(server, lambda server=server: load(server, weights), patience)
            tasks[asyncio.create_task(work)] = server
        loaded: list[Server] = []
        missed: list[EngineError] = []
        waiting = set(tasks)
        try:
            while waiting:
                # a load of all weights that is broken off leaves some of them: it has the time of a request
                late = LATE_S if loaded and weights.whole is None else None
                done, waiting = await asyncio.wait(waiting, timeout=late, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        await task
                        loaded.append(tasks[task])
                    except EngineError as error:
                        if not isinstance(error.__cause__, Retry):
                            raise
                        self._give_up(tasks[task], error.__cause__)
                        missed.append(error)
                if not done:
                    break
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for task in waiting:
            self._give_up(tasks[task], Retry(f"it loads weights for longer than {LATE_S:g} s", ""))
        return loaded, missed

    def _give_up(self, server: Server, error: Retry) -> None:
        server.strikes = max(server.strikes, STRIKES)
        self._failed(server, error)

    async def load_again(
        self, server: Server, weights: Weights, loads: int, check: Callable[[Server], Awaitable[None]]
    ) -> None:
        """Load weights that a request found missing, once for all requests that were sent at `loads`.

        Args:
            check: called before; raises where it is not the same server.
        """
        async with server.loading:
            if server.loads != loads:
                return
            log.warning(
                "vLLM at %s does not know %s (was it started again?): loaded once more", server.url, weights.label
            )
            try:
                await check(server)
            except Rejected as refused:
                raise server.refusal(refused) from refused
            await load(server, weights)
            server.loads += 1

    async def close(self, adapters: Sequence[str] = (), *, restored: bool = False) -> None:
        """Unload adapters, or restore each server's own weights, and end the connections."""
        try:
            if restored:
                await self._restore()
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(unload(server, name) for server in self.all for name in adapters))
        except TimeoutError:
            log.warning("not every server said within %g s that it unloaded %s", CLOSE_S, ", ".join(adapters))
        finally:
            if self.all:
                await self.all[0].client.aclose()  # one connection pool for all

    async def _restore(self) -> None:
        async def one(server: Server) -> None:
            try:
                await restore(server, self._roots.get(server))
            except (Retry, Rejected, UnreadableAnswer, EngineError) as error:
                log.warning(
                    "vLLM at %s keeps the weights that were trained (%s): start it again", server.url, error_text(error)
                )

        try:
            async with asyncio.timeout(RESTORE_S):
                await asyncio.gather(*map(one, self.all))
        except TimeoutError:
            log.warning("not every server has its own weights back after %g s: start them again", RESTORE_S)
