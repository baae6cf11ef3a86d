"""`rrm merge`: the rows of several runs of one judge as one file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from rrm.cli import finish
from rrm.cli.paths import ready_outputs


def command(
    inputs: list[Path] = typer.Argument(..., metavar="ROWS.jsonl...", help="Outputs of rrm score, e.g. of its shards."),
    output: Path = typer.Option(..., "-o", "--output", metavar="OUT.jsonl", help="One row per transcript."),
    partial: bool = typer.Option(
        False, "--partial", help="Take what is there where shards are missing or not finished."
    ),
    overwrite: bool = typer.Option(False, "--overwrite", help="Write over OUT."),
) -> None:
    """Put the outputs of rrm score together, of shards in their order: the file is that of the run as a whole.

    All must be of one judge and one making, and no id may occur twice. Missing and unfinished shards are named.
    """
    from rrm.scoring.sharding import merge

    ready_outputs(output)
    finish(asdict(merge(inputs, output, overwrite=overwrite, partial=partial)))
