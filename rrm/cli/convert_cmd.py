"""`rrm convert`: transcripts into canonical JSONL, or with a judge's figures into other forms."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO

import typer

from rrm.cli import finish
from rrm.cli.paths import ready_outputs
from rrm.cli.reading import OUTCOME, counting, error_line, errors_path, mapping_of, refuse_missing, refuse_overlap
from rrm.data.feedback import Feedback
from rrm.data.output import file_when_whole, streams
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, ReadError, RRMError
from rrm.readers.base import describe, printable
from rrm.scoring.row_matching import ScoredRows

log = logging.getLogger(__name__)


class NothingRead(RRMError):
    """No transcript can be read or has a score: an earlier output stays."""


class OutputFormat(StrEnum):
    CANONICAL = "canonical"
    ATIF = "atif"
    OTEL = "otel"
    INSPECT = "inspect"


OF_SCORES = (OutputFormat.OTEL, OutputFormat.INSPECT)  # forms of judgements alone, without transcripts


def is_stdout(path: Path) -> bool:
    """Recognise `-` and the device of standard output."""
    return str(path) in ("-", "/dev/stdout")


@contextlib.contextmanager
def whole_or_nothing(path: Path) -> Iterator[IO[str]]:
    """Open a file like `file_when_whole`; `-` is standard output."""
    if is_stdout(path):
        yield sys.stdout
        sys.stdout.flush()
        return
    with file_when_whole(path, encoding="ascii") as out:
        yield out


class UnreadableLines:
    """Writes OUT.errors.jsonl, or warnings where OUT is no file that one could stand beside."""

    def __init__(self, file: IO[str] | None) -> None:
        self.count, self.first, self._file = 0, "", file

    def add(self, error: ReadError) -> None:
        self.count += 1
        self.first = self.first or printable(str(error), limit=300)
        if self._file is None:
            log.warning("%s", printable(str(error), limit=300))
        else:
            self._file.write(error_line(error))


def command(
    inputs: list[str] = typer.Argument(..., metavar="IN…", help="Files, folders or - (standard input)."),
    out: Path = typer.Option(..., "-o", "--out", help="Canonical JSONL to write; - for standard output."),
    format: str = typer.Option("auto", help="auto, or a format's name (a wrong name lists them)."),
    map: list[str] = typer.Option([], help="field=path for any other JSON, e.g. --map messages=log.turns; repeatable."),
    outcome: str | None = OUTCOME,
    to: OutputFormat = typer.Option(
        OutputFormat.CANONICAL,
        help="What to write, a line each: canonical; atif: Harbor's trajectories; of --scores alone, for the traces and logs they "
        "are of: otel (evaluation events) or inspect (Inspect's scores).",
    ),
    scores: Path | None = typer.Option(
        None, metavar="SCORED.jsonl", help="With --to atif, otel or inspect: what `rrm score -o` wrote."
    ),
    cut_verdicts: bool = typer.Option(
        False, "--cut-verdicts", help="End each transcript before the environment first tells how it was graded."
    ),
    strict: bool = typer.Option(False, help="Stop at the first line that cannot be read; nothing is written."),
) -> None:
    """Read transcripts of any format and write one canonical Trajectory a line, or one document of another form.

    Lines that cannot be read go to OUT.errors.jsonl as {path, line, reason}; the rest is converted and the exit code
    is 1. Where nothing can be read, an OUT that stands is left as it is. With `-o -` the summary goes to standard error.
    """
    from rrm.readers import read
    from rrm.readers.leaks import cut_verdicts as cut
    from rrm.readers.left import PARENT, beside

    refuse_missing(inputs)
    if scores is not None and to is OutputFormat.CANONICAL:
        raise ConfigError(
            "--scores goes with --to atif, otel or inspect: a canonical transcript has no place for what a judge said"
        )
    if scores is None and to in OF_SCORES:
        raise ConfigError(
            f"--to {to.value} writes what a judge said: name the file that `rrm score -o` wrote with --scores"
        )
    if not is_stdout(out):
        refuse_overlap([*inputs, *([str(scores)] if scores else [])], out)
        ready_outputs(out)
    mapping, judged = mapping_of(map), ScoredRows(scores)
    errors_out = None if is_stdout(out) or streams(out) else errors_path(out)
    formats, others = Counter[str](), Counter[str]()
    stopped, shortened, unknown, unscored, below = "", 0, 0, 0, 0
    with whole_or_nothing(errors_out) if errors_out else contextlib.nullcontext() as bad:
        unread = UnreadableLines(bad)
        try:
            with whole_or_nothing(out) as good:
                rows = read(inputs, format=format, mapping=mapping, outcome=outcome, on_error=unread.add, strict=strict)
                for original in counting(rows, "converting"):
                    trajectory = cut(original) if cut_verdicts else original
                    shortened += trajectory is not original
                    unknown += trajectory.outcome is None and original.outcome is not None
                    feedback = judged.of(trajectory)  # a judgement of the whole may be of what was cut
                    if to in OF_SCORES and (
                        feedback is None or (to is OutputFormat.INSPECT and feedback.score is None)
                    ):
                        unscored += 1
                        continue
                    try:
                        line = _line(trajectory, to, feedback, judged.time_ns)
                    except ValueError as error:
                        refused = _refused(trajectory, error)
                        unread.add(refused)
                        if strict:
                            raise refused from error
                        continue
                    good.write(line + "\n")
                    formats[str(trajectory.source.format if trajectory.source else None)] += 1
                    below += PARENT in trajectory.meta
                    others.update(beside(trajectory))
                if not formats and not unscored:
                    raise NothingRead(
                        f"no transcript could be read, so {out} was not written; the first: {unread.first}"
                    )
                judged.check()
                if not formats:
                    raise NothingRead(f"no transcript has a score, so {out} was not written; {unscored} have none")
        except ReadError as error:
            stopped = f"stopped by --strict: {error}"
        except NothingRead as error:
            stopped = str(error)
    if errors_out and not unread.count:
        errors_out.unlink()
    if stopped or unread.count:
        problem = "have no place in this form, or could not be read" if to in OF_SCORES else "could not be read"
        complaint = f"{unread.count} lines {problem}; the first: {unread.first}"
        typer.echo(stopped or complaint, err=True)
    cuts = {"cut": shortened, "outcomes_unknown_after_cut": unknown} if cut_verdicts else {}
    scored = {"without_score": unscored} if to in OF_SCORES else {"scored": judged.used} if scores is not None else {}
    scored |= {"rows_without_transcript": len(judged.rows.strays)} if scores is not None else {}
    finish(
        {
            "converted": 0 if stopped else formats.total(),
            **cuts,
            **scored,
            "formats": dict(formats),
            **({"subagents": below} if below else {}),
            **others,
            "output": None if stopped else str(out),
            "unreadable": unread.count,
            "errors": str(errors_out) if errors_out and unread.count else None,
        },
        err=is_stdout(out),
    )
    if unread.count or stopped:
        raise typer.Exit(1)


def _line(trajectory: Trajectory, to: OutputFormat, feedback: Feedback | None, time_ns: int) -> str:
    """Format a line, ASCII only; raises `ValueError` where the form has no place for the transcript."""
    if to is OutputFormat.CANONICAL:
        return trajectory.to_json()
    from rrm.readers.exports import to_atif, to_inspect, to_otel

    if feedback is not None and to is OutputFormat.OTEL:
        return json.dumps(to_otel(trajectory, feedback, time_ns))
    if feedback is not None and to is OutputFormat.INSPECT:
        return json.dumps(to_inspect(trajectory, feedback))
    return json.dumps(to_atif(trajectory, feedback))


def _refused(trajectory: Trajectory, error: ValueError) -> ReadError:
    """Make the error, with its place, of a transcript that the form has no place for."""
    source = trajectory.source
    return ReadError(source.file if source else trajectory.id, source.line if source else None, describe(error))
