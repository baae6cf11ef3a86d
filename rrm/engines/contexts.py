"""Reads a server's context length, and checks that the server read all that it was sent.

| server | where it says so | its reference |
|---|---|---|
| vLLM | `max_model_len` of GET /v1/models | docs.vllm.ai/en/latest/serving/openai_compatible_server |
| OpenRouter, Together | `context_length` of the same | openrouter.ai/docs/api-reference/list-available-models |
| Mistral | `max_context_length` of the same | docs.mistral.ai/api (models) |
| llama.cpp | `n_ctx`, in `meta` of the same or in `default_generation_settings` of GET /props | tools/server/README.md of llama.cpp |
| LM Studio | `loaded_context_length`, else `max_context_length`, of GET /api/v0/models | lmstudio.ai/docs/app/api/endpoints/rest |
| Ollama | `num_ctx` among the `parameters` of POST /api/show, else it reads `OLLAMA_DEFAULT`, or `*.context_length` of its `model_info` where that is less | docs/api.md, docs/faq.md of Ollama |
"""

from __future__ import annotations

import json
import logging
import math
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rrm.data.usage import Usage
from rrm.engines.http import Answer, NoAnswer, UnreadableAnswer

log = logging.getLogger(__name__)

OLLAMA_DEFAULT = 4096  # tokens Ollama reads by default (docs/faq.md); it silently cuts longer prompts
NOT_THERE = 404  # statuses of an unknown path; another path may still give the length
CUT = 0.7  # a server that counts less than this share of the fewest possible tokens may have cut the prompt
SPARSER = 1.5  # or one whose new highest count has so many times as many characters a token
LEAST = 1500  # tokens from which prompts are checked: no context is shorter, and short texts are estimated roughly
MORE = 64  # numbers put before a prompt to see whether the server counts them: one token each, or more
_BLANK = re.compile(r"\s+")
_RUN = re.compile(r"(.)\1{3,}")


async def read_context(ask: Callable[..., Awaitable[Answer]], base: str, model: str) -> int | None:
    """Ask a server for the tokens of a model's context (see the table); None where it does not say."""

    def listed(reply: Any) -> Any:
        return in_list(reply["data"], model)

    root = base.removesuffix("/v1")
    ways = (
        ("GET", f"{base}/models", None, listed),
        ("GET", f"{root}/props", None, lambda reply: reply["default_generation_settings"]["n_ctx"]),
        ("POST", f"{root}/api/show", {"model": model}, _of_ollama),
        ("GET", f"{root}/api/v0/models", None, listed),
    )
    for method, url, body, find in ways:
        try:
            answer = await ask(method, url, json=body)
            if answer.status not in (200, NOT_THERE):  # it is not asked on
                raise UnreadableAnswer(f"HTTP {answer.status}", answer.status)
            tokens = find(json.loads(answer.body))
        except (NoAnswer, UnreadableAnswer) as error:
            log.debug("%s does not say how long its context is: %s", root, error)
            return None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # it says something else there
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
            return tokens
    return None


def in_list(models: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Get a model's entry in a list of models; of an adapter the entry of its base model (vLLM)."""
    by_id = {m["id"]: m for m in models}
    named = by_id.get(name, {})
    for entry in (named, by_id.get(named.get("parent"), {})):
        for key in ("max_model_len", "loaded_context_length", "context_length", "max_context_length"):
            if entry.get(key):
                return entry[key]
    return (named.get("meta") or {}).get("n_ctx")


def _of_ollama(payload: Any) -> Any:
    match = re.search(r"^num_ctx\s+(\d{1,9})\s*$", str(payload.get("parameters") or ""), re.MULTILINE)
    if match is not None:
        return int(match[1])
    trained = [v for k, v in payload["model_info"].items() if k.endswith(".context_length") and isinstance(v, int)]
    return min([OLLAMA_DEFAULT, *trained])


def most_used(body: Mapping[str, Any]) -> Usage:
    """Estimate the most tokens a request without a reply can have used: 4 characters a token, full reply."""
    sent = (
        sum(len(p) for p in body.get("prompt", ()))
        or len(json.dumps(body.get("messages", ()), ensure_ascii=False)) // 4
    )
    written = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    return Usage(prompt_tokens=sent, completion_tokens=written)


class Counts:
    """Token counts of one server, to find prompts that it cut: a suspect is tested by a longer prompt."""

    def __init__(self) -> None:
        self._at: int | None = None  # tokens at which it cuts
        self._whole = set[int]()  # counts of prompts that were tested and not cut
        self._most, self._most_sent = 0, 0  # the highest count, and the characters of that prompt
        self._fewest = math.inf  # characters a token of the densest prompt that was not cut

    async def is_cut(
        self,
        messages: Sequence[Mapping[str, Any]],
        tokens: int,
        context: int | None,
        ask: Callable[[list[dict[str, Any]]], Awaitable[int]],
    ) -> bool:
        """Tell whether the server silently cut a prompt: it counts no more tokens of a longer one.

        Args:
            tokens: the server's count; 0: unknown.
            ask: sends other messages; returns the server's count, 0 where it refuses them.
        """
        sent = len(_text_of(messages))
        if not tokens or tokens in self._whole or not self._is_suspect(messages, sent, tokens, context):
            cut = False
        elif tokens == self._at:
            cut = True
        else:
            counted = await ask(_longer(messages))
            cut = 0 < counted < tokens + MORE // 2
            if counted and not cut:
                self._whole.add(tokens)
        if cut:
            self._at = tokens
        elif tokens >= LEAST:
            self._fewest = min(self._fewest, sent / tokens)
        if tokens > self._most:
            self._most, self._most_sent = tokens, sent
        return cut

    def _is_suspect(self, messages: Sequence[Mapping[str, Any]], sent: int, tokens: int, context: int | None) -> bool:
        least = least_tokens(messages)
        if max(least, tokens) < LEAST:
            return False
        few = tokens < CUT * least
        full = (context is not None and tokens >= context) or not tokens % 1000 or not tokens % 1024
        same = tokens == self._most and sent != self._most_sent
        return few or full or same or (tokens > self._most and sent / tokens > SPARSER * self._fewest)


def least_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Estimate a lower bound of tokens: blanks, runs of one character and repetitions count little."""
    text = _RUN.sub(r"\1", _BLANK.sub(" ", _text_of(messages)))
    return min(len(text) // 4, len(zlib.compress(text.encode(errors="replace"))) // 2)


def _text_of(messages: Sequence[Mapping[str, Any]]) -> str:
    contents = [m["content"] for m in messages]
    parts = [item for c in contents for item in ([{"text": c}] if isinstance(c, str) else c)]
    return "\n".join(item.get("text", "") for item in parts)


def _longer(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put `MORE` numbers before the messages: in front, since a server may not count a cached beginning."""
    more, (first, *others) = " ".join(str(n) for n in range(MORE)) + "\n", messages
    content = first["content"]
    longer = more + content if isinstance(content, str) else [{"type": "text", "text": more}, *content]
    return [{**first, "content": longer}, *map(dict, others)]
