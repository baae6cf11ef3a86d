"""Registers every set of bars.

    python -m benchmarks.bars            (the sets there are; the same as `make bars`)
    python -m benchmarks.bars judge      (one set; exit code 1 if a bar is missed; the same as `make bars SET=judge`)

Bars are rows of `tables`: figures of records (`Recorded`) and tests. A set of which a module of this package has the name has that
module's bars as well: `BARS`, a sequence of `Recorded`, and `bars(run)`, which returns finished bars (`run`: whether tests that are bars
are run, and figures made anew).
"""

from __future__ import annotations

import argparse
import ast
import importlib
from pathlib import Path

from benchmarks.bars import tables
from benchmarks.bars.bar import Bar, finish, suite_bars
from benchmarks.bars.recorded import Recorded, read

MODULES = ("judge", "right", "house")


def sets() -> dict[str, str]:
    """Name → purpose of every set, of a module the first line of its docstring."""
    sources = {name: Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    own = {name: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0] for name, text in sources.items()}
    return own | tables.SETS


def figures_of(name: str) -> list[Recorded]:
    """The bars of a set that are read from records."""
    own = importlib.import_module(f"benchmarks.bars.{name}") if name in MODULES else None
    return [*getattr(own, "BARS", ()), *(Recorded(*row) for of, *row in tables.FIGURES if of == name)]


def tests_of(name: str) -> dict[str, str]:
    """What → tests of a set, as `suite_bars` takes them."""
    return {what: tests for of, what, tests in tables.TESTS if of == name}


def bars_of(name: str, run: bool = True) -> list[Bar]:
    """The finished bars of a set.

    Args:
        run: whether tests that are bars are run, and figures made anew.

    Raises:
        SystemExit: no set has this name; lists those there are.
    """
    if name not in sets():
        raise SystemExit(f"no set of bars is named {name!r}; there are {', '.join(sets())}")
    own = importlib.import_module(f"benchmarks.bars.{name}") if name in MODULES else None
    coded = getattr(own, "bars", lambda run: ())(run)
    tests = tests_of(name)
    return [*read(figures_of(name), run), *coded, *(suite_bars(tests, run) if tests else ())]


def main() -> None:
    """Print the bars of a set, or the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", nargs="?", help="the sets are listed where none is named")
    parser.add_argument("--no-run", action="store_true", help="do not run the tests that are bars, make no figure anew")
    args = parser.parse_args()
    if args.set is None:
        for name, purpose in sets().items():
            print(f"{name:14} {purpose}")
        return
    finish(bars_of(args.set, not args.no_run), args.set)
