"""`rrm report`: the HTML page of rows of `rrm score`, or of two judges' rows side by side."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import ValidationError

from rrm.cli import finish
from rrm.cli.reading import OUTCOME, check_paths, mapping_of, read_inputs
from rrm.data.trajectory import Source, Trajectory
from rrm.errors import ConfigError, ReadError, RRMError
from rrm.readers.base import printable
from rrm.scoring.row_matching import MatchedRows, digest_of

if TYPE_CHECKING:
    from rrm.report.guarded import AuditRows

log = logging.getLogger(__name__)
Row = dict[str, Any]
FIRST_LINE = 16 * 1024 * 1024  # characters of a file's first line, which tells rows from transcripts


def command(
    scored: Path = typer.Argument(..., metavar="SCORED.jsonl", help="Output of `rrm score`."),
    more: list[str] = typer.Argument(
        None,
        metavar="[OTHER.jsonl] [IN]...",
        help="Another judge's rows on the same transcripts, to compare; further transcripts, after --transcripts IN.",
    ),
    transcripts: list[str] = typer.Option(
        [], metavar="IN", help="The transcripts that were judged, files or folders. Default: the files the rows name."
    ),
    output: Path = typer.Option(..., "-o", "--output", metavar="REPORT.html", help="The page to write."),
    audit: Path | None = typer.Option(
        None, metavar="AUDIT.jsonl", help="What a guard said while the runs went on (rrm guard), shown as a timeline."
    ),
    title: str = typer.Option("Agent-RRM report", help="The page's heading."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
) -> None:
    """Make one self-contained HTML page to read transcripts beside their judgements.

    Rows and transcripts are matched by content: `rrm report SCORED.jsonl --transcripts IN... -o REPORT.html`. A row whose
    transcript is not found, or has changed since it was judged, is shown without steps, and the exit code is 1. With a second file of rows
    (`rrm report A.jsonl B.jsonl -o REPORT.html`) the page compares the two judges.
    """
    from rrm.report import write_report

    check_paths([str(scored), *transcripts, *(more or [])], output, None)
    rows = load_rows(scored)
    watched = None if audit is None else _audit(audit)
    others = [name for name in more or [] if holds_rows(name)]
    if len(others) > 1:
        raise ConfigError(f"{others[1]} holds a third judge's rows: two judges are compared on a page, not more")
    second = load_rows(Path(others[0])) if others else None
    if second is not None:
        check_common(rows, second, scored, Path(others[0]))
    inputs = [*transcripts, *(name for name in more or [] if name not in others)]
    inputs = inputs or named_sources([*rows, *(second or ())], scored)
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    trajectories = read_inputs(inputs, None, **reading) if inputs else iter(())
    counts = {"rows": len(rows), "without_transcript": 0, "transcripts_without_row": 0}
    pairs = match(rows, trajectories, counts)
    write_report(pairs, output, title=title, second=None if second is None else beside(second), audit=watched)
    if watched is not None:
        counts["guarded"] = len(watched) - watched.unmatched
        counts["audited_without_transcript"] = watched.unmatched
        if not counts["guarded"]:
            log.warning("%s", unguarded(audit, watched.runs, {row["id"] for row in rows}))
    if second is not None:
        counts["only_in_second"] = len(second.strays)
        counts["of_both"] = len(second) - counts["only_in_second"]
    finish({"report": str(output), **counts})
    if counts["without_transcript"]:
        raise typer.Exit(1)


def _audit(path: Path) -> AuditRows:
    """Read a guard's audit; raises `ReadError`."""
    from rrm.guard.audit import read_audit
    from rrm.report.guarded import AuditRows

    return AuditRows(read_audit(path))


def unguarded(audit: Path | None, runs: Collection[str], ids: Collection[str]) -> str:
    """Say why a page has no timeline of an audit."""
    if not runs:
        return f"{audit} holds no row of a guard: the page has no timeline"
    return (
        f"{audit} is of no transcript of this page, which has no timeline: it is of {_ids(runs)}, and the page of {_ids(ids)}; a run "
        "of a guard is matched by its transcript's id"
    )


def holds_rows(name: str) -> bool:
    """Tell rows of `rrm score` from transcripts: the first line has an id, a status and a judge."""
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            row = json.loads(next((line for line in iter(lambda: file.readline(FIRST_LINE), "") if line.strip()), ""))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(row, dict) and {"id", "status", "judge"} <= row.keys() and "messages" not in row


def match(
    rows: MatchedRows[Row], trajectories: Iterable[Trajectory], counts: dict[str, int]
) -> Iterator[tuple[Trajectory, Row]]:
    """Pair transcripts with rows, then other rows with empty transcripts; `counts` gets the leftovers."""
    for trajectory in trajectories:
        row = rows.take(trajectory)
        if row is None:
            counts["transcripts_without_row"] += 1
        else:
            yield trajectory, row
    for (name, _), row in rows.left():
        counts["without_transcript"] += 1
        yield Trajectory(id=name, messages=[], source=_source(row)), row


def beside(second: MatchedRows[Row]) -> Callable[[Trajectory, Row], Row | None]:
    """Return a function that finds another judge's row on the same content."""
    return lambda trajectory, row: second.find(row["id"], digest_of(row) or trajectory.digest)


def check_common(first: MatchedRows[Row], second: MatchedRows[Row], a: Path, b: Path) -> None:
    """Raise `RRMError` for two files of rows without a transcript in common, as far as rows tell."""
    digests, ids = {digest_of(row) for row in second} - {None}, {row["id"] for row in second}
    unsaid = {row["id"] for row in second if digest_of(row) is None}

    def may_have(row: Row) -> bool:
        digest = digest_of(row)
        return row["id"] in (ids if digest is None else unsaid) or digest in digests

    if any(map(may_have, first)):
        return
    first_ids = {row["id"] for row in first}
    both = first_ids & ids
    overlap = (
        f"{len(both)} ids are in both, e.g. {printable(min(both))!r}, of other contents: the transcripts were changed in between"
        if both
        else "no id is in both"
    )
    raise RRMError(
        f"{a} holds {_ids(first_ids)} and {b} holds {_ids(ids)}, and no transcript is judged in both ({overlap}): judge one input with "
        "both judges (rrm score IN --model A, then --model B), or make a page of each file"
    )


def _ids(names: Collection[str]) -> str:
    """Count ids, and name the first."""
    examples = ", ".join(repr(printable(name, limit=80)) for name in sorted(names)[:3])
    return f"{len(names)} ids ({examples}{', …' if len(names) > 3 else ''})" if names else "no rows"


def _source(row: Row) -> Source | None:
    """Parse the source in a row, or return None."""
    try:
        return Source.model_validate(row.get("source"))
    except ValidationError:
        return None


def load_rows(path: Path) -> MatchedRows[Row]:
    """Read the rows of a file; of several of one transcript (a resumed run) the last counts.

    Raises:
        ReadError: the file cannot be opened, or a line is not a JSON object with an `id`.
    """
    try:
        with open(path, "rb") as lines:
            parsed = (_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
            return MatchedRows((row, row["id"], digest_of(row)) for row in parsed)
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error


def _parse(path: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReadError(str(path), number, f"not JSON ({error}); give the output of `rrm score`") from error
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise ReadError(str(path), number, "not a row of `rrm score`: no text `id`")
    return row


def named_sources(rows: Sequence[Row], scored: Path) -> list[str]:
    """List the files the rows were read from, in order of first mention.

    Raises:
        RRMError: the rows name none, or one that is not there.
    """
    named = dict.fromkeys(
        s["file"] for row in rows if isinstance(s := row.get("source"), dict) and isinstance(s.get("file"), str)
    )
    gone = [file for file in named if not Path(file).exists()]
    if gone or (rows and not named):
        problem = f"{gone[0]!r}, which is not there" if gone else "no transcript files"
        raise RRMError(f"{scored} names {problem}: give the transcripts with --transcripts")
    return list(named)
