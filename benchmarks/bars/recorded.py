"""Bars that are data: a figure of a committed record, how it is compared, and with what."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import split
from typing import Any, Literal

from benchmarks.bars.bar import Bar
from benchmarks.record import interval, load, unmade

Found = Mapping[str, Any]
Operator = Literal["≥", "≤", ">", "=", "within", "interval >", "interval ≤", "made", "reported"]
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "≥": operator.ge,
    "≤": operator.le,
    ">": operator.gt,
    "interval >": operator.gt,
    "interval ≤": operator.le,
}
COMPARE |= {"within": lambda value, most: abs(value) <= most}
SAID = {"interval >": "interval above", "interval ≤": "lower end ≤"}


class Many(list[Any]):
    """The figures at a path with `*` or `key=value`: a bar must hold for each, and for one at least."""


@dataclass(frozen=True)
class Recorded:
    """A bar that is read from a committed record.

    Args:
        what: is measured.
        record: the file's name in benchmarks/results, without `.json`.
        path: where the figure stands, as `at` reads it; or a function of the record. A figure is a number, or an interval
            `{value, low, high}`.
        wanted: how the figure is compared: `interval >` and `interval ≤` its lower end, the others its value; `within`: its size without
            its sign; `=`: with anything. `made`: the figure is a record (or a part of one), made by a commit that this repository has, and
            holds what the threshold names. `reported`: it must be there.
        threshold: what it is compared with: a number, or the path of another figure of the record.
        gpu: a figure that is not there waits for a GPU; without it the bar is missed.
    """

    what: str
    record: str
    path: str | Callable[[Any], Any]
    wanted: Operator
    threshold: Any = 0.0
    gpu: bool = False

    def figure(self, found: Found) -> Any:
        """What is compared; None where the record does not hold it."""
        if isinstance(self.path, str):
            return at(found, self.path)
        try:
            return self.path(found)
        except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, StopIteration):
            return None

    def read(self, found: Found | None, run: bool = True) -> Bar:
        """The finished bar.

        Args:
            found: the record; None: there is none.
            run: whether figures are made anew from raw rows where the bar says so, which can take minutes.
        """
        is_path = isinstance(self.threshold, str) and self.wanted != "made"
        limit = at(found or {}, self.threshold) if is_path else self.threshold
        shown = self._shown(limit)
        if not run and getattr(self.path, "anew", False):
            return Bar(self.what, "made anew without --no-run", shown, None)
        figure = None if found is None else self.figure(found)
        if figure is None or limit is None:
            lost = self.threshold if figure is not None else self.path if isinstance(self.path, str) else "such figure"
            told = f"no benchmarks/results/{self.record}.json"
            told = told if found is None else f"no {lost} in {self.record}.json"
            return Bar(self.what, told, shown, None if self.gpu else False, waits=self.gpu)
        if self.wanted == "reported":
            return Bar(self.what, said(figure), shown, None)
        if self.wanted == "made":
            wrong = [why for one in _each(figure) for why in _unmade(one, self.threshold.split())]
            return Bar(self.what, "; ".join(dict.fromkeys(wrong)) or "all of it", shown, not wrong)
        return Bar(self.what, said(figure), shown, all(self._holds(one, limit) for one in _each(figure)))

    def _holds(self, figure: Any, limit: Any) -> bool:
        if self.wanted == "=":
            return figure == limit
        value = number(figure, "low" if self.wanted.startswith("interval") else "value")
        least = number(limit, "value")
        return value is not None and least is not None and COMPARE[self.wanted](value, least)

    def _shown(self, limit: object) -> str:
        """The wanted figure, in words."""
        if self.wanted == "reported":
            return "reported"
        if self.wanted == "made":
            return " ".join(("made by a commit, with", *self.threshold.split()))
        named = f" ({self.threshold})" if isinstance(self.threshold, str) else ""
        told = f"{limit:g}" if isinstance(limit, int | float) and not named else said(limit)
        return f"{SAID.get(self.wanted, self.wanted)} {'?' if limit is None else told}{named}"


def read(recorded: Iterable[Recorded], run: bool = True) -> Iterator[Bar]:
    """Bars as their records have them; each record is read once."""
    records: dict[str, dict[str, Any] | None] = {}
    for bar in recorded:
        if bar.record not in records:
            records[bar.record] = load(bar.record)
        yield bar.read(records[bar.record], run)


def at(found: object, path: str) -> Any:
    """Read what stands at a path; None where nothing does.

    Args:
        path: keys with dots between (`0.1` is one key). `*`: every value; `key=value`: those of a list that say so, or what stands here
            if it does; `#`: how many there are. With `*` or `key=value` the answer is `Many`.
    """
    keys = [key for key in split(r"(?<!\d)\.|\.(?!\d)", path) if key]
    figures = list(_walk(found, keys))
    if not any(key == "*" or "=" in key for key in keys):
        return figures[0]
    return Many(figures) if figures and None not in figures else None


def _walk(found: Any, keys: Sequence[str]) -> Iterator[Any]:
    if not keys:
        yield found
        return
    key, rest = keys[0], keys[1:]
    inside = found.values() if isinstance(found, Mapping) else found if isinstance(found, list) else ()
    if key == "#":
        yield len(inside)
    elif key == "*":
        for one in inside:
            yield from _walk(one, rest)
    elif "=" in key:
        name, _, value = key.partition("=")
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, Mapping) and str(one.get(name)) == value:
                yield from _walk(one, rest)
    elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
        yield from _walk(found[int(key)], rest)
    else:
        yield from _walk(found.get(key), rest) if isinstance(found, Mapping) else (None,)


def _each(figure: Any) -> Sequence[Any]:
    return figure if isinstance(figure, Many) else (figure,)


def _unmade(found: Any, keys: Sequence[str]) -> Iterator[str]:
    """What a record, or a part of one, does not say of its making."""
    yield from (f"no {key}" for key in keys if at(found, key) in (None, "", [], {}))
    commits = found.get("commits") or [found.get("commit")]
    yield from (why for commit in commits if (why := unmade(commit)))


def number(figure: object, end: str = "value") -> float | None:
    """A plain number, or one end of an interval; None of anything else. A plain number has no lower end."""
    if isinstance(figure, Mapping):
        figure = figure.get(end)
    elif end != "value":
        return None
    return figure if isinstance(figure, int | float) and not isinstance(figure, bool) else None


def said(figure: object) -> str:
    """Figures for people: numbers, intervals, and what holds them."""
    if isinstance(figure, Mapping):
        if "value" in figure:
            return interval(dict(figure))
        return ", ".join(f"{key} {said(value)}" for key, value in figure.items())
    if isinstance(figure, Many) and len(figure) > 6:
        least, *_, most = sorted(figure, key=lambda one: number(one) or 0.0)
        return f"{said(least)} to {said(most)} ({len(figure)})"
    if isinstance(figure, list | tuple):
        return ", ".join(map(said, figure)) or "nothing"
    if isinstance(figure, float):
        return f"{figure:.3g}" if abs(figure) < 1e-3 else f"{figure:.3f}"
    return str(figure)
