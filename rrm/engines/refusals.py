"""How an OpenAI-compatible server says no: what another try may change, what another form of the request, and what nothing."""

from __future__ import annotations

import re

from rrm.engines.base import SamplingParams

RETRY_STATUS = frozenset({408, 409, 429})
"""Besides every 5xx."""
OPTIONAL = frozenset({"temperature", "top_p", "seed"})
"""Parameters a server may refuse (reasoning models take no temperature): a request goes without what its refusal names."""
_OPTIONAL = re.compile(rf"\b(?:{'|'.join(sorted(OPTIONAL))})\b")
_LOGPROBS = re.compile(r"\b(?:top_)?logprobs\b")
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size"
    r"|(?:maximum|max|model'?s) context (?:length|size|window)|exceeds? the (?:\w+ )?context (?:length|size|window)"
    r"|(?:prompt|input|request) is too (?:long|large)|longer than the maximum model length"
    r"|`inputs` (?:must have less than|tokens \+ `max_new_tokens` must be <=)"
    r"|input token count\b.{0,40}\bexceeds the maximum number|input tokens exceed the configured limit",
    re.IGNORECASE,
)
"""How servers (vLLM, TGI, llama.cpp, OpenAI, Anthropic, Gemini) say that a prompt does not fit their context."""
_SCHEMA = re.compile(r"response_format|json_?schema|guided_?\w*|grammar|structured[ _-]?outputs?", re.IGNORECASE)
_TOO_LARGE = 413
HINTS = {
    400: "read the server's message; where it speaks of the context length, give that as --context",
    402: "top up the account",
    401: "set OPENAI_API_KEY to a key this server accepts",
    403: "set OPENAI_API_KEY to a key that may use this model",
    404: "check the base URL (it usually ends in /v1) and the model's name",
    429: "lower the concurrency, or wait for the rate limit",
}


class Rejected(Exception):
    """A status that trying again does not change."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(status, text)


class Retry(Exception):
    """A failure worth another try.

    Args:
        hint: what to do once the tries are used up.
        retry_after: seconds, as the server asks.
        throttled: it is asked too much at once, and works.
        unconnected: nobody answers there.
    """

    def __init__(
        self, reason: str, hint: str, retry_after: float = 0.0, *, throttled: bool = False, unconnected: bool = False
    ) -> None:
        self.reason, self.hint, self.retry_after = reason, hint, retry_after
        self.throttled, self.unconnected = throttled, unconnected
        super().__init__(reason)


class EmptyReply(Retry):
    """The server answered with no text: tried again, and in the end handed back as it is (status `unparsable`)."""


def workaround_of(rejected: Rejected, params: SamplingParams, quirks: frozenset[str]) -> str | None:
    """What to leave out or say otherwise before asking again: what the server's message names, else log-probabilities."""
    may_leave_out = params.top_logprobs > 0 and "no_logprobs" not in quirks
    if rejected.status == 403 and may_leave_out and _LOGPROBS.search(rejected.text):
        return "no_logprobs"  # the key is taken, this is not: asked again without, which a bad key does not survive
    if rejected.status not in (400, 422):
        return None
    if "max_completion_tokens" in rejected.text and "max_completion_tokens" not in quirks:
        return "max_completion_tokens"
    named = [m.group() for m in _OPTIONAL.finditer(rejected.text) if m.group() not in quirks]
    if named:  # the first one: a server may go on to quote the whole request
        return named[0]
    return "no_logprobs" if may_leave_out else None


def is_too_long(rejected: Rejected) -> bool:
    """Whether the server could not take a prompt of this length."""
    return rejected.status == _TOO_LARGE or (
        rejected.status in (400, 422) and _CONTEXT.search(rejected.text) is not None
    )


def speaks_of_schema(rejected: Rejected) -> bool:
    """Whether the refusal names the JSON schema that the reply was to follow."""
    return _SCHEMA.search(rejected.text) is not None


def no_money(status: int, text: str) -> bool:
    """Whether the account has no money or quota left, which no wait changes."""
    return status == 402 or (status == 429 and "insufficient_quota" in text)
