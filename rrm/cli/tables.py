"""Print tables, uncut, and the summary that ends a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rrm.data.printing import printable

WIDEST = 10_000  # columns of a file or a pipe
WIDE = 160  # columns of a table there, where its long cells can be folded to that
LONG = 80  # columns that every cell has there: many short ones make a wider table

json_asked = False  # `--json` was given


def for_people(*, err: bool = False) -> bool:
    """Tell whether the summary is read on a terminal."""
    stream = sys.stderr if err else sys.stdout
    return not json_asked and stream is not None and stream.isatty()


def finish(summary: dict[str, Any], lines: Iterable[tuple[str, str]] | None = None, *, err: bool = False) -> None:
    """Print the summary: as JSON off a terminal or by `--json`, else `lines`, or its figures, as a table.

    `err`: on standard error, where rows went to standard output.
    """
    if not for_people(err=err):
        typer.echo(json.dumps(summary), err=err)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in figure_lines(summary) if lines is None else lines:
        table.add_row(Text(name, style="bold"), Text(printable(text)))
    if table.row_count:
        print_table(table, stderr=err)


def figure_lines(summary: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, str]]:
    """Name and text of each figure of a summary, without those that are empty or below the second level."""
    for key, value in summary.items():
        name = of + key.replace("_", " ").replace("/", ": ")
        if isinstance(value, Mapping) and {"value", "low", "high"} <= value.keys():
            yield name, figure_text(value)
        elif isinstance(value, Mapping):
            yield from () if of else figure_lines(value, f"{name}: ")
        elif isinstance(value, list | tuple):
            if value and not isinstance(value[0], Mapping):
                yield name, ", ".join(map(str, value[:5])) + (f" and {len(value) - 5} more" if len(value) > 5 else "")
        elif value not in (None, ""):
            yield name, f"{value:.4g}" if isinstance(value, float) else str(value)


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


def figure_text(figure: Mapping[str, Any]) -> str:
    """Format `0.61 [0.42, 0.77]`; a dash where undefined, no interval where there is none."""
    if figure["value"] is None:
        return "–"
    return f"{figure['value']:.2f}" + ("" if figure["low"] is None else f" [{figure['low']:.2f}, {figure['high']:.2f}]")
