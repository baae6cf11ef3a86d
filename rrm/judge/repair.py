"""A reply that cannot be read is asked for once more, with what was wrong about it; what cannot be read then is `unparsable`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rrm.data.usage import total_of
from rrm.engines.base import Answered, ChatEngine, Reply, Request
from rrm.errors import EngineError
from rrm.judge.score_text import open_think, outside_think, read_said
from rrm.prompt.prompter import GRID

MOST = 4000
"""Characters of the unreadable reply, its last ones, that are sent back."""
SCORE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"score": {"type": "number", "enum": list(GRID)}},
    "required": ["score"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Repair:
    """A second request for a reply that cannot be read."""

    problem: Callable[[Request, Reply], str | None]
    """Returns the reason why a reply cannot be read; None: it can be, or is not worth another request."""
    form: str
    """Says what to reply with."""
    schema: dict[str, Any] | None = None
    """Of the new reply, where the server can be held to one."""
    whole: bool = True
    """Whether the new reply takes the place of the old one; else its score alone, and the old one's texts stay."""


@dataclass(frozen=True)
class _Again:
    request: Request
    reply: Reply
    problem: str


def with_repair(engine: ChatEngine, answered: Answered, repair: Repair) -> Answered:
    """`answered`, which hears of an unreadable reply only once it was asked for again; at once where the engine is scripted."""
    if not getattr(engine, "asks_again", True):
        return answered

    def heard(request: Request, reply: Reply | EngineError) -> Request | None:
        if isinstance(request.about, _Again):
            return answered(request.about.request, _joined(request.about, reply, repair))
        if isinstance(reply, EngineError) or reply.stop_reason == "length" or not reply.text.strip():
            return answered(request, reply)
        problem = repair.problem(request, reply)
        if problem is None:
            return answered(request, reply)
        said = outside_think(open_think(reply.text)).strip()[-MOST:] or "(nothing outside the reasoning)"
        told = f"Your reply cannot be read: {problem}. {repair.form}"
        messages = [*request.messages, {"role": "assistant", "content": said}, {"role": "user", "content": told}]
        about = _Again(request, reply, problem)
        return Request(messages, f"{request.key}/repair", begins=False, about=about, json_schema=repair.schema)

    return heard


def is_repair(request: Request) -> bool:
    """Whether a request asks again for what could not be read."""
    return isinstance(request.about, _Again)


def said_of_repair(reply: Reply) -> str | None:
    """The reason that a row gives for a second request; None where there was none."""
    return reply.repaired and f"asked once more, as the first reply could not be read: {reply.repaired}"


def _joined(again: _Again, reply: Reply | EngineError, repair: Repair) -> Reply:
    first, usage = again.reply, total_of((again.reply.usage, reply.usage))
    if isinstance(reply, EngineError):
        return replace(first, usage=usage, repaired=f"{again.problem}; asked once more: {reply}")
    if repair.whole:
        return replace(reply, usage=usage, repaired=again.problem)
    said = read_said(open_think(first.text), ended=True)
    texts = ((said.trace, "think"), (said.critique, "critique"))
    kept = "".join(f"<{tag}>{text}</{tag}>" for text, tag in texts if text)
    return replace(reply, text=kept + outside_think(open_think(reply.text)), usage=usage, repaired=again.problem)


def score_problem(request: Request, reply: Reply) -> str | None:
    """The reason why a reply has no score."""
    return read_said(open_think(reply.text), ended=True).problem


SCORE = Repair(
    score_problem,
    'Reply with nothing but the JSON object {"score": NUMBER}, the number from 0.0 to 1.0 with one decimal.',
    SCORE_SCHEMA,
    whole=False,
)
"""Of a judge's score."""
