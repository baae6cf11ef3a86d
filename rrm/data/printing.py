"""Printable text for consoles and logs, error descriptions, and "did you mean" suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath

from pydantic import ValidationError


def describe(error: ValueError | RecursionError | TypeError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(key) for key in first["loc"])
        text = f"{where}: {first['msg']}" if where else first["msg"]
    elif isinstance(error, RecursionError):
        text = "nested too deeply to be a transcript"
    else:
        text = str(error)
    return printable(text)


def printable(text: str, limit: int = 500) -> str:
    """Escape control characters and lone surrogates, join lines, cut at `limit` characters."""
    words = " ".join(text[: 2 * limit].split())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in words)
    return text if len(text) <= limit else text[: limit - 1] + "…"


NEAR = 0.75  # `difflib` ratio from which a name is near: one wrong letter of three is not, one of four is
PART = 4  # letters from which a name that is a word of the other is near (`thinking`, `enable_thinking`)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate nearest to a name, ignoring case; None where none is near."""
    name, by_lower = name.lower(), dict[str, str]()
    for candidate in candidates:
        by_lower.setdefault(candidate.lower(), candidate)
    if close := difflib.get_close_matches(name, by_lower, n=1, cutoff=NEAR):
        return by_lower[close[0]]
    return next((candidate for lower, candidate in by_lower.items() if _is_part(name, lower)), None)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    near = nearest(name, candidates)
    return f"; did you mean {near}?" if near else ""


def nearest_file(name: str, candidates: Iterable[str]) -> str | None:
    """Like `nearest`, comparing files by their stems; of several endings, the nearest."""
    path, near = PurePath(name), dict[str, list[str]]()
    for candidate in candidates:
        near.setdefault(PurePath(candidate).stem, []).append(candidate)
    stem = nearest(path.stem, near)
    return (
        None
        if stem is None
        else max(near[stem], key=lambda candidate: difflib.SequenceMatcher(None, name, candidate).ratio())
    )


def _is_part(name: str, other: str) -> bool:
    short, long = sorted((name, other), key=len)
    return len(short) >= PART and short in long.replace("-", "_").replace(".", "_").split("_")
