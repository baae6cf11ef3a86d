"""Errors of OpenAI-compatible servers: which to try again, to ask in another form, or to give up."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from rrm.engines.base import SamplingParams
from rrm.engines.hidden import Hidden

log = logging.getLogger(__name__)
RETRY_STATUS = frozenset({408, 409, 429})  # besides every 5xx
# parameters a server may refuse (reasoning models take no temperature): then left out
OPTIONAL = frozenset({"temperature", "top_p", "seed"})
_OPTIONAL = re.compile(rf"\b(?:{'|'.join(sorted(OPTIONAL))})\b")
_LOGPROBS = re.compile(r"\b(?:top_)?logprobs\b")
# messages of a server that gives no log-probabilities at all, rather than fewer
_NO_RIGHT = re.compile(
    r"not (?:allowed|supported|available)|unsupported|unknown|unrecognized|does(?: not|n't) support", re.IGNORECASE
)
# messages of a proxy that takes one of two parameters (Anthropic: `temperature` and `top_p`)
_PAIR = re.compile(r"\bboth\b|\bonly one\b|\btogether\b|mutually exclusive|\bone of\b", re.IGNORECASE)
FEWER_LOGPROBS = (20, 5)  # limits of alternatives a token: OpenAI 20 (API reference), vLLM `--max-logprobs`, others 5
GUESSES = 3  # refusals in a row that did not name log-probabilities and passed without them, before they are given up
NO_LOGPROBS = "no_logprobs"
# messages of vLLM, TGI, llama.cpp, OpenAI, Anthropic, Gemini: the prompt does not fit the context
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(?:maximum|max|model'?s) context (?:length|size|window)|exceeds? the (?:\w+ )?context (?:length|size|window)"
    r"|(?:prompt|input|request) is too (?:long|large)|longer than the maximum model length"
    r"|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be <=)"
    r"|input token count\b.{0,40}\bexceeds the maximum number|input tokens exceed the configured limit",
    re.IGNORECASE,
)
# the context length in such a message
_NAMED = re.compile(
    r"(?:context (?:length|size|window)|maximum model length|\bn_ctx\b|configured limit|must be <=|must have less than"
    r"|tokens >|maximum number of tokens allowed)(?: is| of|\W)*(\d{1,3}(?:,\d{3})+|\d+)",
    re.IGNORECASE,
)
_SCHEMA = re.compile(r"response_format|json_?schema|guided_?\w*|grammar|structured[ _-]?outputs?", re.IGNORECASE)
_TOO_LARGE = 413
FOR_ALL = frozenset({401, *range(300, 400)})  # statuses that are never about one text: of a key, and of redirects
HINTS = {
    200: "check that the server speaks OpenAI's API",
    **dict.fromkeys(range(300, 400), "if that is right, name that address as the model's"),
    400: "read the server's message; where it speaks of the context length, give that as --context",
    402: "top up the account",
    401: "set OPENAI_API_KEY to a key this server accepts",
    403: "set OPENAI_API_KEY to a key that may use this model",
    404: "check the base URL (it usually ends in /v1) and the model's name",
    429: "lower the concurrency, or wait for the rate limit",
}


class Rejected(Exception):
    """A status that trying again does not change."""

    unconnected = False

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(status, text)


class Retry(Exception):
    """A failure worth another try.

    Args:
        hint: advice once the tries are used up.
        retry_after: seconds, as the server asks.
        throttled: too many requests; the server works.
    """

    status = 0  # of HTTP; 0: none came
    empty = False  # a reply came, without text: in the end it is handed back (status `unparsable`)

    def __init__(
        self, reason: str, hint: str, retry_after: float = 0.0, *, throttled: bool = False, unconnected: bool = False
    ) -> None:
        self.reason, self.hint, self.retry_after = reason, hint, retry_after
        self.throttled, self.unconnected = throttled, unconnected
        super().__init__(reason)


def failure(status: int, text: str, wait: float = 0.0) -> Retry | Rejected:
    """Make the error of a status ≥ 400; `wait`: seconds the server asks for."""
    if (status in RETRY_STATUS or status >= 500) and not no_money(status, text):
        again = Retry(f"HTTP {status}: {text}", HINTS.get(status, "look into the server's log"), wait)
        again.throttled, again.status = status == 429, status
        return again
    return Rejected(status, text)


def error_in(payload: Any, hidden: Hidden) -> tuple[int, str] | None:
    """(status, message) of an error in a 200 (openrouter.ai/docs/api-reference/errors); default 500."""
    if not isinstance(payload, Mapping):
        return None
    choices = payload.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    of_choice = first if isinstance(first, Mapping) else {}
    error = payload.get("error") or of_choice.get("error")
    if not error and of_choice.get("finish_reason") != "error":
        return None
    details: Mapping[str, Any] = error if isinstance(error, Mapping) else {"message": error}
    code = str(details.get("code") or details.get("status") or "")
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else 429 if "rate_limit" in code or "quota" in code else 500
    return status, hidden.quote(str(details.get("message") or "the reply ended in an error")) + (
        f" ({hidden.quote(code)})" if code and not code.isdigit() else ""
    )


class Quirks:
    """Forms that a server refused: a parameter, `no_logprobs`, `top_logprobs=5`, …"""

    def __init__(self) -> None:
        self.known: frozenset[str] = frozenset()
        self._guesses = 0  # replies in a row without log-probabilities, after a refusal that did not name them

    def learn(self, quirks: frozenset[str], guessed: bool, server: str) -> None:
        """Remember a form that was answered; `guessed`: the refusal did not name log-probabilities."""
        self._guesses = self._guesses + 1 if guessed else 0
        new = quirks - self.known - ({NO_LOGPROBS} if guessed and self._guesses < GUESSES else set())
        for name in sorted(OPTIONAL & new):
            log.warning("%s refuses %r: it is left to the server from here on", server, name)
        if NO_LOGPROBS in new:
            log.warning("%s gives no log-probabilities: scores are the numbers it writes, no expectations", server)
        self.known |= new


def workaround_of(rejected: Rejected, params: SamplingParams, quirks: frozenset[str]) -> str | None:
    """Choose what to change before asking again: what the message names, else log-probabilities.

    Of two exclusive parameters temperature stays: a judge's scores depend on it.
    """
    most = most_logprobs(params, quirks)
    names_logprobs = _LOGPROBS.search(rejected.text) is not None
    if rejected.status == 403 and most and names_logprobs:
        return NO_LOGPROBS  # the key is taken, this is not: asked again without, which a bad key does not survive
    if rejected.status not in (400, 422):
        return None
    if "max_completion_tokens" in rejected.text and "max_completion_tokens" not in quirks:
        return "max_completion_tokens"
    named = [m.group() for m in _OPTIONAL.finditer(rejected.text) if m.group() not in quirks]
    if _PAIR.search(rejected.text):
        named.sort(key=lambda name: name == "temperature")
    if named:  # the first one: a server may go on to quote the whole request
        return named[0]
    return fewer_logprobs(rejected.text, most) if most else None


def most_logprobs(params: SamplingParams, quirks: frozenset[str]) -> int:
    """Alternatives a token to ask for, given the server's quirks; 0: none."""
    if NO_LOGPROBS in quirks:
        return 0
    allowed = [int(name.partition("=")[2]) for name in quirks if name.startswith("top_logprobs=")]
    return min([params.top_logprobs, *allowed])


def fewer_logprobs(text: str, most: int) -> str:
    """Quirk after a refusal of `most` alternatives: as many as the message allows, else fewer, else none."""
    if _LOGPROBS.search(text) and not _NO_RIGHT.search(text):
        numbers = [int(number) for number in re.findall(r"(?<![\w.])\d{1,3}(?![\w.])", text)]
        fewer = [number for number in (*numbers, *FEWER_LOGPROBS) if 0 < number < most]
        if fewer:
            return f"top_logprobs={max(fewer)}"
    return NO_LOGPROBS


def is_too_long(rejected: Rejected) -> bool:
    return rejected.status == _TOO_LARGE or (
        rejected.status in (400, 422) and _CONTEXT.search(rejected.text) is not None
    )


def context_of(rejected: Rejected) -> int | None:
    """Context tokens named in the refusal of a prompt; None where it names none."""
    named = None if rejected.status == _TOO_LARGE else _NAMED.search(rejected.text)
    return int(named[1].replace(",", "")) if named else None


def way_out_of(rejected: Rejected, known_context: int | None) -> str:
    """Advice for a prompt that is too long; `known_context`: tokens that windows were made for."""
    if rejected.status == _TOO_LARGE:
        return "lower --transcript-tokens, or have the server (or a proxy before it) take longer requests"
    context, less = context_of(rejected), "lower --transcript-tokens, or serve the model with a longer context"
    if context is None:
        return f"say how long its context is with --context; where that is said already, {less}"
    if known_context is not None and known_context <= context:
        return f"its context of {context} tokens is known, but this text has more tokens than its length tells: {less}"
    return f"say --context {context}; where that is said already, {less}"


def speaks_of_schema(rejected: Rejected) -> bool:
    return _SCHEMA.search(rejected.text) is not None


def no_money(status: int, text: str) -> bool:
    """Tell whether the account has no money or quota left, which no wait changes."""
    return status == 402 or (status == 429 and "insufficient_quota" in text)
