"""Request bodies for OpenAI-compatible servers, and parsing of their replies."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from rrm.data.usage import Usage, read_usage
from rrm.engines.base import Reply, Request, SamplingParams, StopReason
from rrm.engines.hidden import Hidden
from rrm.engines.http_errors import OPTIONAL, Retry, most_logprobs
from rrm.engines.server_options import ServerOptions

# longest pause a server's `Retry-After` may ask for; who asks for more has closed for now, and a run stops
MAX_WAIT_S = 900.0
NEVER_S = 1e9  # what any longer pause counts as
MOST_CHARS = 1_000_000  # of a reply; one that is longer counts as cut off here, whatever limit the server was given
# a log-probability may exceed 0 by this; a higher one or NaN is invalid: the reply keeps its text alone
ROUNDING = 1e-3
_JUDGE_TAG = re.compile(r"</?(?:think|critique|score)>")


def retry_after_s(headers: Any, now: float | None = None) -> float:
    """Seconds a server asks to wait (`Retry-After` in seconds or as a date, `retry-after-ms`); else 0."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            wait = float(milliseconds) / 1000
            wait = 0.0 if math.isnan(wait) else wait
        elif value is None:
            return 0.0
        elif re.fullmatch(r"\s*\d+(\.\d*)?\s*", value):
            wait = float(value)
        else:
            wait = parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now)
    except ValueError:
        return 0.0  # a header that cannot be read asks for nothing: the back-off stands
    return min(max(wait, 0.0), NEVER_S)


def body_of(response: Any, hidden: Hidden) -> Any:
    """Parse an HTTP response's JSON; raises `Retry` where it is none."""
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError) as error:
        raise _garbage(response, hidden) from error


def reply_of(parse: Callable[[Any], Reply], payload: Any, response: Any, hidden: Hidden) -> Reply:
    """Parse a payload by `parse`; raises `Retry` where it holds no reply."""
    try:
        return parse(payload)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise _garbage(response, hidden) from error


def _garbage(response: Any, hidden: Hidden) -> Retry:
    return Retry(f"not a chat completion: {hidden.quote(response.text)!r}", "check that the server speaks OpenAI's API")


def parse_reply(payload: dict[str, Any]) -> Reply:
    """Parse a chat completion, cut at `MOST_CHARS`; any error (KeyError, TypeError, …): it is none.

    Separate reasoning becomes a `<think>` block without judge tags. Tokens are those of the text alone.
    """
    choice = payload["choices"][0]
    message = choice["message"]
    text = _content_text(message.get("content"))
    reason: StopReason = "length" if choice.get("finish_reason") == "length" else "eos"
    tokens, top = _logprobs_in(choice.get("logprobs"))
    tokens, top = _of_text(text, tokens, top)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning.strip() and text.strip() and "</think>" not in text:
        text = f"<think>{_JUDGE_TAG.sub('', reasoning).strip()}</think>{text}"
    elif isinstance(reasoning, str) and reasoning.strip() and not text.strip() and reason == "length":
        text = f"<think>{_JUDGE_TAG.sub('', reasoning).strip()}"  # cut before it said anything
    if len(text) > MOST_CHARS:
        count = _tokens_within(tokens, MOST_CHARS)
        text, reason, tokens, top = text[:MOST_CHARS], "length", tokens[:count], top[:count]
    return Reply(text=text, stop_reason=reason, top_logprobs=top or None, tokens=tokens)


def _logprobs_in(logprobs: Any) -> tuple[list[str], list[dict[str, float]]]:
    """(tokens, alternatives of each) of a choice; empty where a log-probability is missing or invalid."""
    tokens, top = list[str](), list[dict[str, float]]()
    items = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    for item in items if isinstance(items, list) else []:
        others = item.get("top_logprobs") if isinstance(item, Mapping) else None
        candidates = [item, *(others if isinstance(others, list) else [])]
        if not all(isinstance(a, Mapping) and isinstance(a.get("token"), str) for a in candidates):
            return [], []
        scored = [a for a in candidates if a is item or a.get("logprob") is not None]
        if not all(_is_logprob(a.get("logprob")) for a in scored):
            return [], []
        alternatives = {a["token"]: float(a["logprob"]) for a in scored[1:]}
        alternatives.setdefault(item["token"], float(item["logprob"]))
        tokens.append(item["token"])
        top.append(alternatives)
    return tokens, top


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= ROUNDING  # NaN is not


def _of_text(text: str, tokens: list[str], top: list[dict[str, float]]) -> tuple[list[str], list[dict[str, float]]]:
    """Tokens of the text, or of its last score if only that is found among them; else none."""
    joined = "".join(tokens)
    if joined == text or not top:
        return tokens, top
    target = text if text and text in joined else text[max(text.rfind("<score>"), 0) :]
    start = joined.rfind(target) if target else -1
    if start < 0:
        return [], []
    first, last = _tokens_within(tokens, start), _tokens_within(tokens, start + len(target))
    first -= len("".join(tokens[:first])) > start  # a token that holds more than the text's beginning
    return tokens[first:last], top[first:last]


def parse_next(payload: dict[str, Any], count: int) -> Reply:
    """Parse a completion of `count` prompts by one token each; raises like `parse_reply`."""
    alternatives: dict[int, dict[str, float]] = {}
    tokens: dict[int, str] = {}
    for choice in payload["choices"]:
        index, logprobs = choice["index"], choice["logprobs"]
        if "content" in logprobs:  # llama.cpp, as of a chat completion
            (item,) = logprobs["content"]
            tokens[index] = str(item["token"])
            alternatives[index] = {str(a["token"]): float(a["logprob"]) for a in item["top_logprobs"]}
        else:
            (top,) = logprobs["top_logprobs"]
            tokens[index] = str(logprobs["tokens"][0])
            alternatives[index] = {str(token): float(logprob) for token, logprob in top.items()}
    if not _are_logprobs(alternatives.values()):
        raise ValueError("log-probabilities that are none")
    if sorted(alternatives) != list(range(count)) or len(payload["choices"]) != count:
        raise ValueError(f"{len(payload['choices'])} completions of {count} prompts")
    order = range(count)
    return Reply(
        "".join(tokens[i] for i in order), "length", [alternatives[i] for i in order], [tokens[i] for i in order]
    )


def _are_logprobs(top: Iterable[Mapping[str, float]]) -> bool:
    return all(value <= ROUNDING for alternatives in top for value in alternatives.values())  # NaN is not


def usage_of(payload: Any) -> Usage:
    """Read a reply's usage; uncounted thinking is counted from its tokens, where they are given."""
    usage = read_usage(payload.get("usage") if isinstance(payload, dict) else None)
    if usage.reasoning_tokens or usage.unreported:
        return usage
    return usage.model_copy(update={"reasoning_tokens": min(_thinking_tokens(payload), usage.completion_tokens)})


def _thinking_tokens(payload: Any) -> int:
    """Tokens up to the end of thinking; all where it does not end, 0 where there is none."""
    try:
        tokens = [str(item["token"]) for item in payload["choices"][0]["logprobs"]["content"]]
    except (TypeError, KeyError, IndexError):
        return 0
    text = "".join(tokens)
    end = text.find("</think>")
    if end < 0:
        return len(tokens) if text.lstrip().startswith("<think>") else 0
    return _tokens_within(tokens, end + len("</think>"))


def _content_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(item["text"] for item in content if item.get("type", "text") == "text")


def _tokens_within(tokens: Sequence[str], length: int) -> int:
    """Count the tokens that cover the first `length` characters."""
    covered = 0
    for count, token in enumerate(tokens):
        if covered >= length:
            return count
        covered += len(token)
    return len(tokens)


@dataclass(frozen=True)
class RequestForm:
    """A request's path and body, and the parser of its reply."""

    path: str
    body: dict[str, Any]
    read: Callable[[Any], Reply]

    def counting(self, messages: list[dict[str, Any]]) -> RequestForm:
        """The same with other messages and room for one token, to read the usage alone."""
        room = {name: 1 for name in ("max_tokens", "max_completion_tokens") if name in self.body}
        return replace(self, body={**self.body, **room, "messages": messages})


def form_of(
    model: str, request: Request, params: SamplingParams, options: ServerOptions, seed: int, quirks: frozenset[str]
) -> RequestForm:
    if request.prompts:
        body = prompts_body(model, request.prompts, params, options, seed)
        parse = partial(parse_next, count=len(request.prompts))
        return RequestForm("/completions", body, parse)
    body = chat_body(model, request.messages, params, options, seed, quirks)
    return RequestForm("/chat/completions", body, parse_reply)


def chat_body(
    model: str,
    messages: Sequence[dict[str, Any]],
    params: SamplingParams,
    options: ServerOptions,
    seed: int,
    quirks: frozenset[str],
) -> dict[str, Any]:
    """Body of /chat/completions; a last message of the assistant is continued."""
    limit = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": [{name: _encodable(content) for name, content in m.items()} for m in messages],
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
    if most := most_logprobs(params, quirks):
        body |= {"logprobs": True, "top_logprobs": most}
    if params.json_schema is not None:
        schema = {"name": "judgement", "strict": True, "schema": params.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {name: value for name, value in body.items() if name not in quirks & OPTIONAL} | more


def prompts_body(
    model: str, prompts: Sequence[Sequence[int]], params: SamplingParams, options: ServerOptions, seed: int
) -> dict[str, Any]:
    """Body of /completions: next tokens of each prompt, by token id where the server gives these (vLLM)."""
    return {
        "model": model,
        "prompt": [list(prompt) for prompt in prompts],
        "max_tokens": 1,
        "temperature": 0.0,
        "seed": seed,
        "logprobs": params.top_logprobs,
        "return_tokens_as_token_ids": True,
        **(options.extra_body or {}),
    }


def _encodable(content: Any) -> Any:
    """Replace lone surrogates in a text or content parts, which JSON in UTF-8 cannot carry."""
    if isinstance(content, list):
        return [{**item, "text": _encodable(item["text"])} if "text" in item else item for item in content]
    return content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
