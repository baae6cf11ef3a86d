"""Registers every set of bars, and reads bars that are data from committed records.

    python -m benchmarks.bars            (the sets there are; the same as `make bars`)
    python -m benchmarks.bars judge      (one set; exit code 1 if a bar is missed; the same as `make bars SET=judge`)

A set is a module of this package, named after it. Its bars are data, `BARS`, a sequence of `Recorded`; what data cannot say is code,
`bars(run)`, which returns finished bars (`run`: whether tests that are bars are run). A set has one of them or both. The acceptances
`benchmarks.accept_N` are sets too, named `accept-N`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import operator
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import benchmarks
from benchmarks import bars as package
from benchmarks.acceptance import Bar, finish, interval, load

Operator = Literal["≥", "≤", ">", "interval >", "reported"]
COMPARE = {"≥": operator.ge, "≤": operator.le, ">": operator.gt, "interval >": operator.gt}
NO_SETS = ("registry", "__main__")
ACCEPTANCE = re.compile(r"accept_\d+")


@dataclass(frozen=True)
class Recorded:
    """A bar that is read from a committed record.

    Args:
        what: is measured.
        record: the file's name in benchmarks/results, without `.json`.
        path: where the figure stands in the record, keys separated by dots. A figure is a number, or an interval `{value, low, high}`.
        wanted: how the figure is compared; `interval >` compares its lower end, the others its value. `reported`: it must be there.
        threshold: what it is compared with: a number, or the path of another figure of the record.
        gpu: a figure that is not there waits for a GPU; without it the bar is missed.
    """

    what: str
    record: str
    path: str
    wanted: Operator
    threshold: float | str = 0.0
    gpu: bool = False

    def read(self, found: object) -> Bar:
        """The finished bar, of what the record holds; None: there is no record."""
        figure = _at(found, self.path)
        limit = _at(found, self.threshold) if isinstance(self.threshold, str) else self.threshold
        shown = self._shown(limit)
        if figure is None or limit is None:
            lost = self.path if figure is None else self.threshold
            said = (
                f"no {lost} in {self.record}.json" if found is not None else f"no benchmarks/results/{self.record}.json"
            )
            return Bar(self.what, said, shown, None if self.gpu else False, waits=self.gpu)
        if self.wanted == "reported":
            return Bar(self.what, _said(figure), shown, None)
        value, least = _number(figure, "low" if self.wanted == "interval >" else "value"), _number(limit, "value")
        ok = value is not None and least is not None and COMPARE[self.wanted](value, least)
        return Bar(self.what, _said(figure), shown, ok)

    def _shown(self, limit: object) -> str:
        """The wanted figure, in words."""
        if self.wanted == "reported":
            return "reported"
        sign = "interval above" if self.wanted == "interval >" else self.wanted
        named = f" ({self.threshold})" if isinstance(self.threshold, str) else ""
        return f"{sign} {'?' if limit is None else _said(limit) if named else f'{limit:g}'}{named}"


def read(recorded: Iterable[Recorded]) -> Iterator[Bar]:
    """Bars as their records have them; each record is read once."""
    records: dict[str, dict[str, Any] | None] = {}
    for bar in recorded:
        if bar.record not in records:
            records[bar.record] = load(bar.record)
        yield bar.read(records[bar.record])


def sets() -> dict[str, str]:
    """Name → module of every set."""
    own = {module.name: f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)}
    acceptances = (
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if ACCEPTANCE.fullmatch(module.name)
    )
    numbers = sorted(int(name.removeprefix("accept_")) for name in acceptances)
    old = {f"accept-{number}": f"benchmarks.accept_{number}" for number in numbers}
    return {name: module for name, module in (own | old).items() if name not in NO_SETS}


def bars_of(name: str, run: bool = True) -> list[Bar]:
    """The finished bars of a set.

    Args:
        run: whether tests that are bars are run.

    Raises:
        SystemExit: no set has this name; lists those there are.
    """
    known = sets()
    if name not in known:
        raise SystemExit(f"no set of bars is named {name!r}; there are {', '.join(known)}")
    module = importlib.import_module(known[name])
    coded = module.bars(run) if hasattr(module, "bars") else ()
    return [*read(getattr(module, "BARS", ())), *coded]


def purpose(module: str) -> str:
    """The first line of a module's docstring; the module is not imported."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or "").partition("\n")[0]


def main() -> None:
    """Print the bars of a set, or the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", nargs="?", help="the sets are listed where none is named")
    parser.add_argument("--no-run", action="store_true", help="do not run the tests that are bars")
    args = parser.parse_args()
    if args.set is None:
        for name, module in sets().items():
            print(f"{name:10} {purpose(module)}")
        return
    finish(bars_of(args.set, not args.no_run), args.set)


def _at(found: object, path: str) -> object:
    """Read what stands at a path; None where nothing does."""
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _number(figure: object, end: str) -> float | None:
    """A plain number, or one end of an interval; None of anything else. A plain number has no lower end."""
    if isinstance(figure, Mapping):
        figure = figure.get(end)
    elif end != "value":
        return None
    return figure if isinstance(figure, int | float) and not isinstance(figure, bool) else None


def _said(figure: object) -> str:
    """Figures for people: numbers, intervals, and what holds them."""
    if isinstance(figure, Mapping):
        if "value" in figure:
            return interval(dict(figure))
        return ", ".join(f"{key} {_said(value)}" for key, value in figure.items())
    if isinstance(figure, list | tuple):
        return ", ".join(map(_said, figure))
    return f"{figure:.3f}" if isinstance(figure, float) else str(figure)
