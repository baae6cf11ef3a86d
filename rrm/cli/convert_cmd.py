"""`rrm convert`: transcripts from any framework into canonical JSONL."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import typer

from rrm.cli import finish
from rrm.cli.reading import OUTCOME, counting
from rrm.errors import ConfigError, ReadError


def errors_path(out: Path) -> Path:
    """`OUT.jsonl` -> `OUT.errors.jsonl`."""
    return out.with_name(f"{out.stem if out.suffix in ('.jsonl', '.json') else out.name}.errors.jsonl")


def refuse_overlap(inputs: Iterable[str], out: Path) -> None:
    """`ConfigError` where the output is, or lies inside, an input: the next run would read its own output."""
    target = out.resolve()
    for name in inputs:
        source = Path(name).resolve()
        if name != "-" and (source == target or (source.is_dir() and source in target.parents)):
            raise ConfigError(f"-o {out} lies in the input {name}: write it elsewhere, or the next run reads it too")


@contextlib.contextmanager
def whole_or_nothing(path: Path) -> Iterator[IO[str]]:
    """A file that appears under its name only when all of it is written; an interruption leaves nothing behind."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "w", encoding="ascii") as out:
            yield out
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def command(
    inputs: list[str] = typer.Argument(..., metavar="IN…", help="Files, folders or - (standard input)."),
    out: Path = typer.Option(..., "-o", "--out", help="Canonical JSONL to write."),
    format: str = typer.Option("auto", help="auto, or a format's name (a wrong name lists them)."),
    map: list[str] = typer.Option([], help="field=path for any other JSON, e.g. --map messages=log.turns; repeatable."),
    outcome: str | None = OUTCOME,
    cut_verdicts: bool = typer.Option(
        False, "--cut-verdicts", help="End each transcript before the environment first tells how it was graded."
    ),
    strict: bool = typer.Option(False, help="Stop at the first line that cannot be read; nothing is written."),
) -> None:
    """Read transcripts of any format and write one canonical Trajectory a line.

    Lines that cannot be read go to OUT.errors.jsonl as {path, line, reason}; the rest is converted and the exit code
    is 1.
    """
    from rrm.readers import read
    from rrm.readers.leaks import cut_verdicts as cut
    from rrm.readers.mapping import parse_pairs

    refuse_overlap(inputs, out)
    mapping = parse_pairs(map) if map else None
    out.parent.mkdir(parents=True, exist_ok=True)
    errors_out = errors_path(out)
    formats: Counter[str] = Counter()
    failed, stopped, shortened, unknown = 0, False, 0, 0
    with whole_or_nothing(errors_out) as bad:

        def on_error(error: ReadError) -> None:
            nonlocal failed
            failed += 1
            bad.write(json.dumps({"path": error.path, "line": error.line, "reason": error.reason}) + "\n")

        try:
            with whole_or_nothing(out) as good:
                rows = read(inputs, format=format, mapping=mapping, outcome=outcome, on_error=on_error, strict=strict)
                for whole in counting(rows, "converting"):
                    trajectory = cut(whole) if cut_verdicts else whole
                    shortened += trajectory is not whole
                    unknown += trajectory.outcome is None and whole.outcome is not None
                    good.write(trajectory.to_json() + "\n")
                    formats[str(trajectory.source.format if trajectory.source else None)] += 1
        except ReadError as error:
            stopped = True
            typer.echo(f"stopped by --strict: {error}", err=True)
    if not failed:
        errors_out.unlink()
    cuts = {"cut": shortened, "outcomes_unknown_after_cut": unknown} if cut_verdicts else {}
    finish(
        {
            "converted": 0 if stopped else formats.total(),
            **cuts,
            "errors": failed,
            "formats": dict(formats),
            "out": None if stopped else str(out),
            "errors_out": str(errors_out) if failed else None,
        }
    )
    if failed:
        raise typer.Exit(1)
