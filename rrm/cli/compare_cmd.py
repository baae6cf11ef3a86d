"""`rrm compare`: blind sheets of two judges' critiques, and the analysis of those that come back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from rrm.cli import finish
from rrm.cli.paths import ready_outputs
from rrm.cli.reading import mapping_of, read_inputs, refuse_missing, refuse_overlap
from rrm.cli.report_cmd import beside, check_common, holds_rows, load_rows, match, named_sources
from rrm.cli.tables import figure_text, print_table
from rrm.data.output import file_when_whole
from rrm.errors import ConfigError, RRMError
from rrm.readers.base import printable


def command(
    files: list[str] = typer.Argument(
        ...,
        metavar="A.jsonl B.jsonl | RETURNED.json...",
        help="Two judges' rows of `rrm score` on the same transcripts; with --analyse the files that came back.",
    ),
    sheet: Path | None = typer.Option(
        None, metavar="OUT.html", help="Make a blind sheet; its key goes to OUT.key.json, which stays with you."
    ),
    analyse: Path | None = typer.Option(None, metavar="KEY.json", help="Read answers with the key of their sheet."),
    transcripts: list[str] = typer.Option(
        [], metavar="IN", help="The transcripts that were judged. Default: the files the rows name."
    ),
    items: int | None = typer.Option(None, min=1, help="At most so many transcripts, drawn by seed. Default: all."),
    category: str | None = typer.Option(
        None, metavar="FIELD", help="Field of a transcript's meta that figures are given apart by, e.g. source."
    ),
    scores: bool = typer.Option(False, "--scores", help="Show the judges' scores as well."),
    seed: int | None = typer.Option(
        None, help="Of order and sides; with --analyse of the intervals. Default: drawn, and kept in the key."
    ),
    overwrite: bool = typer.Option(
        False, "--overwrite", help="Make OUT.html and its key anew; answers to the earlier sheet are then of no use."
    ),
    output: Path | None = typer.Option(None, "-o", "--output", metavar="OUT.json", help="--analyse: all figures."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
) -> None:
    """Let people say which of two judges writes the better critiques, without knowing whose is which.

    rrm compare A.jsonl B.jsonl --sheet sheet.html writes a page to hand out, which works from the keyboard and saves answers as a file. rrm compare --analyse
    sheet.key.json answers-*.json gives win rates, ties, agreement between raters and the share of left, with 95 % intervals over questions.
    """
    if (sheet is None) == (analyse is None):
        raise ConfigError("say --sheet OUT.html to make a sheet, or --analyse KEY.json to read answers")
    refuse_missing(files)
    if analyse is not None:
        for name, value in (("--transcripts", transcripts), ("--items", items), ("--category", category)):
            if value:
                raise ConfigError(f"{name} goes with --sheet")
        finish(_analyse(analyse, files, output, seed or 0))
        return
    assert sheet is not None
    if output is not None:
        raise ConfigError("-o goes with --analyse: the sheet's own name is --sheet OUT.html")
    if len(files) != 2:
        raise ConfigError(
            f"a sheet compares two files of rows, not {len(files)}: rrm compare A.jsonl B.jsonl --sheet OUT.html"
        )
    how: dict[str, Any] = {"format": format, "mapping": mapping_of(map)}
    drawn = secrets.randbits(63) if seed is None else seed
    finish(
        _sheet(
            Path(files[0]),
            Path(files[1]),
            sheet,
            transcripts,
            how,
            overwrite,
            seed=drawn,
            items=items,
            category=category,
            scores=scores,
        )
    )


def key_of(sheet: Path) -> Path:
    """`OUT.html` → `OUT.key.json`."""
    return sheet.with_name(f"{sheet.stem if sheet.suffix in ('.html', '.htm') else sheet.name}.key.json")


def _sheet(
    a: Path, b: Path, sheet: Path, transcripts: list[str], how: dict[str, Any], overwrite: bool, **options: Any
) -> dict[str, Any]:
    from rrm.annotate.comparison_sheet import Pair, make_sheet, write_sheet

    key_path = key_of(sheet)
    for path in (sheet, key_path):
        refuse_overlap([str(a), str(b), *transcripts], path)
    ready_outputs(sheet, key_path)
    if key_path.exists() and not overwrite:
        raise ConfigError(f"{key_path} is the key of a sheet that may be out: choose another --sheet, or --overwrite")
    for path in (a, b):
        if not holds_rows(str(path)):
            raise ConfigError(f"{path} does not hold rows of `rrm score`: judge the transcripts first")
    rows, second = load_rows(a), load_rows(b)
    check_common(rows, second, a, b)
    inputs = transcripts or named_sources([*rows, *second], a)
    refuse_missing(inputs)
    counts = {"without_transcript": 0, "transcripts_without_row": 0}
    other = beside(second)

    def pairs() -> Iterator[Pair]:
        any_pair = False
        for trajectory, row in match(rows, read_inputs(inputs, None, **how), counts):
            if trajectory.messages:
                any_pair = True
                yield trajectory, row, other(trajectory, row)
        if not any_pair and counts["without_transcript"]:
            raise RRMError(
                f"none of the {counts['without_transcript']} rows of {a} is of a transcript in {', '.join(inputs)}: name the transcripts "
                "that were judged (--transcripts)"
            )

    models = [
        next((str(row["judge"].get("model")) for row in judged if isinstance(row.get("judge"), dict)), "?")
        for judged in (rows, second)
    ]
    names = (f"{a} ({models[0]})", f"{b} ({models[1]})")
    entries, key = make_sheet(pairs(), names, **options)
    write_sheet(entries, key, sheet, key_path)
    left_out = key.left_out | ({"without transcript": n} if (n := counts["without_transcript"]) else {})
    summary = {"sheet": str(sheet), "key": str(key_path), "items": len(entries), "left_out": left_out, "seed": key.seed}
    if options["category"] is not None:
        summary["without_category"] = sum(item.category is None for item in key.items.values())
    return summary


def _analyse(key_path: Path, files: list[str], output: Path | None, seed: int) -> dict[str, Any]:
    from rrm.annotate.comparison_analysis import analyse, read_answers, read_key

    if output is not None:
        for name in (str(key_path), *files):
            refuse_overlap([name], output)
        ready_outputs(output)
    key = read_key(key_path)
    figures = analyse(key, read_answers([Path(name) for name in files], key), seed=seed)
    table = Table("", "answers", "A wins", "B wins", "ties", "A's win rate", "left chosen")
    rows = [("all", figures)] + [(f"rater {printable(n)}", f) for n, f in figures["by_rater"].items()]
    rows += [(printable(n), f) for n, f in figures["by_category"].items()]
    for name, group in rows:
        counts = (str(group[column]) for column in ("answers", "a_wins", "b_wins", "ties"))
        table.add_row(*map(Text, (name, *counts, figure_text(group["win_rate_a"]), figure_text(group["left"]))))
    print_table(table, stderr=True)
    typer.echo(f"A: {printable(figures['a'])}\nB: {printable(figures['b'])}", err=True)
    if output is not None:
        with file_when_whole(output) as file:
            json.dump(figures, file, indent=1)
            file.write("\n")
    return {**figures, "output": None if output is None else str(output)}
