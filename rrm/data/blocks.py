"""The blocks of a judge's text, `<think>`, `<critique>` and `<score>`: what is well formed in them, and nothing made of what is not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pydantic import BaseModel

_SCORE = re.compile(r"<score>([^<]*)</score>")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class ParsedJudgement(BaseModel):
    """The parts found in a judge's continuation; a part that is absent or malformed is None."""

    trace: str | None = None
    critique: str | None = None
    score: float | None = None
    problem: str | None = None
    """Why there is no score, for the row's `reason`."""


def parse_score(text: str) -> float:
    """A decimal number in [0, 1].

    Raises:
        ValueError: not a number, not finite, or outside [0, 1]; the message quotes the text.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"score {text[:40]!r} is not a number")
    number = float(text)
    if not math.isfinite(number) or not 0.0 <= number <= 1.0:
        raise ValueError(f"score {text[:40]!r} lies outside [0, 1]")
    return number


def contents(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """(start, end) of what stands in each `<tag>…</tag>`, which may hold line ends and further opening tags; in linear time, whatever
    a model that lost its way writes."""
    opening, closing, at = f"<{tag}>", f"</{tag}>", 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        yield start + len(opening), end
        at = end + len(closing)


def _last(text: str, tag: str) -> str | None:
    found = list(contents(text, tag))
    return text[found[-1][0] : found[-1][1]].strip() if found else None


def parse_judgement(text: str) -> ParsedJudgement:
    """Parse a judge's own continuation; the last well-formed block of each kind wins.

    A score that is missing, malformed or outside [0, 1] leaves `score` None with the reason in `problem`; the text
    blocks that were found are kept.
    """
    parsed = ParsedJudgement(trace=_last(text, "think"), critique=_last(text, "critique"))
    scores = _SCORE.findall(text)
    if not scores:
        parsed.problem = "no <score> block" if text.strip() else "empty reply"
        return parsed
    try:
        parsed.score = parse_score(scores[-1].strip())
    except ValueError as error:
        parsed.problem = str(error)
    return parsed
