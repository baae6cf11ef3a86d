"""How an OpenAI-compatible server says no: what another try may change, what another form of the request, and what nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from rrm.engines.base import SamplingParams
from rrm.engines.hidden import Hidden

log = logging.getLogger(__name__)
RETRY_STATUS = frozenset({408, 409, 429})
"""Besides every 5xx."""
OPTIONAL = frozenset({"temperature", "top_p", "seed"})
"""Parameters a server may refuse (reasoning models take no temperature): a request goes without what its refusal names."""
_OPTIONAL = re.compile(rf"\b(?:{'|'.join(sorted(OPTIONAL))})\b")
_LOGPROBS = re.compile(r"\b(?:top_)?logprobs\b")
_NO_RIGHT = re.compile(
    r"not (?:allowed|supported|available)|unsupported|unknown|unrecognized|does(?: not|n't) support", re.IGNORECASE
)
"""How a server says that it gives no log-probabilities at all, rather than fewer."""
_PAIR = re.compile(r"\bboth\b|\bonly one\b|\btogether\b|mutually exclusive|\bone of\b", re.IGNORECASE)
"""How a proxy says that it takes one of two parameters (Anthropic behind one: `temperature` and `top_p` cannot both be specified)."""
FEWER_LOGPROBS = (20, 5)
"""Alternatives a token that servers allow at most: OpenAI's API 20 (platform.openai.com/docs/api-reference/chat/create), vLLM as
`--max-logprobs` says, others 5."""
GUESSES = 3
"""Refusals in a row that did not name log-probabilities and went away without them, before they are no more asked for."""
NO_LOGPROBS = "no_logprobs"
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(?:maximum|max|model'?s) context (?:length|size|window)|exceeds? the (?:\w+ )?context (?:length|size|window)"
    r"|(?:prompt|input|request) is too (?:long|large)|longer than the maximum model length"
    r"|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be <=)"
    r"|input token count\b.{0,40}\bexceeds the maximum number|input tokens exceed the configured limit",
    re.IGNORECASE,
)
"""How servers (vLLM, TGI, llama.cpp, OpenAI, Anthropic, Gemini) say that a prompt does not fit their context."""
_NAMED = re.compile(
    r"(?:context (?:length|size|window)|maximum model length|\bn_ctx\b|configured limit|must be <=|must have less than"
    r"|tokens >|maximum number of tokens allowed)(?: is| of|\W)*(\d{1,3}(?:,\d{3})+|\d+)",
    re.IGNORECASE,
)
"""Where they then say how long it is."""
_SCHEMA = re.compile(r"response_format|json_?schema|guided_?\w*|grammar|structured[ _-]?outputs?", re.IGNORECASE)
_TOO_LARGE = 413
FOR_ALL = frozenset({401, *range(300, 400)})
"""Statuses that are never about one text: of a key, and of redirects."""
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


class CutPrompt(Exception):
    """A server answered to a part of what it was sent, which trying again does not change."""

    def __init__(self, tokens: int) -> None:
        super().__init__(
            f"it read {tokens:,} tokens of the prompt, of a longer one no more, and cut the rest away in silence"
        )


class Retry(Exception):
    """A failure worth another try.

    Args:
        hint: what to do once the tries are used up.
        retry_after: seconds, as the server asks.
        throttled: it is asked too much at once, and works.
        unconnected: nobody answers there.
    """

    status = 0
    """Of HTTP; 0: none came."""

    def __init__(
        self, reason: str, hint: str, retry_after: float = 0.0, *, throttled: bool = False, unconnected: bool = False
    ) -> None:
        self.reason, self.hint, self.retry_after = reason, hint, retry_after
        self.throttled, self.unconnected = throttled, unconnected
        super().__init__(reason)


def failure(status: int, text: str, wait: float = 0.0) -> Retry | Rejected:
    """What a status of 400 or more is: worth another try, or not.

    Args:
        wait: seconds the server asks for.
    """
    if (status in RETRY_STATUS or status >= 500) and not no_money(status, text):
        again = Retry(f"HTTP {status}: {text}", HINTS.get(status, "look into the server's log"), wait)
        again.throttled, again.status = status == 429, status
        return again
    return Rejected(status, text)


def error_in(payload: Any, hidden: Hidden) -> tuple[int, str] | None:
    """(status, message) of an error that a provider puts into a 200, at the top or in a choice (openrouter.ai/docs/api-reference/errors); None
    where there is none. One without a status counts as a server's error, 500."""
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


class EmptyReply(Retry):
    """The server answered with no text: tried again, and in the end handed back as it is (status `unparsable`)."""


class Quirks:
    """What a server was found not to accept: a parameter's name, `no_logprobs`, `top_logprobs=5`, `max_completion_tokens`."""

    def __init__(self) -> None:
        self.known: frozenset[str] = frozenset()
        self._guesses = 0
        """Replies in a row that came without log-probabilities, after a refusal that did not name them."""

    def learn(self, quirks: frozenset[str], guessed: bool, server: str) -> None:
        """Remember the form in which a request was answered, and warn of what is missing from it.

        Args:
            guessed: log-probabilities were left out though the refusal did not name them: it may have been this one text.
            server: its name, for messages.
        """
        self._guesses = self._guesses + 1 if guessed else 0
        new = quirks - self.known - ({NO_LOGPROBS} if guessed and self._guesses < GUESSES else set())
        for name in sorted(OPTIONAL & new):
            log.warning("%s refuses %r: it is left to the server from here on", server, name)
        if NO_LOGPROBS in new:
            log.warning("%s gives no log-probabilities: scores are the numbers it writes, no expectations", server)
        self.known |= new


def workaround_of(rejected: Rejected, params: SamplingParams, quirks: frozenset[str]) -> str | None:
    """What to leave out or say otherwise before asking again: what the server's message names, else log-probabilities.

    Of two parameters of which it takes one, temperature stays: at another one a judge's scores are others."""
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
    """Alternatives a token to ask for, of a server of which this is known; 0: none."""
    if NO_LOGPROBS in quirks:
        return 0
    allowed = [int(name.partition("=")[2]) for name in quirks if name.startswith("top_logprobs=")]
    return min([params.top_logprobs, *allowed])


def fewer_logprobs(text: str, most: int) -> str:
    """The next try after a refusal of `most` alternatives: as many as the server's message allows, else fewer, else none."""
    if _LOGPROBS.search(text) and not _NO_RIGHT.search(text):
        numbers = [int(number) for number in re.findall(r"(?<![\w.])\d{1,3}(?![\w.])", text)]
        fewer = [number for number in (*numbers, *FEWER_LOGPROBS) if 0 < number < most]
        if fewer:
            return f"top_logprobs={max(fewer)}"
    return NO_LOGPROBS


def is_too_long(rejected: Rejected) -> bool:
    """Whether the server could not take a prompt of this length."""
    return rejected.status == _TOO_LARGE or (
        rejected.status in (400, 422) and _CONTEXT.search(rejected.text) is not None
    )


def context_of(rejected: Rejected) -> int | None:
    """Tokens that the refusal of a prompt names as the server's context; None where it names none."""
    named = None if rejected.status == _TOO_LARGE else _NAMED.search(rejected.text)
    return int(named[1].replace(",", "")) if named else None


def way_out_of(rejected: Rejected, known_context: int | None) -> str:
    """What to do about a prompt that is too long.

    Args:
        known_context: tokens of the context that the windows were made for, as the server said before; None: it did not.
    """
    if rejected.status == _TOO_LARGE:
        return "lower --transcript-tokens, or have the server (or a proxy before it) take longer requests"
    context, less = context_of(rejected), "lower --transcript-tokens, or serve the model with a longer context"
    if context is None:
        return f"say how long its context is with --context; where that is said already, {less}"
    if known_context is not None and known_context <= context:
        return f"its context of {context} tokens is known, but this text has more tokens than its length tells: {less}"
    return f"say --context {context}; where that is said already, {less}"


def speaks_of_schema(rejected: Rejected) -> bool:
    """Whether the refusal names the JSON schema that the reply was to follow."""
    return _SCHEMA.search(rejected.text) is not None


def no_money(status: int, text: str) -> bool:
    """Whether the account has no money or quota left, which no wait changes."""
    return status == 402 or (status == 429 and "insufficient_quota" in text)
