"""`rrm estimate`: how many runs succeeded, from a judge's scores of all and labels of a few."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from rrm.cli import finish
from rrm.cli.reading import refuse_missing
from rrm.cli.tables import print_table
from rrm.readers.base import printable

log = logging.getLogger(__name__)


def command(
    scored: list[Path] = typer.Argument(
        ..., metavar="SCORED.jsonl...", help="Outputs of rrm score; several: compared."
    ),
    labels: list[Path] = typer.Option(
        ..., metavar="LABELS.jsonl", help="Labels of some of these runs, as rrm label writes them, or a table."
    ),
    chosen: Path | None = typer.Option(
        None, metavar="FILE", help="What rrm label --choose chose. Default: LABELS.chosen.jsonl, where it is there."
    ),
    by: str | None = typer.Option(
        None, metavar="FIELD", help="Groups of runs by a field of their rows, e.g. source.file."
    ),
) -> None:
    """Estimate the share of runs that succeeded, and the share with each kind of mistake, with 95 % intervals.

    The judge's scores of all runs and the labels of a few are put together (prediction-powered inference). The interval holds even for a bad judge; a good one
    narrows it. Labels must be of runs drawn at random, or by rrm label --choose.
    """
    finish(estimates_of(scored, labels, chosen, by), ())


def estimates_of(
    scored: list[Path], labels: list[Path], chosen: Path | None = None, by: str | None = None
) -> dict[str, Any]:
    """Return the estimates, and print them as a table on standard error."""
    from rrm.annotate.label_choice import chances_by_digest, chosen_path, read_chosen
    from rrm.data.annotation import read_annotations
    from rrm.scoring.label_estimates import estimates, label_figures, read_scored

    refuse_missing([*map(str, scored), *map(str, labels), *([str(chosen)] if chosen else [])])
    runs = read_scored(scored, by)
    beside = [chosen] if chosen else [path for path in map(chosen_path, labels) if path.is_file()]
    drawn = [read_chosen(path) for path in beside]
    chances = chances_by_digest([run for one in drawn for run in one]) if beside else None
    figures = estimates(runs, label_figures(read_annotations(*labels), runs), chances)
    if chances is None:
        log.warning("no file says how the labelled runs were chosen: the figures hold if they were drawn at random")
    elif (now := len({run.digest for run in runs})) > (then := sum(one[0].n_runs for one in drawn if one)):
        log.warning(
            "the labelled runs were chosen from %d, and here are %d: later ones are taken to be like those", then, now
        )
    for figure, n in figures["without_a_label"].items():
        if n:
            log.warning(
                "%d runs %s have no label for %r (not reached, unsure): they are taken to be like the labelled ones",
                n,
                "with another label" if chances is None else "that were chosen",
                figure,
            )
    for name, reason in (
        ("labels_of_other_runs", "of no run here, or of an id that several have,"),
        ("labels_not_chosen", "of runs that were not chosen"),
    ):
        if figures[name]:
            log.warning("%d labels are %s and were left out", figures[name], reason)
    show_estimates(figures)
    return figures


def show_estimates(figures: dict[str, Any]) -> None:
    """Print the figures as a table on standard error."""
    several = len(figures["groups"]) > 1
    table = Table(
        *(["runs of"] if several else []),
        "share that",
        "estimate",
        "95 %",
        "labels alone",
        "labels",
        "half as wide with",
    )
    if several:
        table.add_column("against the first")
    for group, group_figures in figures["groups"].items():
        for figure, value in group_figures.items():
            if figure == "runs":
                continue
            low, high = value["labels_alone"]
            cells = [
                figure, f"{value['value']:.3f}", f"{value['low']:.3f} to {value['high']:.3f}", f"{low:.3f} to {high:.3f}",
                f"{value['labels']} of {value['runs']}", f"{value['to_halve']} more",
            ]  # fmt: skip
            against = value.get("against_first")
            last = (
                "" if against is None else f"{against['value']:+.3f} ({against['low']:+.3f} to {against['high']:+.3f})"
            )
            table.add_row(*map(Text, ([printable(group)] if several else []) + cells + ([last] if several else [])))
    print_table(table, stderr=True)
