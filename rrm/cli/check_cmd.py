"""`rrm check`: what to know about a data set before training on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rrm.cli import finish
from rrm.cli.reading import OUTCOME, counting, mapping_of, refuse_missing
from rrm.cli.tables import for_people, print_table
from rrm.errors import ReadError, RRMError

if TYPE_CHECKING:
    from rrm.readers.check import DataReport

SHOWN = 20  # files whose formats the table names; the JSON has more
NO_RESULTS = (
    "a judge then cannot tell whether a call worked. Log what each call returned as a message of role tool with its tool_call_id, right "
    "behind the call, or name the log's format (--format)"
)
ERRORS = 5  # unreadable lines that the table explains


def command(
    data: list[str] = typer.Argument(..., metavar="DATA…", help="Files, folders or - (standard input), any format."),
    split: Path | None = typer.Option(None, help='{"train": [question ids], "calibration": […], "test": […]} as JSON.'),
    format: str = typer.Option("auto", help="auto, or a format's name."),
    map: list[str] = typer.Option([], help="field=path for any other JSON; repeatable."),
    outcome: str | None = OUTCOME,
) -> None:
    """Report duplicates, label balance, lengths, questions per split and leaks.

    Exit code 1 when something crosses from one split into another, when outcomes were read from a field that is not on
    [0, 1] in other rows, or when lines cannot be read; 2 when none can.
    """
    from rrm.data.splits import load_split
    from rrm.readers import read
    from rrm.readers.check import check

    refuse_missing(data)
    errors: list[ReadError] = []
    failed = 0

    def on_error(error: ReadError) -> None:
        nonlocal failed
        failed += 1
        if len(errors) < ERRORS:
            errors.append(error)

    listed = load_split(split, parts=()) if split is not None else None
    rows = read(data, format=format, mapping=mapping_of(map), outcome=outcome, on_error=on_error)
    report = check(counting(rows, "checking"), listed)
    if for_people():
        for table in tables(report, failed, errors):
            print_table(table)
    else:
        figures = dataclasses.asdict(report) | dataclasses.asdict(report.files)
        finish(figures | {"leaks": report.leaks, "unreadable": failed})
    if not report.rows:
        raise RRMError("no transcript could be read" + (f": {errors[0]}" if errors else ""))
    if failed or report.leaks or report.other_scale_complaint:
        raise typer.Exit(1)


def tables(report: DataReport, failed: int, errors: list[ReadError]) -> list:
    """Make rich tables of the report: the data set, then its splits if given."""
    from rich.markup import escape
    from rich.table import Table

    from rrm.readers import READERS
    from rrm.readers.base import printable
    from rrm.readers.formats import known
    from rrm.readers.outcomes import guessed_scale
    from rrm.scoring.unsupported_media import SEES, is_picture

    main = Table("what", "value", "note", title="data", title_justify="left")

    def row(label: str, value: object, note: object = "", bad: bool = False) -> None:
        text = escape(printable(str(note), limit=10_000))  # ids are whatever a log says
        main.add_row(label, f"{value:,}" if isinstance(value, int) else str(value), text, style="red" if bad else "")

    formats = ", ".join(f"{name} {count:,}" for name, count in sorted(report.formats.items(), key=lambda f: -f[1]))
    row("trajectories", report.rows, formats)
    for line, count in report.files.lines(SHOWN):
        row("", count, line)
    reasons = [printable(str(error).removesuffix(known(READERS))) for error in errors]
    row("unreadable", failed, reasons[0] if reasons else "", bad=failed > 0)
    for error in reasons[1:]:
        row("", "", error, bad=True)
    if failed > len(reasons):
        row("", "", f"and {failed - len(reasons):,} more", bad=True)
    labelled = report.rows - report.unlabelled
    share = f"{report.positive / labelled:.1%} of the labelled" if labelled else "no labels"
    row("successes", report.positive, share)
    row("failures", report.negative, f"{report.partial:,} partial, {report.unlabelled:,} unlabelled")
    row("outcomes read from", labelled, ", ".join(f"{name} {n:,}" for name, n in report.outcome_fields.items()))
    for name, n in report.unread_outcomes.items():
        turned = ", true as a failure, as its name says" if name.endswith(":1..0") else ""
        note = f"not read, it may mean something else; --outcome '{name}?' reads it{turned}"
        row(f"perhaps outcomes: {name}", n, note)
    for name, (n, low, high) in report.ratings.items():
        if scale := guessed_scale(low, high):
            note = f"{low:g} to {high:g}, not read; --outcome '{name}:{scale}?' maps the scale {scale} onto [0, 1]"
            row(f"perhaps marks: {name}", int(n), note)
    for name, n in report.other_scales.items():
        row(f"not on [0, 1]: {name}", n, "no outcome is read there")
    if report.other_scale_complaint:
        row("outcomes of another scale", "", report.other_scale_complaint, bad=True)
    both = f"{report.attempts_per_question} attempts each; {report.questions_with_both_labels:,} with both labels"
    row("questions", report.questions, both + (f"; {report.no_question:,} rows without" if report.no_question else ""))
    for name, q in (("steps", report.steps), ("characters", report.characters)):
        if q:
            row(
                f"{name}, median",
                int(q["p50"]),
                f"mean {q['mean']:,}, 90 % {q['p90']:,}, 99 % {q['p99']:,}, most {q['max']:,}",
            )
    if report.without_results:
        every = report.without_results == report.with_calls
        note = f"{'every tool result is missing' if every else f'of {report.with_calls:,} with calls'}: {NO_RESULTS}"
        row("runs with calls and no result", report.without_results, note, bad=every)
    row("runs without a step", report.no_steps, "the agent never spoke" if report.no_steps else "")
    for part_type, n in report.unsupported_media.items():
        note = f"no judge is shown them, only [{part_type}] in their place"
        row(f"runs with parts that are no text: {part_type}", n, SEES if is_picture(part_type) else note)
    row("repeated ids", report.repeated_id_rows, ", ".join(report.repeated_ids))
    row("duplicates", report.duplicate_rows, "; ".join(f"{a} = {b}" for a, b in report.duplicates))
    leaks = f"{report.verdicts:,} verdicts by the environment; rrm convert --cut-verdicts cuts there; e.g. "
    row("outcome in the text", report.outcome_leak_rows, _examples(leaks, report.outcome_leaks))
    reference_note = f"of {report.reference_rows:,} with a reference: retrieval, or a tool that reads the answer key"
    row("reference in a tool result", report.reference_in_tools_rows, reference_note if report.reference_rows else "")
    return [main, *([_splits(report)] if report.splits else [])]


def _examples(prefix: str, names: list[str]) -> str:
    return prefix + ", ".join(names) if names else ""


def _splits(report: DataReport):
    from rich.markup import escape
    from rich.table import Table

    table = Table("split", "questions seen / listed", "rows", "successes", title="splits", title_justify="left")
    for name, s in report.splits.items():
        table.add_row(
            escape(name), f"{s['questions_seen']:,} / {s['questions_listed']:,}", f"{s['rows']:,}", f"{s['positive']:,}"
        )
    for leak, count, examples in (
        ("questions in two splits", len(report.questions_in_two_splits), report.questions_in_two_splits[:5]),
        ("same question text, other id", len(report.same_question_text), report.same_question_text[:5]),
        ("near-duplicate transcripts", report.near_duplicate_pairs, report.near_duplicates),
    ):
        note = escape(", ".join(map(str, examples)))
        table.add_row(f"LEAK: {leak}" if count else leak, f"{count:,}", note, "", style="red" if count else "green")
    return table
