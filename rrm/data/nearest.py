"""The name that was meant by one that is not known: only one that is spelt nearly like it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import PurePath

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
