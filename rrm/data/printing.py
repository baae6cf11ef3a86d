"""Text of others as a console or a log can hold it: what a line holds, what was wrong with one, the name that was meant by one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath

from pydantic import ValidationError


def describe(error: ValueError | RecursionError | TypeError) -> str:
    """One printable sentence for an error record."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = f"{where}: {first['msg']}" if where else first["msg"]
    elif isinstance(error, RecursionError):
        text = "nested too deeply to be a transcript"
    else:
        text = str(error)
    return printable(text)


def printable(text: str, limit: int = 500) -> str:
    """Text that any console or log can hold: control characters and lone surrogates escaped, one line, bounded."""
    words = " ".join(text[: 2 * limit].split())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in words)
    return text if len(text) <= limit else text[: limit - 1] + "…"


NEAR = 0.75
"""Share of letters in common (`difflib`'s ratio) from which a name is near: one wrong letter of three is not, one of four is."""
PART = 4
"""Letters from which a name that is one of the other's words is near, too (`thinking`, `enable_thinking`)."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to this one, whatever their case; None where none is near."""
    name, by_lower = name.lower(), dict[str, str]()
    for one in known:
        by_lower.setdefault(one.lower(), one)
    if close := difflib.get_close_matches(name, by_lower, n=1, cutoff=NEAR):
        return by_lower[close[0]]
    return next((one for lower, one in by_lower.items() if _is_part(name, lower)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message on a name that is not known: "; did you mean …?", or nothing where none is near."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""


def nearest_file(name: str, known: Iterable[str]) -> str | None:
    """Likewise of files: it is the name that is near, since all end in `.jsonl`; of one name with several endings, the nearest of these."""
    wanted, near = PurePath(name), dict[str, list[str]]()
    for one in known:
        near.setdefault(PurePath(one).stem, []).append(one)
    stem = nearest(wanted.stem, near)
    return None if stem is None else max(near[stem], key=lambda one: difflib.SequenceMatcher(None, name, one).ratio())


def _is_part(name: str, other: str) -> bool:
    short, long = sorted((name, other), key=len)
    return len(short) >= PART and short in long.replace("-", "_").replace(".", "_").split("_")
