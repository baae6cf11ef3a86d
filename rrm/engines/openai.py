"""`openai`: a ChatEngine over any OpenAI-compatible server (vLLM, llama.cpp, Ollama, OpenAI, …).

Bounded concurrency in one asyncio loop per call; retries with exponential back-off, jitter and `Retry-After`, and a new seed on
every try. The API key (OPENAI_API_KEY) and values of headers are never logged or quoted. Replies and errors carry their usage.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2

from rrm.data.seeds import derive_seed
from rrm.data.usage import Usage, total_of
from rrm.engines.async_runner import Feed, run
from rrm.engines.base import Answered, Reply, Request, SamplingParams, one_reply
from rrm.engines.contexts import Counts, most_used, read_context
from rrm.engines.cost import CostTracker, WorkSize
from rrm.engines.endpoints import ConcurrencyLimiter, Endpoint, Endpoints, room_for
from rrm.engines.hidden import Hidden
from rrm.engines.http import UnreadableAnswer, ask, backoff, client, send
from rrm.engines.http_errors import (
    FOR_ALL,
    HINTS,
    NO_LOGPROBS,
    Quirks,
    Rejected,
    Retry,
    error_in,
    failure,
    is_too_long,
    no_money,
    speaks_of_schema,
    way_out_of,
    workaround_of,
)
from rrm.engines.replies import RequestForm, body_of, form_of, reply_of, usage_of
from rrm.engines.server_options import ServerOptions, addresses_of, filled, is_address, public, query_of, shown_address
from rrm.errors import EngineError, ErrorKind, SpendingLimit

log = logging.getLogger(__name__)
THROTTLED_TRIES = 3  # further tries, per allowed failure, where a server is asked too much at once
MAX_BACKOFF_S = 20.0
# variables of the environment → the headers that say whose account a request is of
ACCOUNT = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
LIST_TIMEOUT_S = 5.0  # longest wait for the list of a server's models


Post = Callable[[RequestForm, SamplingParams, list[Usage]], Awaitable[Reply]]  # makes one request


class OpenAIEngine:
    """A ChatEngine over HTTP.

    Args:
        base_url: e.g. `http://localhost:8000/v1`; several of one model, with commas between them.
        api_key: default OPENAI_API_KEY, or "none" for servers that want no key.
        concurrency: requests in flight at once, at all addresses together.
        max_retries: tries after the first; three times as many where the server is asked too much at once.
        timeout_s: seconds a request may take (the smaller of this and `params.timeout_s`).
        backoff_s: first pause between tries; doubles up to 20 s, with full jitter.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        concurrency: int = 8,
        max_retries: int = 4,
        timeout_s: float = 60.0,
        backoff_s: float = 0.5,
        options: ServerOptions | None = None,
    ) -> None:
        urls = list(dict.fromkeys(url.strip().rstrip("/") for url in base_url.split(",")))
        for url in urls:
            if not is_address(url):
                address = shown_address(url)
                raise EngineError(f"{address!r} is not a server's address; write e.g. http://localhost:8000/v1")
        if concurrency < 1 or max_retries < 0:
            raise EngineError(f"concurrency must be ≥ 1 and max_retries ≥ 0, got {concurrency} and {max_retries}")
        key = (api_key or os.environ.get("OPENAI_API_KEY") or "none").strip()
        account = {name: value for name in ACCOUNT if (value := os.environ.get(name, "").strip())}
        for name, value in {"OPENAI_API_KEY": key, **account}.items():
            if not value.isascii() or not value.isprintable():
                raise EngineError(f"{name} holds characters that cannot be sent in a header; set it again")
        self._account = {ACCOUNT[name]: value for name, value in account.items()}
        self.base_url, self.model, self._api_key = ",".join(urls), model, key
        self.concurrency = room_for(concurrency) if concurrency > 1 else 1
        self.max_retries, self.timeout_s, self.backoff_s = max_retries, timeout_s, backoff_s
        self.options = options or ServerOptions()
        self._hidden = Hidden({*self.options.secrets(urls), *([] if key == "none" else [key])})
        self.purse = CostTracker(self.options.prices, self.options.max_cost)
        self.endpoints = Endpoints(urls, self.concurrency)
        self._quirks = Quirks()
        self._counts = {url: Counts() for url in urls}
        self._context: int | None = None  # tokens, as the server said when it was asked
        # whether it holds replies to a JSON schema (`SamplingParams.json_schema`); None: not tried yet
        self.takes_schema: bool | None = None
        self._answered = False  # whether it ever accepted the key

    @property
    def refuses_temperature(self) -> bool:
        """Tell whether this server samples at a temperature of its own (reasoning models)."""
        return "temperature" in self._quirks.known

    @property
    def thinking_tokens(self) -> int:
        return self.options.thinking_tokens or 0

    @classmethod
    def from_spec(cls, spec: str, **options: Any) -> OpenAIEngine:
        """Parse `openai:BASE_URL#model`; several URLs with commas; `$VARIABLE` of the environment."""
        urls, model = addresses_of(spec)
        return cls(filled(",".join(urls), public(spec), in_url=True), model, **options)

    def context_tokens(self) -> int | None:
        """Tokens of the model's context as the server says; None where it does not."""

        async def contexts() -> list[int | None]:
            async with client() as http:
                ways = {
                    e.url: partial(ask, http, limit_s=LIST_TIMEOUT_S, **self._way_to(e.url)) for e in self.endpoints.all
                }
                return [await read_context(way, public(url), self.model) for url, way in ways.items()]

        self._context = min((tokens for tokens in run(contexts()) if tokens is not None), default=None)
        return self._context

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        return one_reply(self, messages, params, key)

    def converse(self, requests: Iterable[Request], params: SamplingParams, answered: Answered) -> None:
        """See `rrm.engines.base.converse`; begins in order, so that prompts that begin alike stay together.

        Raises:
            EngineError: the server refuses the key, or asks for too long a pause; unfinished work is lost.
            SpendingLimit: the limit is reached: work under way is finished, the rest left out.
        """
        run(self._converse(requests, params, answered))

    async def _converse(self, requests: Iterable[Request], params: SamplingParams, answered: Answered) -> None:
        slots, some_ended = asyncio.Semaphore(self.concurrency), asyncio.Event()
        under_way = dict[int, WorkSize]()

        async def turn(request: Request, gate: ConcurrencyLimiter) -> None:
            following: Request | None = request
            before: Endpoint | None = None
            cost, prompt_cost, paid = 0.0, 0.0, list[Usage]()
            try:
                while following is not None:
                    try:
                        reply, before = await self._with_retries(gate, following, params, before, paid)
                    except EngineError as error:
                        if error.kind == "refused":
                            raise  # the others would fare no better: leaving cancels them
                        if error.kind == "schema" and following.json_schema is not None:
                            following = replace(following, json_schema=None)
                            continue
                        reply = error
                    if reply.usage is not None:
                        cost += reply.usage.cost or 0.0
                        prompt_cost += self.purse.read_of(reply.usage)
                    following, paid = answered(following, reply), []
            finally:
                work = under_way.pop(id(request))
                self.purse.under_way -= work
                self.purse.end(cost, work, prompt_cost)
                some_ended.set()
                slots.release()

        left_out = False
        async with AsyncExitStack() as stack:
            gate = ConcurrencyLimiter(self.endpoints, await stack.enter_async_context(client(self.concurrency)))
            feed = stack.enter_context(Feed(requests, ahead=self.concurrency))
            try:
                async with asyncio.TaskGroup() as tasks:
                    while not left_out:
                        await slots.acquire()
                        request = await feed.next()
                        if request is None:
                            break
                        while request.begins and self.purse.waits(len(under_way)):
                            some_ended.clear()
                            await some_ended.wait()
                        begun = sum(under_way.values(), WorkSize(replies=0))
                        left_out = request.begins and self.purse.closed(begun, request.work)
                        if not left_out:
                            under_way[id(request)] = request.work
                            self.purse.under_way += request.work
                            tasks.create_task(turn(request, gate))
            except BaseExceptionGroup as several:
                raise several.exceptions[0] from several.exceptions[0].__cause__
        if left_out:
            raise SpendingLimit(self.purse.why_closed())

    async def _with_retries(
        self,
        gate: ConcurrencyLimiter,
        request: Request,
        params: SamplingParams,
        before: Endpoint | None,
        paid: list[Usage],
    ) -> tuple[Reply, Endpoint]:
        """Get a reply and its address; `paid` gains the usage of each try."""
        failures = throttled = 0
        answers = self.endpoints.answers
        while True:
            # 31 bits: some servers keep seeds in a signed or unsigned 32-bit integer
            seed = derive_seed(params.seed, request.key, failures + throttled) % 2**31
            endpoint = await gate.take(before)
            burst = endpoint.bursts
            try:
                post = partial(self._post, gate.http, endpoint.url)
                reply = await self._ask(post, endpoint, request, params, seed, paid)
                self.endpoints.answered(endpoint)
                return replace(reply, usage=total_of(paid)), endpoint
            except EngineError as error:
                self.endpoints.answered(endpoint)  # with a no, but it did
                error.usage = total_of(paid)
                raise
            except Retry as error:
                failures, throttled = failures + (not error.throttled), throttled + error.throttled
                pause = backoff(self.backoff_s, failures + throttled - 1, MAX_BACKOFF_S)
                elsewhere = self.endpoints.failed(endpoint, error, burst, max(pause, error.retry_after))
                spent = failures > self.max_retries or throttled > THROTTLED_TRIES * self.max_retries
                if why := self.endpoints.why_closed(throttled if spent and not failures else None, answers):
                    closed = self._error(endpoint, error.reason, why, "refused")
                    closed.usage = total_of(paid)
                    raise closed from error
                if spent:
                    if error.empty:
                        return Reply(text="", stop_reason="eos", usage=total_of(paid)), endpoint
                    failed = self._error(endpoint, f"{error.reason} (tried {failures + throttled} times)", error.hint)
                    failed.usage = total_of(paid)
                    raise failed from error
            finally:
                await gate.give(endpoint)
            if not elsewhere:  # a pause it asked for the gate keeps, and lets others through that are free before
                await asyncio.sleep(pause)

    async def _ask(
        self, post: Post, endpoint: Endpoint, request: Request, params: SamplingParams, seed: int, paid: list[Usage]
    ) -> Reply:
        """Try once; a rejected request is asked again in the form the server accepts, which is remembered."""
        quirks, guessed = self._quirks.known, False
        params = params if request.json_schema is None else replace(params, json_schema=request.json_schema)
        if params.json_schema is not None and self.takes_schema is False:
            raise EngineError(f"{self._name()} takes no JSON schema", "schema")
        while True:
            try:
                form = form_of(self.model, request, params, self.options, seed, quirks)
                reply = await post(form, params, paid)
                messages, tokens = form.body.get("messages", ()), paid[-1].prompt_tokens
                longer = partial(self._count, post, form, params, paid)
                if await self._counts[endpoint.url].is_cut(messages, tokens, self._context, longer):
                    text = f"it read {tokens:,} tokens of the prompt, of a longer one no more, and cut the rest away in silence"
                    hint = "serve the model with a longer context (Ollama: OLLAMA_CONTEXT_LENGTH), or say how long it is with --context"
                    raise self._error(endpoint, text, hint, "too_long")
            except Rejected as rejected:
                text = f"HTTP {rejected.status}: {rejected.text}"
                if is_too_long(rejected):
                    hint = way_out_of(rejected, self._context)
                    raise self._error(endpoint, text, hint, "too_long") from rejected
                named = speaks_of_schema(rejected)
                # prompts are asked for their log-probabilities alone
                left_out = replace(params, top_logprobs=0) if request.prompts else params
                workaround = workaround_of(rejected, left_out, quirks)
                if params.json_schema is not None and rejected.status in (400, 422) and (named or workaround is None):
                    if named:  # else it may be this one text that is refused
                        self.takes_schema = False
                    raise self._error(endpoint, text, "ask without a JSON schema", "schema") from rejected
                if workaround is None:
                    hint = HINTS.get(rejected.status, HINTS[400])
                    # a 403 after answers is a filter's objection to one text; a 401 is never about the text
                    for_all = rejected.status in FOR_ALL or (rejected.status == 403 and not self._answered)
                    refused = for_all or no_money(rejected.status, rejected.text)
                    raise self._error(endpoint, text, hint, "refused" if refused else "failed") from rejected
                guessed |= workaround == NO_LOGPROBS and "logprobs" not in rejected.text
                quirks = quirks | {workaround}
                continue
            self._answered = True
            self._quirks.learn(quirks, guessed, self._name())
            return reply

    async def _count(
        self, post: Post, form: RequestForm, params: SamplingParams, paid: list[Usage], messages: list[dict[str, Any]]
    ) -> int:
        """Ask for the server's token count of other messages; 0 where it refuses or money is short."""
        if not self.purse.affords(paid[-1]):
            return 0
        try:
            await post(form.counting(messages), params, paid)
        except Rejected:
            return 0
        except Retry as error:
            if not error.empty:
                raise
        return paid[-1].prompt_tokens

    async def _post(
        self, http: httpx2.AsyncClient, url: str, form: RequestForm, params: SamplingParams, paid: list[Usage]
    ) -> Reply:
        """Send one HTTP request; every failure becomes `Retry` or `Rejected`. `paid` gains its usage."""
        limit = min(self.timeout_s, params.timeout_s)
        late = "raise the time-out (--timeout) or lower the concurrency (--concurrency)"
        used, complete, lost = Usage(requests=1, unreported=1), False, True
        try:
            answer = await send(
                http,
                "POST",
                f"{public(url)}{form.path}",
                limit,
                self._hidden,
                late,
                json=form.body,
                **self._way_to(url),
            )
        except UnreadableAnswer as error:
            raise Rejected(error.status, str(error)) from error
        except (Retry, Rejected) as error:
            if error.status or error.unconnected:
                used, lost = Usage(requests=1), error.status >= 500 or error.status == 408
            raise
        else:
            payload = body_of(answer, self._hidden)
            used = usage_of(payload)
            if (failed := error_in(payload, self._hidden)) is not None:
                used, lost = (Usage(requests=1) if used.unreported else used), failed[0] >= 500 and used.unreported > 0
                raise failure(*failed)
            reply = reply_of(form.read, payload, answer, self._hidden)
            complete, lost = True, False
        finally:
            paid.append(self.purse.pay(used, whole=complete, at_most=most_used(form.body) if lost else None))
        if not reply.text.strip() and reply.stop_reason != "length":  # of prompts it always is
            again = Retry("empty reply", "look into the server's log")
            again.empty = True
            raise again
        return reply

    def _way_to(self, url: str) -> dict[str, Any]:
        """Headers and parameters of an address; HTTP libraries log addresses, so passwords go in headers."""
        headers = {"Authorization": f"Bearer {self._api_key}", **self._account, **self.options.headers_to(url)}
        return {"headers": headers, "params": query_of(url) or None}

    def _error(self, endpoint: Endpoint, reason: str, hint: str, kind: ErrorKind = "failed") -> EngineError:
        return EngineError(self._hidden.hide(f"{shown_address(endpoint.url)} ({self.model}): {reason}; {hint}"), kind)

    def _name(self) -> str:
        return f"{', '.join(shown_address(e.url) for e in self.endpoints.all)} ({self.model})"
