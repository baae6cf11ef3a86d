"""Tables of the command line, printed whole."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WIDEST = 10_000  # columns of a file or a pipe
WIDE = 160  # columns of a table there, where its long cells can be folded to that
LONG = 80  # columns that every cell has there: many short ones make a wider table


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table, its long cells folded to the terminal or, without one, to `WIDE`; nothing is cut."""
    for column in table.columns:
        column.overflow = "fold"
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        least, full = _width(console, table, LONG), _width(console, table, None)
        console.width = max(console.width, min(full, max(WIDE, least)))
    console.print(table)


def _width(console: Console, table: Table, most: int | None) -> int:
    """Return the columns of a table whose cells have at most `most`, a limit which it keeps."""
    for column in table.columns:
        column.max_width = most
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum


def figure_text(figure: dict[str, float | None]) -> str:
    """Format `0.61 [0.42, 0.77]`; a dash where undefined, no interval where there is none."""
    if figure["value"] is None:
        return "–"
    return f"{figure['value']:.2f}" + ("" if figure["low"] is None else f" [{figure['low']:.2f}, {figure['high']:.2f}]")
