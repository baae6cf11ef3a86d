"""The expected score of a server's reply: Σ p(v)·v over the grid, from the log-probabilities of the tokens of its number.

A reply shows one way through the grid. What the others would have come to is seen where one token settles the value (`7` after
`0.`, `1` at the start), and not where one leaves several open: of a reply that says 1.0, everything that follows `0`. Such another
way is asked for (`branch_logprobs`), where the reply was opened for the judge and can be gone on with from anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from rrm.data.feedback import parse_score
from rrm.data.usage import total_of
from rrm.engines.base import Answered, ChatEngine, Reply, Request, SamplingParams, converse
from rrm.errors import EngineError
from rrm.judge.score_text import score_blocks
from rrm.prompt.prompter import GRID

MIN_MASS = 0.9
"""Probability the server's alternatives must place on the grid before their expectation is believed."""
MIN_OPEN = 0.005
"""Probability of another way from which it is asked for: less could not move a score by as much."""
_NUMBER = re.compile(r"<score>([^<]*)(?:</score>|\Z)")


@dataclass(frozen=True)
class _Place:
    """A token of the number, and what might have stood in its place."""

    index: int
    """In the reply's tokens."""
    way: tuple[str, ...]
    """The number's tokens before it."""
    before: str
    """What the token begins with that is not the number's: `>`."""
    path: float
    """log p of getting there."""

    def values(self, token: str) -> list[float]:
        """Grid values that the number may still become with this token here."""
        return _read_number("".join(self.way).lstrip(), self.before, token)


def expected_score(reply: Reply, sampled: float, min_mass: float = MIN_MASS) -> tuple[float, float] | None:
    """(Σ p(v)·v renormalised over the grid, mass off the grid), read at the reply's score tokens.

    Walks the sampled number token by token. At each position an alternative that settles the value ("0.7" as one
    token, or "7" after "0.") adds its probability to it; one that leaves several values open ("0", "0.") is followed
    only where it was sampled, here or in one of `reply.others`.

    Returns None where there are no log-probabilities, they do not show the number `sampled`, it is no grid value, or
    less than `min_mass` is settled: then the parsed number is the score.
    """
    if not reply.top_logprobs or not _grid_values(str(sampled), True) or _start(reply, sampled) is None:
        return None
    found: dict[tuple[str, ...], tuple[float, float]] = {}
    for way in (reply, *reply.others):
        for place in _places(way, sampled if way is reply else None):
            for token, logprob in (way.top_logprobs or [])[place.index].items():
                values = place.values(token)
                if len(values) == 1:  # ways share their beginnings: what both show counts once
                    found[(*place.way, token)] = values[0], place.path + logprob
    mass = dict.fromkeys(GRID, 0.0)
    for value, logprob in found.values():
        mass[value] += math.exp(logprob)
    covered = sum(mass.values())
    if covered < min_mass:
        return None
    # floating point may carry the mean a hair outside [0, 1]
    value = min(max(math.fsum(p * v for v, p in mass.items()) / covered, 0.0), 1.0)
    return value, min(max(1.0 - covered, 0.0), 1.0)


def other_way(reply: Reply, least: float = MIN_OPEN) -> Reply | None:
    """The reply as far as the likeliest token that would have left several grid values open and was not sampled; None where no
    such token has the probability `least`. What follows it is not known."""
    best: tuple[float, int, str] | None = None
    for place in _places(reply, None):
        for token, logprob in (reply.top_logprobs or [])[place.index].items():
            likely = place.path + logprob >= math.log(least)
            if likely and token != reply.tokens[place.index] and len(place.values(token)) > 1:
                best = max(best or (-math.inf, 0, ""), (place.path + logprob, place.index, token))
    if best is None or reply.top_logprobs is None:
        return None
    _, index, token = best
    tokens = [*reply.tokens[:index], token]
    return Reply("".join(tokens), "length", reply.top_logprobs[: index + 1], tokens)


@dataclass(frozen=True)
class _Look:
    """A second request: about which one, its reply, and the other way as far as it is known."""

    request: Request
    reply: Reply
    other: Reply


def branch_logprobs(
    engine: ChatEngine,
    requests: Iterable[Request],
    params: SamplingParams,
    answered: Answered,
    opening: Callable[[Request], str],
) -> None:
    """`rrm.engines.base.converse`, with a further request for the other way of a score, where there is one: a reply that is handed on
    has it in `others`.

    Args:
        opening: what is put into the mouth of a request's reply; empty: nothing, and its reply cannot be gone on with.
    """

    def heard(request: Request, reply: Reply | EngineError) -> Request | None:
        if isinstance(request.about, _Look):
            look = request.about
            return answered(look.request, _with_other(look, reply))
        opened = opening(request)
        if not opened or isinstance(reply, EngineError):
            return answered(request, reply)
        other = other_way(with_opening(reply, opened))
        if other is None:
            return answered(request, reply)
        said = {**request.messages[-1], "content": other.text}
        look = _Look(request, reply, other)
        return Request([*request.messages[:-1], said], f"{request.key}/other", begins=False, about=look)

    converse(engine, requests, params, heard)


def with_opening(reply: Reply, opening: str) -> Reply:
    """The reply with its opening tag in front, which a server that goes on from it does not repeat."""
    if not opening or reply.text.lstrip().startswith(opening):
        return reply
    top = reply.top_logprobs and [{opening: 0.0}, *reply.top_logprobs]
    return replace(reply, text=opening + reply.text, tokens=[opening, *reply.tokens], top_logprobs=top)


def _with_other(look: _Look, reply: Reply | EngineError) -> Reply:
    """The first reply with what a second request says of the other way; without, where that failed: its number is still there."""
    usage = total_of((look.reply.usage, reply.usage))
    if isinstance(reply, EngineError) or not reply.top_logprobs:
        return replace(look.reply, usage=usage)
    known, text = look.other, reply.text
    if text.startswith(known.text):  # a server that repeats what it went on from
        return replace(look.reply, usage=usage)
    way = Reply(
        known.text + text,
        reply.stop_reason,
        [*(known.top_logprobs or []), *reply.top_logprobs],
        [*known.tokens, *reply.tokens],
    )
    return replace(look.reply, usage=usage, others=(way,))


def _places(reply: Reply, sampled: float | None) -> Iterator[_Place]:
    """The tokens of the last score's number, up to that which settles it."""
    start = _start(reply, sampled)
    if start is None or not reply.top_logprobs:
        return
    index, offset = start
    place = _Place(index, (), reply.tokens[index][:offset], 0.0)
    while place.index < len(reply.tokens):
        yield place
        token = reply.tokens[place.index]
        if len(place.values(token)) <= 1:
            return
        path = place.path + reply.top_logprobs[place.index].get(token, -math.inf)
        place = _Place(place.index + 1, (*place.way, token.removeprefix(place.before)), "", path)


def _start(reply: Reply, sampled: float | None) -> tuple[int, int] | None:
    """(token, offset in it) where the last score's number starts, if it reads as `sampled`; None: whatever it reads as."""
    tokens = reply.tokens
    text = "".join(tokens)
    found = list(_NUMBER.finditer(text)) if sampled is None else [m for m in score_blocks(text) if _is(m[1], sampled)]
    if not found:
        return None
    position = found[-1].end(1) - len(found[-1][1].lstrip())
    for index, token in enumerate(tokens):
        if position < len(token):
            return index, position
        position -= len(token)
    return None


def _is(written: str, value: float) -> bool:
    try:
        return parse_score(written.strip()) == value
    except ValueError:
        return False


def _read_number(written: str, before: str, token: str) -> list[float]:
    """Grid values the number may still become with `token` after `written`; `before` must open the token."""
    if not token.startswith(before):
        return []
    text = (written + token[len(before) :]).lstrip()
    number, closed, _ = text.partition("<")
    return _grid_values(number.rstrip(), bool(closed) or number != number.rstrip())


def _grid_values(number: str, closed: bool) -> list[float]:
    """Grid values that `number` is (closed) or may become (open)."""
    try:
        value = parse_score(number)
    except ValueError:
        value = None
    if closed:
        return [v for v in GRID if v == value]
    if value is not None and len(number) > 2:  # "0.7", "0.70", ".75": settled
        return [v for v in GRID if v == value]
    forms = {v: (f"{v:.1f}", f"{v:.1f}".lstrip("0"), f"{v:g}") for v in GRID}
    return [v for v, spellings in forms.items() if any(form.startswith(number) for form in spellings)]
