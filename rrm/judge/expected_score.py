"""The expected score of a server's reply: Σ p(v)·v over the grid, from its number's tokens.

A reply shows one path through the grid. Alternatives count where one token settles the value (`7` after `0.`, `1` at the
start). One that leaves several values open (a 1.0's alternative `0`) takes another request (`branch_logprobs`), where the
reply was prefilled and so can be continued from anywhere.
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

MIN_MASS = 0.9  # least probability of the grid for its expectation to count
MIN_OPEN = 0.005  # least probability of another path to request; less could not move a score by as much
_NUMBER = re.compile(r"<score>([^<]*)(?:</score>|\Z)")


@dataclass(frozen=True)
class _Place:
    index: int  # in the reply's tokens
    way: tuple[str, ...]  # the number's tokens before it
    before: str  # start of the token that is not the number's, such as `>`
    path: float  # log p of getting there

    def values(self, token: str) -> list[float]:
        return _read_number("".join(self.way).lstrip(), self.before, token)


def expected_score(reply: Reply, sampled: float, min_mass: float = MIN_MASS) -> tuple[float, float] | None:
    """Return (Σ p(v)·v renormalised over the grid, mass off the grid), read at the reply's score tokens.

    At each token of the sampled number an alternative that settles the value ("0.7" as one token, or "7" after "0.") adds its
    probability; one that leaves several open ("0", "0.") is followed only where sampled, here or in `reply.others`.

    Returns None without log-probabilities, if they do not show the number `sampled`, if it is no grid value, or if less than
    `min_mass` is settled: then the parsed number is the score.
    """
    if not reply.top_logprobs or not _grid_values(str(sampled), True) or _start(reply, sampled) is None:
        return None
    settled: dict[tuple[str, ...], tuple[float, float]] = {}
    for way in (reply, *reply.others):
        for position in _places(way, sampled if way is reply else None):
            for token, logprob in (way.top_logprobs or [])[position.index].items():
                values = position.values(token)
                if len(values) == 1:  # ways share their beginnings: what both show counts once
                    settled[(*position.way, token)] = values[0], position.path + logprob
    mass = dict.fromkeys(GRID, 0.0)
    for value, logprob in settled.values():
        mass[value] += math.exp(logprob)
    covered = sum(mass.values())
    if covered < min_mass:
        return None
    # floating point may carry the mean a hair outside [0, 1]
    value = min(max(math.fsum(p * v for v, p in mass.items()) / covered, 0.0), 1.0)
    return value, min(max(1.0 - covered, 0.0), 1.0)


def other_way(reply: Reply, least: float = MIN_OPEN) -> Reply | None:
    """Return the reply up to its likeliest unsampled token that leaves several grid values open."""
    best: tuple[float, int, str] | None = None
    for position in _places(reply, None):
        for token, logprob in (reply.top_logprobs or [])[position.index].items():
            likely = position.path + logprob >= math.log(least)
            if likely and token != reply.tokens[position.index] and len(position.values(token)) > 1:
                best = max(best or (-math.inf, 0, ""), (position.path + logprob, position.index, token))
    if best is None or reply.top_logprobs is None:
        return None
    _, index, token = best
    tokens = [*reply.tokens[:index], token]
    return Reply("".join(tokens), "length", reply.top_logprobs[: index + 1], tokens)


@dataclass(frozen=True)
class _Look:
    # a follow-up request, with the first one, its reply and the start of the other path

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
    """Run `rrm.engines.base.converse`, adding a score's other path to the reply's `others`.

    `opening` returns the prefilled text of a request's reply; if empty, that reply cannot be continued.
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
        message = {**request.messages[-1], "content": other.text}
        look = _Look(request, reply, other)
        return Request([*request.messages[:-1], message], f"{request.key}/other", begins=False, about=look)

    converse(engine, requests, params, heard)


def with_opening(reply: Reply, opening: str) -> Reply:
    """Prepend the prefilled opening tag, unless the server repeats it."""
    if not opening or reply.text.lstrip().startswith(opening):
        return reply
    top = reply.top_logprobs and [{opening: 0.0}, *reply.top_logprobs]
    return replace(reply, text=opening + reply.text, tokens=[opening, *reply.tokens], top_logprobs=top)


def _with_other(look: _Look, reply: Reply | EngineError) -> Reply:
    """Return the first reply with the other path; unchanged where the follow-up failed."""
    usage = total_of((look.reply.usage, reply.usage))
    if isinstance(reply, EngineError) or not reply.top_logprobs:
        return replace(look.reply, usage=usage)
    other, text = look.other, reply.text
    if text.startswith(other.text):  # a server that repeats what it went on from
        return replace(look.reply, usage=usage)
    way = Reply(
        other.text + text,
        reply.stop_reason,
        [*(other.top_logprobs or []), *reply.top_logprobs],
        [*other.tokens, *reply.tokens],
    )
    return replace(look.reply, usage=usage, others=(way,))


def _places(reply: Reply, sampled: float | None) -> Iterator[_Place]:
    """Yield the tokens of the last score's number, up to the one that settles it."""
    start = _start(reply, sampled)
    if start is None or not reply.top_logprobs:
        return
    index, offset = start
    position = _Place(index, (), reply.tokens[index][:offset], 0.0)
    while position.index < len(reply.tokens):
        yield position
        token = reply.tokens[position.index]
        if len(position.values(token)) <= 1:
            return
        path = position.path + reply.top_logprobs[position.index].get(token, -math.inf)
        position = _Place(position.index + 1, (*position.way, token.removeprefix(position.before)), "", path)


def _start(reply: Reply, sampled: float | None) -> tuple[int, int] | None:
    """Return (token, offset in it) of the last score's number, if it equals `sampled` (None: any)."""
    tokens = reply.tokens
    text = "".join(tokens)
    matches = list(_NUMBER.finditer(text)) if sampled is None else [m for m in score_blocks(text) if _is(m[1], sampled)]
    if not matches:
        return None
    position = matches[-1].end(1) - len(matches[-1][1].lstrip())
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
    """Return the grid values possible with `token` after `written`; `before` must open the token."""
    if not token.startswith(before):
        return []
    text = (written + token[len(before) :]).lstrip()
    number, closed, _ = text.partition("<")
    return _grid_values(number.rstrip(), bool(closed) or number != number.rstrip())


def _grid_values(number: str, closed: bool) -> list[float]:
    """Return the grid values that `number` is (closed) or may become (open)."""
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
