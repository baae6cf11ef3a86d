"""`openai`: a ChatEngine over any OpenAI-compatible server (vLLM, llama.cpp, Ollama, OpenAI, …).

Bounded concurrency in one asyncio loop per call; retries with exponential back-off and jitter, `Retry-After` honoured,
and a new seed on every try (the same seed would sample the same bad reply again). What cannot be retried fails at once.
The API key is read from OPENAI_API_KEY, sent to the server, and never logged or put into a message.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from rrm.engines.base import Reply, SamplingParams
from rrm.engines.refusals import (
    HINTS,
    OPTIONAL,
    RETRY_STATUS,
    EmptyReply,
    Rejected,
    Retry,
    is_too_long,
    speaks_of_schema,
    workaround_of,
)
from rrm.engines.replies import parse_reply, retry_after_s
from rrm.errors import ConfigError, EngineError, KeyRefused, SchemaRefused, TooLong
from rrm.loops import run
from rrm.seeds import derive_seed

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from tenacity import RetryCallState

log = logging.getLogger(__name__)
MAX_BACKOFF_S = 20.0
LIST_TIMEOUT_S = 5.0
"""Longest wait for the list of a server's models."""


class OpenAIEngine:
    """A ChatEngine over HTTP.

    Args:
        base_url: e.g. `http://localhost:8000/v1`.
        model: the name the server knows the model by.
        api_key: default OPENAI_API_KEY, or "none" for servers that want no key.
        concurrency: requests in flight at once.
        max_retries: tries after the first.
        timeout_s: seconds a whole request may take (the smaller of this and `params.timeout_s`).
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
    ) -> None:
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            raise EngineError(f"{base_url!r} is not a server's address; write e.g. http://localhost:8000/v1")
        if concurrency < 1 or max_retries < 0:
            raise EngineError(f"concurrency must be ≥ 1 and max_retries ≥ 0, got {concurrency} and {max_retries}")
        key = (api_key or os.environ.get("OPENAI_API_KEY") or "none").strip()
        if not key.isascii() or not key.isprintable():
            raise EngineError("the API key holds characters that cannot be sent in a header; set OPENAI_API_KEY again")
        self.base_url, self.model, self._api_key = base_url, model, key
        self.concurrency, self.max_retries = concurrency, max_retries
        self.timeout_s, self.backoff_s = timeout_s, backoff_s
        self._quirks: frozenset[str] = frozenset()
        """What this server was found not to accept: a parameter's name, `no_logprobs`, `max_completion_tokens`."""
        self.takes_schema: bool | None = None
        """Whether it holds replies to a JSON schema (`SamplingParams.json_schema`); None: not tried yet."""
        self._answered = False
        """Whether it ever accepted the key."""

    @property
    def refuses_temperature(self) -> bool:
        """Whether this server was found to sample at a temperature of its own (reasoning models)."""
        return "temperature" in self._quirks

    @classmethod
    def from_spec(cls, spec: str, **options: Any) -> OpenAIEngine:
        """`openai:BASE_URL#model`, e.g. `openai:http://localhost:8000/v1#agent-rrm`."""
        url, sep, model = spec.removeprefix("openai:").rpartition("#")
        if not spec.startswith("openai:") or not sep or not model:
            raise ConfigError(f"model {spec!r}: write openai:BASE_URL#model, e.g. openai:http://localhost:8000/v1#name")
        return cls(url, model, **options)

    def context_tokens(self) -> int | None:
        """Tokens of the model's context as the server says (`max_model_len` of GET /models, vLLM's); None where it does not."""
        from openai import OpenAI, OpenAIError

        try:
            with OpenAI(base_url=self.base_url, api_key=self._api_key, max_retries=0, timeout=LIST_TIMEOUT_S) as client:
                listed = json.loads(client.models.with_raw_response.list().http_response.content)
            found = [m["max_model_len"] for m in listed["data"] if m["id"] == self.model and "max_model_len" in m]
        except (OpenAIError, ValueError, TypeError, KeyError, RecursionError) as error:
            log.debug("%s does not say how long its context is: %s", self._name(), type(error).__name__)
            return None
        said = found[0] if found else None
        return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        """One reply. Raises `EngineError` when none could be had."""
        reply = self.complete_many([messages], params, [key])[0]
        if isinstance(reply, EngineError):
            raise reply
        return reply

    def complete_many(
        self,
        list_of_messages: Sequence[list[dict[str, str]]],
        params: SamplingParams,
        keys: Sequence[str],
        on_reply: Callable[[int, Reply | EngineError], None] | None = None,
    ) -> list[Reply | EngineError]:
        """A reply, or the error in its place, per row and in the rows' order.

        `on_reply(i, reply)` is called as each row finishes, in whatever order the server answers.

        Raises:
            KeyRefused: the server does not take the key; rows that had not finished by then are not asked.
        """
        if len(keys) != len(list_of_messages):
            raise ValueError(f"{len(list_of_messages)} rows but {len(keys)} keys")
        return run(self._complete_many(list_of_messages, params, keys, on_reply))

    async def _complete_many(
        self,
        rows: Sequence[list[dict[str, str]]],
        params: SamplingParams,
        keys: Sequence[str],
        on_reply: Callable[[int, Reply | EngineError], None] | None,
    ) -> list[Reply | EngineError]:
        from openai import AsyncOpenAI

        slots, refused = asyncio.Semaphore(self.concurrency), list[KeyRefused]()

        async def row(i: int, client: AsyncOpenAI) -> Reply | EngineError:
            async with slots:
                if refused:  # before this row's turn came, and before it was cancelled
                    raise refused[0]
                try:
                    reply: Reply | EngineError = await self._with_retries(client, rows[i], params, keys[i])
                except KeyRefused as error:
                    refused.append(error)
                    raise  # the others would fare no better: leaving cancels them
                except EngineError as error:
                    reply = error
            if on_reply is not None:
                on_reply(i, reply)
            return reply

        # the client belongs to this loop; its own retries are off, they would repeat the seed
        async with AsyncOpenAI(base_url=self.base_url, api_key=self._api_key, max_retries=0) as client:
            return list(await asyncio.gather(*(row(i, client) for i in range(len(rows)))))

    async def _with_retries(
        self, client: AsyncOpenAI, messages: list[dict[str, str]], params: SamplingParams, key: str
    ) -> Reply:
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Retry),
            stop=stop_after_attempt(self.max_retries + 1),
            wait=self._pause,
            reraise=True,
        )
        attempt = 0
        try:
            async for state in retrying:
                with state:
                    # 31 bits: some servers keep seeds in a signed or unsigned 32-bit integer
                    seed = derive_seed(params.seed, key, attempt) % 2**31
                    attempt += 1
                    return await self._ask(client, messages, params, seed)
        except EmptyReply:
            return Reply(text="", stop_reason="eos")
        except Retry as error:
            raise self._error(f"{error.reason} (tried {attempt} times)", error.hint) from error
        raise AssertionError("tenacity either returns or raises")

    def _pause(self, state: RetryCallState) -> float:
        from tenacity import wait_random_exponential

        pause = wait_random_exponential(multiplier=self.backoff_s, max=MAX_BACKOFF_S)(state)
        error = state.outcome.exception() if state.outcome else None
        return max(pause, error.retry_after) if isinstance(error, Retry) else pause

    async def _ask(
        self, client: AsyncOpenAI, messages: list[dict[str, str]], params: SamplingParams, seed: int
    ) -> Reply:
        """One try; a request the server rejects is asked again in the form it accepts, and the form is remembered."""
        quirks = self._quirks
        if params.json_schema is not None and self.takes_schema is False:
            raise SchemaRefused(f"{self._name()} takes no JSON schema")
        while True:
            try:
                reply = await self._post(client, self._body(messages, params, seed, quirks), params)
            except Rejected as rejected:
                if is_too_long(rejected):
                    hint = "say how long its context is with --context, lower --transcript-tokens, or serve it with a longer one"
                    error = self._error(f"HTTP {rejected.status}: {rejected.text}", hint)
                    raise TooLong(str(error)) from rejected
                named = speaks_of_schema(rejected)
                workaround = workaround_of(rejected, params, quirks)
                if params.json_schema is not None and rejected.status in (400, 422) and (named or workaround is None):
                    if named:  # else it may be this one text that is refused
                        self.takes_schema = False
                    text = f"HTTP {rejected.status}: {rejected.text}"
                    raise SchemaRefused(str(self._error(text, "ask without a JSON schema"))) from rejected
                if workaround is None:
                    hint = HINTS.get(rejected.status, HINTS[400])
                    error = self._error(f"HTTP {rejected.status}: {rejected.text}", hint)
                    # a 403 after answers is a filter's objection to one text; a 401 is never about the text
                    if rejected.status == 401 or (rejected.status == 403 and not self._answered):
                        raise KeyRefused(str(error)) from rejected
                    raise error from rejected
                quirks = quirks | {workaround}
                continue
            self._answered = True
            self._remember(quirks)
            return reply

    def _remember(self, quirks: frozenset[str]) -> None:
        for name in sorted(OPTIONAL & (quirks - self._quirks)):
            log.warning("%s refuses %r: it is left to the server from here on", self._name(), name)
        self._quirks |= quirks

    def _body(
        self, messages: list[dict[str, str]], params: SamplingParams, seed: int, quirks: frozenset[str]
    ) -> dict[str, Any]:
        limit = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{name: _encodable(text) for name, text in m.items()} for m in messages],
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": seed,
            limit: params.max_new_tokens,
        }
        if messages[-1]["role"] == "assistant":  # go on from there (vLLM, SGLang), not after an end of turn
            # a template that would open a reasoning block of its own is told not to, as when a judge is trained
            no_thinking = {"chat_template_kwargs": {"enable_thinking": False}}
            body["extra_body"] = {"continue_final_message": True, "add_generation_prompt": False, **no_thinking}
        if params.top_logprobs > 0 and "no_logprobs" not in quirks:
            body |= {"logprobs": True, "top_logprobs": params.top_logprobs}
        if params.json_schema is not None:
            schema = {"name": "judgement", "strict": True, "schema": params.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {name: value for name, value in body.items() if name not in quirks & OPTIONAL}

    async def _post(self, client: AsyncOpenAI, body: dict[str, Any], params: SamplingParams) -> Reply:
        """One HTTP request; every way it can fail becomes `Retry` or `Rejected`."""
        import openai

        limit = min(self.timeout_s, params.timeout_s)
        try:
            # the client's own limit is per read; a server that drips bytes must end as well
            async with asyncio.timeout(limit):
                raw = await client.chat.completions.with_raw_response.create(**body, timeout=limit)
        except (TimeoutError, openai.APITimeoutError) as error:
            raise Retry(
                f"no reply within {limit:g} s",
                "raise the time-out (--timeout) or lower the concurrency (--concurrency)",
            ) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise Retry(f"cannot connect ({cause})", "check that the server runs at this address") from error
        except openai.APIStatusError as error:
            status, text = error.status_code, error.response.text.strip()[:300] or "(no message)"
            if status in RETRY_STATUS or status >= 500:
                hint = HINTS.get(status, "look into the server's log")
                raise Retry(f"HTTP {status}: {text}", hint, retry_after_s(error.response.headers)) from error
            raise Rejected(status, text) from error
        try:
            payload = json.loads(raw.http_response.content)
            reply = parse_reply(payload, params.stop)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            text = raw.http_response.text.strip()[:300]
            raise Retry(f"not a chat completion: {text!r}", "check that the server speaks OpenAI's API") from error
        if not reply.text.strip() and reply.stop_reason != "length":
            raise EmptyReply("empty reply", "look into the server's log")
        return reply

    def _error(self, reason: str, hint: str) -> EngineError:
        text = f"{self._name()}: {reason}; {hint}"
        return EngineError(text.replace(self._api_key, "***") if self._api_key != "none" else text)

    def _name(self) -> str:
        parts = urlsplit(self.base_url)
        host = parts.netloc.rpartition("@")[2]  # a password in the address stays out of messages
        return f"{urlunsplit((parts.scheme, host, parts.path, '', ''))} ({self.model})"


def _encodable(text: str) -> str:
    """The text without lone surrogates, which no JSON request can carry as UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
