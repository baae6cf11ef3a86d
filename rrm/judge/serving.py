"""Fit a judge's transcript budget into a server's context, beside the rubric and the reply.

Without the judge's own tokenizer a token is estimated as four characters; logs, code and JSON have down to 2.4.
"""

from __future__ import annotations

import logging

from rrm.engines.openai import OpenAIEngine
from rrm.errors import ConfigError
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.rendering import CUT_VERSION

log = logging.getLogger(__name__)
UNKNOWN = 32_768  # tokens of an unknown context; a shorter one is detected, as truncated requests are found out
RUBRIC = 300  # tokens reserved for rubric and chat template
SHARE = 0.6  # of the room, with estimated tokens
LEAST = 256  # fewest transcript tokens worth asking with


def room(context: int, max_new_tokens: int, exact: bool) -> int:
    """Return the transcript tokens that fit; raises ConfigError for fewer than `LEAST`."""
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
    """Return the settings with a transcript budget that fits the context; prompt version 1 keeps its own.

    Args:
        context: as set by the caller; None: the server is asked (`rrm.engines.contexts`).
        chosen: the budget was set by a judge's directory or the caller, not by default.
        exact: the judge's own tokenizer counts.

    Raises ConfigError if the context leaves no room, or is set for a judge of prompt version 1.
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
        log.info(
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
