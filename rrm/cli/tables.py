"""Tables of the command line, printed whole."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WIDEST = 10_000
"""Columns of a file or a pipe."""
WIDE = 160
"""Columns of a table in a file or a pipe, where its long cells can be folded to that."""
LONG = 80
"""Columns that every cell has there: a table of many short ones is as wide as they are together."""


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table of which nothing is cut, with its cells folded: to the terminal, or where there is none the long ones to `WIDE`."""
    for column in table.columns:
        column.overflow = "fold"
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        least, whole = _width(console, table, LONG), _width(console, table, None)
        console.width = max(console.width, min(whole, max(WIDE, least)))
    console.print(table)


def _width(console: Console, table: Table, most: int | None) -> int:
    """Columns of a table whose cells have no more than `most`, which it keeps."""
    for column in table.columns:
        column.max_width = most
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum


def figure_text(figure: dict[str, float | None]) -> str:
    """`0.61 [0.42, 0.77]`; a dash where it is undefined, no interval where too little carries it."""
    if figure["value"] is None:
        return "–"
    return f"{figure['value']:.2f}" + ("" if figure["low"] is None else f" [{figure['low']:.2f}, {figure['high']:.2f}]")
