"""Differences of two JSON values as a list of edits, and their application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Edit = list[Any]
"""`[path, value]` sets a value, `[path]` deletes one. A path is a list of keys and indices."""


def edits(old: Any, new: Any, path: tuple[str | int, ...] = ()) -> Iterator[Edit]:
    """Yield the edits from `old` to `new`; 1, 1.0 and true differ, lists of other lengths are replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from ([[*path, key]] for key in old if key not in new)
        for key, value in new.items():
            if key in old:
                yield from edits(old[key], value, (*path, key))
            else:
                yield [[*path, key], value]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (old_item, new_item) in enumerate(zip(old, new, strict=True)):
            yield from edits(old_item, new_item, (*path, k))
    elif type(old) is not type(new) or old != new:
        yield [list(path), new]


def edit(value: Any, change: Any) -> None:
    """Make one change inside a value, in place.

    Raises:
        ValueError: a malformed change, or a path that leads nowhere.
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
