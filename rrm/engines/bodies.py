"""What an OpenAI-compatible server is sent: a conversation, or prompts as token ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rrm.engines.base import Reply, Request, SamplingParams
from rrm.engines.http_errors import OPTIONAL, most_logprobs
from rrm.engines.replies import parse_next, parse_reply
from rrm.engines.server_options import ServerOptions

if TYPE_CHECKING:
    from openai.resources.chat import AsyncCompletions as AsyncChat
    from openai.resources.completions import AsyncCompletions


@dataclass(frozen=True)
class RequestForm:
    """One request: by which of a client's methods, with which body, and how its reply is read."""

    create: Callable[..., Awaitable[Any]]
    body: dict[str, Any]
    read: Callable[[Any], Reply]

    def counting(self, messages: list[dict[str, Any]]) -> RequestForm:
        """The same with other messages, and room for one token: of its reply the usage alone counts."""
        room = {name: 1 for name in ("max_tokens", "max_completion_tokens") if name in self.body}
        return replace(self, body={**self.body, **room, "messages": messages})


@dataclass(frozen=True)
class Way:
    """The way to one server: for conversations, and for prompts as token ids."""

    chat: AsyncChat
    prompts: AsyncCompletions


def form_of(
    way: Way,
    model: str,
    request: Request,
    params: SamplingParams,
    options: ServerOptions,
    seed: int,
    quirks: frozenset[str],
) -> RequestForm:
    """How a server is asked for what a request wants."""
    if request.prompts:
        body = prompts_body(model, request.prompts, params, options, seed)
        read = partial(parse_next, count=len(request.prompts))
        return RequestForm(way.prompts.with_raw_response.create, body, read)
    body = chat_body(model, request.messages, params, options, seed, quirks)
    return RequestForm(way.chat.with_raw_response.create, body, parse_reply)


def chat_body(
    model: str,
    messages: Sequence[dict[str, Any]],
    params: SamplingParams,
    options: ServerOptions,
    seed: int,
    quirks: frozenset[str],
) -> dict[str, Any]:
    """Of /chat/completions; a last message of the assistant's is gone on with.

    Args:
        quirks: what the server was found not to accept.
    """
    limit = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": [{name: _encodable(said) for name, said in m.items()} for m in messages],
        "temperature": params.temperature,
        **({} if params.top_p == 1.0 else {"top_p": params.top_p}),
        "seed": seed,
        limit: params.max_new_tokens + (options.thinking_tokens or 0),
    }
    if options.reasoning_effort is not None:
        body["reasoning_effort"] = options.reasoning_effort
    more = {name: value for name, value in (options.extra_body or {}).items() if name not in quirks & OPTIONAL}
    if messages[-1]["role"] == "assistant":  # go on from there (vLLM, SGLang), not after an end of turn
        # a template that would open a reasoning block of its own is told not to, as when a judge is trained
        template = {"enable_thinking": False} | (more.get("chat_template_kwargs") or {})
        more |= {"continue_final_message": True, "add_generation_prompt": False, "chat_template_kwargs": template}
    if more:
        body["extra_body"] = more
    if most := most_logprobs(params, quirks):
        body |= {"logprobs": True, "top_logprobs": most}
    if params.json_schema is not None:
        schema = {"name": "judgement", "strict": True, "schema": params.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {name: value for name, value in body.items() if name not in quirks & OPTIONAL}


def prompts_body(
    model: str, prompts: Sequence[Sequence[int]], params: SamplingParams, options: ServerOptions, seed: int
) -> dict[str, Any]:
    """Of /completions: what may come next after each prompt, by token id where the server says these (vLLM), else by text."""
    return {
        "model": model,
        "prompt": [list(prompt) for prompt in prompts],
        "max_tokens": 1,
        "temperature": 0.0,
        "seed": seed,
        "logprobs": params.top_logprobs,
        "extra_body": {"return_tokens_as_token_ids": True, **(options.extra_body or {})},
    }


def _encodable(said: Any) -> Any:
    """A text, or the texts of content parts, without lone surrogates, which no JSON request can carry as UTF-8."""
    if isinstance(said, list):
        return [{**part, "text": _encodable(part["text"])} if "text" in part else part for part in said]
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
