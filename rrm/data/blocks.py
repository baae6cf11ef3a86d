"""Parser of the blocks `<think>`, `<critique>` and `<score>` in a judge's text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pydantic import BaseModel

_SCORE = re.compile(r"<score>([^<]*)</score>")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class ParsedJudgement(BaseModel):
    """Parts of a judge's continuation; an absent or malformed part is None."""

    trace: str | None = None
    critique: str | None = None
    score: float | None = None
    problem: str | None = None


def parse_score(text: str) -> float:
    """Parse a decimal number in [0, 1]; raises `ValueError`, which quotes the text."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"score {text[:40]!r} is not a number")
    number = float(text)
    if not math.isfinite(number) or not 0.0 <= number <= 1.0:
        raise ValueError(f"score {text[:40]!r} lies outside [0, 1]")
    return number


def contents(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) inside each `<tag>…</tag>`, which may hold line ends; linear time."""
    opening, closing, position = f"<{tag}>", f"</{tag}>", 0
    while (start := text.find(opening, position)) >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        yield start + len(opening), end
        position = end + len(closing)


def _last(text: str, tag: str) -> str | None:
    spans = list(contents(text, tag))
    return text[spans[-1][0] : spans[-1][1]].strip() if spans else None


def parse_judgement(text: str) -> ParsedJudgement:
    """Parse a judge's continuation: the last well-formed block of each kind, or `problem`."""
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
