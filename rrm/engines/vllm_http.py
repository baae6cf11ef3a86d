"""One vLLM server over HTTP: request bodies and checked replies for token ids (vLLM 0.32).

Every reply is checked (ids, model, numbers, vocabulary): a policy would learn nonsense from a wrong one unnoticed.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

from rrm.engines.base import Completion, SamplingParams, StopReason
from rrm.engines.hidden import Hidden
from rrm.engines.http import UnreadableAnswer, client, send
from rrm.engines.http_errors import Rejected, Retry
from rrm.engines.server_options import ServerOptions, filled, is_address, public
from rrm.errors import ConfigError, EngineError

LOWEST = -9998.0  # vLLM writes −9999 for a log-probability of −∞, which no sampled token has
SLACK = 1e-3  # what a log-probability may lie above 0, by rounding
# sent with every request: defaults would come from generation_config.json and change the probabilities
NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


def sampling_body(
    model: str, ids: Sequence[int], params: SamplingParams, limit: int, seed: int, eos_ids: Collection[int]
) -> dict[str, Any]:
    """Body for one completion. Stop texts are matched with special tokens included, as in `hf`."""
    return {
        **NEUTRAL,
        "model": model,
        "prompt": list(ids),
        "max_tokens": limit,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "seed": seed,
        "logprobs": 0,  # the sampled token's
        "return_token_ids": True,
        "add_special_tokens": False,
        "stop": list(params.stop),
        "include_stop_str_in_output": True,
        "stop_token_ids": sorted(eos_ids),
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
    }


def scoring_body(model: str, ids: Sequence[int], tokens: Sequence[int]) -> dict[str, Any]:
    """Body for log-probabilities of tokens after `ids`.

    Not `prompt_logprobs`: with `--enable-lora` on a CPU it ends vLLM 0.32's engine.
    """
    return _next_token(model, ids, tokens)


def choosing_body(model: str, ids: Sequence[int], choices: Sequence[int]) -> dict[str, Any]:
    """Body for log-probabilities of tokens that alone may come next."""
    return _next_token(model, ids, choices) | {"allowed_token_ids": list(choices)}


def looking_body(model: str, ids: Sequence[int], temperature: float) -> dict[str, Any]:
    return {
        **NEUTRAL,
        "model": model,
        "prompt": list(ids),
        "max_tokens": 1,
        "temperature": temperature,
        "top_p": 1.0,
        "logprobs": 5,
    }


def _next_token(model: str, ids: Sequence[int], tokens: Sequence[int]) -> dict[str, Any]:
    return {
        **NEUTRAL,
        "model": model,
        "prompt": list(ids),
        "max_tokens": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "logprobs": len(tokens),
        "logprob_token_ids": list(tokens),
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
        "add_special_tokens": False,
    }


def choice_of(payload: Any, model: str, ids: Sequence[int]) -> Mapping[str, Any]:
    """The reply's only choice; UnreadableAnswer unless it is of this model to these ids."""
    if not isinstance(payload, dict) or not isinstance(payload.get("choices"), list) or len(payload["choices"]) != 1:
        raise UnreadableAnswer("it is no completion with one choice")
    if payload.get("model") != model:
        raise UnreadableAnswer(f"it answers as {payload.get('model')!r:.80}, and {model!r} was asked")
    choice = payload["choices"][0]
    if not isinstance(choice, dict):
        raise UnreadableAnswer("its choice is no object")
    if choice.get("prompt_token_ids") != list(ids):
        raise UnreadableAnswer(
            "its `prompt_token_ids` are not the ids that were sent (a server older than vLLM 0.11 gives none)"
        )
    return choice


def completion_of(
    payload: Any,
    model: str,
    ids: Sequence[int],
    limit: int,
    eos_ids: Collection[int],
    vocabulary: int | None,
    context: int | None = None,
) -> Completion:
    """Parse a reply to `sampling_body`; `context`: the servers', in tokens, where known.

    Raises:
        UnreadableAnswer: it cannot be one.
        Retry: the server gave the row up.
    """
    choice = choice_of(payload, model, ids)
    if choice.get("finish_reason") == "abort":  # it was told to end: what it has sampled by then is no turn
        raise Retry("it gave a row up (`abort`)", "look into the server's log")
    sampled = choice.get("token_ids")
    if not isinstance(sampled, list) or not 1 <= len(sampled) <= limit:
        raise UnreadableAnswer(f"it has no 1 to {limit} `token_ids`")
    for token in sampled:
        if not isinstance(token, int) or isinstance(token, bool) or token < 0 or token >= (vocabulary or math.inf):
            raise UnreadableAnswer(f"{token!r:.40} is no token id of this vocabulary ({vocabulary})")
    details = choice.get("logprobs")
    logprobs = details.get("token_logprobs") if isinstance(details, dict) else None
    if not isinstance(logprobs, list) or len(logprobs) != len(sampled):
        raise UnreadableAnswer(f"it has no log-probability for each of its {len(sampled)} tokens")
    reason = _stop_reason(choice, sampled, eos_ids)
    if reason == "length" and len(sampled) < limit and context is not None and len(ids) + len(sampled) < context:
        raise UnreadableAnswer(
            f"it was cut at {len(sampled)} of {limit} tokens (max_new_tokens of the model's generation_config.json? start the "
            "server with --generation-config vllm)"
        )
    return Completion(sampled, [logprob_of(value) for value in logprobs], reason)


def _stop_reason(choice: Mapping[str, Any], sampled: Sequence[int], eos_ids: Collection[int]) -> StopReason:
    reason = choice.get("finish_reason")
    if reason == "length":
        return "length"
    if reason != "stop":
        raise UnreadableAnswer(f"it ended by {reason!r:.40}")
    return "eos" if sampled[-1] in eos_ids else "stop"


def logprob_of(value: Any) -> float:
    """Check a log-probability; UnreadableAnswer where no sampled token can have it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not LOWEST < value <= SLACK:
        raise UnreadableAnswer(f"{value!r:.40} is no log-probability of a sampled token")
    return float(value)


def next_logprobs_of(payload: Any, model: str, ids: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """log p(token | ids) of each token, of a reply to `scoring_body` or `choosing_body`; −9999: −inf."""
    details = choice_of(payload, model, ids).get("logprobs")
    top = details.get("top_logprobs") if isinstance(details, dict) else None
    if not isinstance(top, list) or len(top) != 1 or not isinstance(top[0], dict):
        raise UnreadableAnswer("it has no `top_logprobs` for one token")
    return [_any_logprob(top[0].get(f"token_id:{token}")) for token in tokens]


def normalised(logprobs: Sequence[float]) -> list[float]:
    """Scale so that probabilities sum to 1; UnreadableAnswer where all are 0."""
    highest = max(logprobs)
    if highest == -math.inf:
        raise UnreadableAnswer("it gives none of the choices a probability")
    total = highest + math.log(sum(math.exp(value - highest) for value in logprobs))
    return [value - total for value in logprobs]


def _any_logprob(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value > SLACK:
        raise UnreadableAnswer(f"{value!r:.40} is no log-probability")
    return -math.inf if value <= LOWEST else float(value)


PREFIX = "vllm:"
CONNECT_S = 10.0  # longest wait for a connection: a machine that was switched off does not even refuse one
KEY = "VLLM_API_KEY"  # vLLM's own variable; OPENAI_API_KEY is a judge's


@dataclass(eq=False)
class Server:
    """One address and its state."""

    url: str  # without `/v1` and without a password, as in messages
    client: httpx2.AsyncClient
    headers: dict[str, str]
    timeout_s: float
    connect_s: float
    hidden: Hidden
    rows: int = 0  # running rows whose prefixes it holds
    strikes: int = 0  # failures since it answered last
    down_until: float = 0.0  # not asked till then (by the clock of `Servers`); 0: it is up
    down_s: float = 0.0  # its last pause
    probed: bool = False  # a row asks it after the pause, on behalf of all
    said: bool = False  # its failure is in the log
    loads: int = 0  # how often it was given weights that it did not know
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(
        self, path: str, body: dict[str, Any] | None = None, *, as_text: bool = False, root: bool = False
    ) -> Any:
        """Send one HTTP request, GET without a body; `root`: below the address itself, not `/v1`.

        Raises:
            Retry, Rejected: it may pass, or not.
            UnreadableAnswer: a body that is no JSON (unless `as_text`).
        """
        url, method = f"{self.url}{'' if root else '/v1'}{path}", "GET" if body is None else "POST"
        how = {"limit_s": self.timeout_s, "connect_s": self.connect_s, "headers": self.headers, "json": body}
        try:
            answer = await send(
                self.client, method, url, hidden=self.hidden, late="raise the time-out, or look into its log", **how
            )
            return None if as_text else json.loads(answer.body)
        except UnreadableAnswer:
            raise
        except (ValueError, RecursionError) as error:
            raise UnreadableAnswer(f"it is no JSON ({error})") from error

    def error(self, reason: str, hint: str) -> EngineError:
        return EngineError(self.hidden.hide(f"vLLM at {self.url}: {reason}; {hint}"))

    def refusal(self, refused: Rejected) -> EngineError:
        key = refused.status in (401, 403)
        hint = f"set {KEY} to the key that the server asks for" if key else "read the server's log"
        return self.error(f"HTTP {refused.status}: {refused.text}", hint)


def servers_at(urls: Sequence[str], connections: int, timeout_s: float) -> list[Server]:
    """Servers sharing one connection pool; passwords go in headers, since addresses are logged."""
    http, key = client(connections), (os.environ.get(KEY) or "none").strip()
    servers: list[Server] = []
    for url in urls:
        headers = {"Authorization": f"Bearer {key}", **ServerOptions().headers_to(url)}
        hidden = Hidden({*ServerOptions().secrets([url]), *([] if key == "none" else [key])})
        servers.append(Server(public(url), http, headers, timeout_s, min(CONNECT_S, timeout_s), hidden))
    return servers


def servers_of(spec: str) -> tuple[list[str], str | None]:
    """(addresses without `/v1`, model or None) of `vllm:URL[,URL…][#model]`; ConfigError otherwise."""
    addresses, _, model = spec.removeprefix(PREFIX).partition("#")
    urls = [filled(url, public(spec), in_url=True) for url in addresses.split(",") if url.strip()]
    urls = [url.strip().rstrip("/").removesuffix("/v1") for url in urls]
    wrong = [url for url in urls if not is_address(url) or urlsplit(url).query]
    if not spec.startswith(PREFIX) or not urls or wrong:
        address = public(spec)
        if "@" in address:  # a password with a mark in it that ends an address
            address = "the address"
        problem = "names no address; " if spec.startswith(PREFIX) and not urls else ""
        raise ConfigError(
            f"{address!r:.120}: {problem}write vllm:URL#model, e.g. vllm:http://localhost:8000#base; several servers with commas between "
            "their addresses; /, #, comma and ? of a password as %2F, %23, %2C and %3F"
        )
    return list(dict.fromkeys(urls)), model or None
