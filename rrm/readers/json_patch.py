"""What makes one JSON value of another, as a list: how a form that changes a value on the way says what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Edit = list[Any]
"""`[path, value]`: there stands this value; `[path]`: there stands nothing. A path is a list of keys and indices."""


def edits(made: Any, wanted: Any, path: tuple[str | int, ...] = ()) -> Iterator[Edit]:
    """What to change in `made` to get `wanted`; 1, 1.0 and true are three values. Lists of different lengths are replaced whole."""
    if isinstance(made, dict) and isinstance(wanted, dict):
        yield from ([[*path, key]] for key in made if key not in wanted)
        for key, value in wanted.items():
            if key in made:
                yield from edits(made[key], value, (*path, key))
            else:
                yield [[*path, key], value]
    elif isinstance(made, list) and isinstance(wanted, list) and len(made) == len(wanted):
        for k, (one, other) in enumerate(zip(made, wanted, strict=True)):
            yield from edits(one, other, (*path, k))
    elif type(made) is not type(wanted) or made != wanted:
        yield [list(path), wanted]


def edit(value: Any, change: Any) -> None:
    """Make one change inside a value, in place.

    Raises:
        ValueError: it is no such change, or its path leads nowhere.
    """
    if not isinstance(change, list) or not 1 <= len(change) <= 2 or not isinstance(change[0], list) or not change[0]:
        raise ValueError("a change is [path] or [path, value]")
    *way, last = change[0]
    for key in way:
        value = _inside(value, key)
    if isinstance(value, dict) and isinstance(last, str) and len(change) == 2:
        value[last] = change[1]
    elif len(change) == 2:
        _inside(value, last)
        value[last] = change[1]
    else:
        _inside(value, last)
        del value[last]


def _inside(value: Any, key: Any) -> Any:
    if isinstance(value, dict) and isinstance(key, str) and key in value:
        return value[key]
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(value):
        return value[key]
    raise ValueError(f"there is no {str(key)[:40]!r} to change")
