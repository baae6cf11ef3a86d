"""How much of a transcript a server's model reads at once: what the server says of its context, or what the caller says.

A window, the rubric and the reply stand in the context together. Without the judge's own tokenizer a token is estimated as four
characters of text; logs, code and JSON have fewer, down to 2.4, so of a known context only `SHARE` is filled.
"""

from __future__ import annotations

import logging

from rrm.engines.openai import OpenAIEngine
from rrm.errors import ConfigError
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.rendering import CUT_VERSION

log = logging.getLogger(__name__)
UNKNOWN = 32_768
"""Tokens of a context that nobody knows: a shorter one shows, as a server that reads less than it is sent is found out."""
RUBRIC = 300
"""Tokens kept for rubric and chat template."""
SHARE = 0.6
"""Of the room, where tokens are estimated as four characters."""
LEAST = 256
"""Fewest transcript tokens worth asking with."""


def room(context: int, max_new_tokens: int, exact: bool) -> int:
    """Transcript tokens that fit beside rubric and reply; `exact`: counted by the judge's own tokenizer.

    Raises:
        ConfigError: fewer than `LEAST`.
    """
    left = int((context - max_new_tokens - RUBRIC) * (1.0 if exact else SHARE))
    if left < LEAST:
        raise ConfigError(
            f"a context of {context} tokens leaves {max(left, 0)} for a transcript beside a reply of {max_new_tokens} and the "
            "rubric: lower --max-new-tokens or --thinking-tokens, or serve the model with a longer context"
        )
    return left


def fitted(
    settings: JudgeSettings, engine: OpenAIEngine, *, context: int | None, chosen: bool, exact: bool
) -> JudgeSettings:
    """The settings with a transcript budget that fits into the server's context. A judge of prompt version 1 keeps its own.

    Args:
        context: as the caller says; None: the server is asked (`rrm.engines.contexts`).
        chosen: whether the settings' budget was chosen, by a judge's directory or the caller, and not just the default.
        exact: whether the judge's own tokenizer counts.

    Raises:
        ConfigError: the context leaves no room, or is given for a judge of prompt version 1.
    """
    if settings.prompt_version == CUT_VERSION:
        if context is not None:
            raise ConfigError(
                f"{settings.name} was made for prompt version {CUT_VERSION} with a budget of its own: leave out the context, or "
                "choose another --transcript-tokens"
            )
        return settings
    context = engine.context_tokens() if context is None else context
    if context is None and chosen:
        return settings
    if context is None:
        log.warning(
            "%s does not say how long its context is: %d tokens are assumed; say it with --context",
            engine.model,
            UNKNOWN,
        )
        context = UNKNOWN
    most = room(context, settings.max_new_tokens + engine.thinking_tokens, exact)
    if chosen and settings.transcript_tokens > most:
        log.warning(
            "%d transcript tokens do not fit a context of %d beside rubric and reply: %d are read at once",
            settings.transcript_tokens,
            context,
            most,
        )
    tokens = min(settings.transcript_tokens, most) if chosen else most
    return settings.model_copy(update={"transcript_tokens": tokens})
