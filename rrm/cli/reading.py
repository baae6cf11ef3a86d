"""Options, reading, error log and progress, shared by the commands that read transcripts."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeVar

import typer

from rrm.cli.paths import ready_outputs
from rrm.data.output import locked
from rrm.data.progress import PROGRESS_SECONDS, progress_log
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, ReadError, RRMError
from rrm.readers import read
from rrm.readers.base import printable
from rrm.readers.mapping import parse_pairs
from rrm.readers.paths import missing

log = logging.getLogger(__name__)
T = TypeVar("T")
KINDS = 3  # kinds of unreadable lines that a warning names
_DIFFERS = re.compile(r"\d+|'[^']*'|\"[^\"]*\"")  # what differs from line to line in a reason: numbers and quotes
OUTCOME = typer.Option(
    None,
    "--outcome",
    metavar="FIELD",
    help="The field that says how a run ended, e.g. info.won; with a ? at its end where some runs have none.",
)


def refuse_missing(inputs: Iterable[str]) -> None:
    """Raise `ReadError` for an input that is not there."""
    if problem := next(filter(None, map(missing, inputs)), None):
        raise problem


def refuse_overlap(inputs: Iterable[str], path: Path) -> None:
    """Raise `ConfigError` where an output is, or lies inside, an input (`-` is standard input)."""
    for name in inputs:
        if name != "-" and path.resolve().is_relative_to(Path(name).resolve()):
            raise ConfigError(f"{path} lies in the input {name}: it is also an input; choose another place")


def check_paths(inputs: list[str], output: Path | None, html: Path | None) -> None:
    """Check that inputs exist and outputs can be written, differ and are no inputs; make the outputs' folders."""
    refuse_missing(inputs)
    if output is not None and html is not None and output.resolve() == html.resolve():
        raise ConfigError(f"-o and --html are both {html}: the page would replace the rows; choose another place")
    for path in (output, html):
        if path is not None:
            refuse_overlap(inputs, path)
    if html is not None and "-" in inputs:
        raise RRMError("--html reads the transcripts twice, standard input only goes once; give a file")
    ready_outputs(output, html)


def mapping_of(pairs: list[str]) -> dict[str, str] | None:
    """Parse `--map`: `["messages=log.turns"]` → `{"messages": "log.turns"}`; None: not given."""
    return parse_pairs(pairs) if pairs else None


def read_inputs(
    inputs: list[str],
    errors: ErrorLog | None,
    *,
    format: str,
    mapping: dict[str, str] | None,
    outcome: str | None = None,
    strict: bool = False,
) -> Iterator[Trajectory]:
    """Stream the transcripts; unreadable lines go to `errors` (None: they were reported before)."""
    ignore: Callable[[ReadError], None] = lambda error: None  # noqa: E731
    on_error = errors.add if errors else ignore
    return iter(read(inputs, format=format, mapping=mapping, outcome=outcome, on_error=on_error, strict=strict))


def begun(rows: Iterator[T]) -> Iterator[T] | None:
    """Return the rows, None where there are none: a model takes long to load."""
    first = list(islice(rows, 1))
    return chain(first, rows) if first else None


def counting(rows: Iterable[T], verb: str) -> Iterator[T]:
    """Pass rows through with a count and rate on a terminal, elsewhere a log line now and then."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,.0f} ({task.fields[rate]:,.0f}/s)"))
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(verb, total=None, rate=0.0)
        logged = time.monotonic()
        for count, row in enumerate(rows, 1):
            if not sys.stderr.isatty() and time.monotonic() - logged >= PROGRESS_SECONDS:
                logged = time.monotonic()
                progress_log.info("%s: %d transcripts so far", verb, count - 1)
            if count % 100 == 0:
                bar.update(task, completed=count, rate=bar.tasks[0].speed or 0.0)
            yield row


def errors_path(out: Path) -> Path:
    """`OUT.jsonl` → `OUT.errors.jsonl`."""
    return out.with_name(f"{out.stem if out.suffix in ('.jsonl', '.json') else out.name}.errors.jsonl")


def error_line(error: ReadError) -> str:
    """Format an unreadable line for `errors_path`."""
    return json.dumps({"path": error.path, "line": error.line, "reason": error.reason}) + "\n"


class ErrorLog:
    """Writes unreadable lines to OUT.errors.jsonl, anew in every run; in the end warns of each kind."""

    def __init__(self, output: Path | None) -> None:
        self.path = None if output is None else errors_path(output)
        self.count = 0
        self._units: set[str] = set()  # line, file, folder: what could not be read
        self._file: IO[str] | None = None
        self._held = ExitStack()
        # reason without `_DIFFERS` → the first error and how many; of `KINDS` kinds
        self._kinds: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> ErrorLog:
        if (
            self.path is not None
        ):  # before the first error: one of a run that is refused later would stand among those of the other
            self._held.enter_context(locked(self.path))
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        with self._held:
            self._end(error_type)

    def _end(self, error_type: type[BaseException] | None) -> None:
        if self._file is not None:
            self._file.close()
            if error_type is None or not issubclass(error_type, ReadError):  # which says it
                log.warning("%s could not be read: %s; see %s", self.what, self._reasons(), self.path)
        elif error_type is None and self.path is not None:
            self.path.unlink(missing_ok=True)  # an earlier run's, whose lines have been mended since

    @property
    def what(self) -> str:
        """`3 lines`; `1 file` or `1 folder` where none is of a line."""
        name = "line" if "line" in self._units else "folder" if self._units == {"folder"} else "file"
        return f"{self.count} {name}{'' if self.count == 1 else 's'}"

    @property
    def written_to(self) -> str | None:
        return str(self.path) if self._file is not None else None

    def add(self, error: ReadError) -> None:
        """Count and record one line."""
        self.count += 1
        self._units.add("line" if error.line is not None else "folder" if Path(error.path).is_dir() else "file")
        if self.path is None:
            log.warning("%s", error)
            return
        reason = _DIFFERS.sub("", error.reason)
        first, count = self._kinds.get(reason, (printable(str(error), limit=300), 0))
        if count or len(self._kinds) < KINDS:
            self._kinds[reason] = (first, count + 1)
        if self._file is None:
            self._file = open(self.path, "w", encoding="ascii")  # noqa: SIM115  # closed by `_end`
        self._file.write(error_line(error))
        self._file.flush()

    def _reasons(self) -> str:
        reasons = [
            first + (f" (and {count - 1} like it)" if count > 1 else "") for first, count in self._kinds.values()
        ]
        others = self.count - sum(count for _, count in self._kinds.values())
        return "; ".join(reasons + ([f"{others} for other reasons"] if others else []))
