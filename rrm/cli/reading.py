"""What the commands that read transcripts share: an option, and progress over rows of unknown number."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import typer

from rrm.readers.sources import missing
from rrm.score import PROGRESS_SECONDS, progress_log

T = TypeVar("T")
OUTCOME = typer.Option(
    None,
    "--outcome",
    metavar="FIELD",
    help="The field that says how a run ended, e.g. info.won; with a ? at its end where some runs have none.",
)


def refuse_missing(inputs: Iterable[str]) -> None:
    """`ReadError` for an input that is not there: a mistyped name is not an input of no rows."""
    if problem := next(filter(None, map(missing, inputs)), None):
        raise problem


def counting(rows: Iterable[T], verb: str) -> Iterator[T]:
    """Pass rows through with a running count and rate on a terminal's standard error; elsewhere a log line now and then."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,.0f} ({task.fields[rate]:,.0f}/s)"))
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(verb, total=None, rate=0.0)
        said = time.monotonic()
        for count, row in enumerate(rows, 1):
            if not sys.stderr.isatty() and time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                progress_log.info("%s: %d transcripts so far", verb, count - 1)
            if count % 100 == 0:
                bar.update(task, completed=count, rate=bar.tasks[0].speed or 0.0)
            yield row
