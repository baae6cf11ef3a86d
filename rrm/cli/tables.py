"""Tables of the command line, printed whole."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WIDEST = 10_000
"""Columns of a file or a pipe."""


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table of which nothing is cut: as wide as it is where no terminal shows it, else with its cells folded to the terminal."""
    for column in table.columns:
        column.overflow = "fold"
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, console.measure(table, options=console.options.update(width=WIDEST)).maximum)
    console.print(table)


def figure_text(figure: dict[str, float | None]) -> str:
    """`0.61 [0.42, 0.77]`; a dash where it is undefined, no interval where too little carries it."""
    if figure["value"] is None:
        return "–"
    return f"{figure['value']:.2f}" + ("" if figure["low"] is None else f" [{figure['low']:.2f}, {figure['high']:.2f}]")
