"""Registers every set of bars.

    python -m benchmarks.bars            (the sets there are; the same as `make bars`)
    python -m benchmarks.bars judge      (one set; exit code 1 if a bar is missed; the same as `make bars SET=judge`)

Bars are rows of `tables`: figures of records (`Recorded`) and tests. The sets of the modules `judge` and `house` have theirs there.
"""

from __future__ import annotations

import argparse

from benchmarks.bars import house, judge, tables
from benchmarks.bars.bar import Bar, finish, suite_bars
from benchmarks.bars.recorded import Recorded, read


def sets() -> dict[str, str]:
    """Name → purpose of every set."""
    return {
        name: (of.__doc__ or "").partition("\n")[0] for name, of in (("judge", judge), ("house", house))
    } | tables.SETS


def figures_of(name: str) -> list[Recorded]:
    """The bars of a set that are read from records."""
    return list(judge.BARS) if name == "judge" else [Recorded(*row) for of, *row in tables.FIGURES if of == name]


def bars_of(name: str, run: bool = True) -> list[Bar]:
    """The finished bars of a set.

    Args:
        run: whether tests that are bars are run, and figures made anew.

    Raises:
        SystemExit: no set has this name; lists those there are.
    """
    if name not in sets():
        raise SystemExit(f"no set of bars is named {name!r}; there are {', '.join(sets())}")
    figures = house.bars(run) if name == "house" else read(figures_of(name), run)
    tests = {what: tests for of, what, tests in tables.TESTS if of == name}
    return [*figures, *(suite_bars(tests, run) if tests else ())]


def main() -> None:
    """Print the bars of a set, or the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", nargs="?", help="the sets are listed where none is named")
    parser.add_argument("--no-run", action="store_true", help="do not run the tests that are bars, make no figure anew")
    args = parser.parse_args()
    if args.set is None:
        print("\n".join(f"{name:14} {purpose}" for name, purpose in sets().items()))
        return
    finish(bars_of(args.set, not args.no_run), args.set)
