"""`rrm rank`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import typer

from rrm.cli import STOPPED, finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.reading import OUTCOME, ErrorLog, check_paths, mapping_of, read_inputs
from rrm.errors import ConfigError
from rrm.readers.base import printable

log = logging.getLogger(__name__)


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="TRANSCRIPTS...", help="Files, folders, or - for standard input."),
    output: Path = typer.Option(..., "-o", "--output", metavar="RANKED.jsonl", help="One row a transcript."),
    heat: int = typer.Option(6, min=2, max=26, help="Attempts of a prompt at most; larger groups are read in heats."),
    both_orders: bool = typer.Option(
        False, "--both-orders", help="Show each heat in the opposite order, too: twice the requests."
    ),
    seed: int = typer.Option(0, help="Of heats and orders."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    strict: bool = typer.Option(False, "--strict", help="Stop at the first line that cannot be read."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Rank everything again, dropping OUT's rows."),
    retry_errors: bool = typer.Option(
        False, "--retry-errors", help="Rank questions again with a judge_error, unparsable or truncated row."
    ),
    *,
    judge: JudgeOptions,
) -> None:
    """Compare attempts at one question with each other, in one prompt: relative scores in [0, 1], by a chat model.

    Attempts at one question have one `question_id`, or one task text and none. `rrm choose --scores RANKED.jsonl` takes the best of
    each. A killed run goes on where it stopped when the same command is given again. Exit code 1: some lines could not be read, the
    judge could not be reached for some rows, or no attempt could be placed. Exit code 4: --max-cost was reached, and questions are left.
    """
    from rrm.judge.rank import bias_complaint, check_ranks
    from rrm.scoring.ranking import rank_file

    if judge.model is None:
        raise ConfigError("say which chat model compares: --model openai:BASE_URL#model, or a folder with its weights")
    if judge.images:
        raise ConfigError(
            f"--images {judge.images}: attempts are compared in words, no picture is sent; leave it out, or judge one run at a time (rrm score)"
        )
    check_paths(inputs, output, None)
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    with ErrorLog(output) as errors:
        rows = list(read_inputs(inputs, errors, strict=strict, **reading))
        if not rows:
            log.error("no attempt could be placed: the input holds none")
            nothing = {"output": str(output), "questions": 0, "rows": 0, "resumed": 0, "statuses": {}}
            finish({**nothing, "unreadable": errors.count, "errors": errors.written_to})
            raise typer.Exit(1)
        loaded = judge.load()
        check_ranks(loaded, heat)
        how: dict[str, Any] = {"size": heat, "both_orders": both_orders, "seed": seed}
        summary = rank_file(loaded, rows, output, overwrite=overwrite, retry_errors=retry_errors, **how)
    unjudged, scored = summary["statuses"].get("judge_error", 0), summary["statuses"].get("scored", 0)
    bias = summary["position_bias"]
    if bias["first_won"] is not None:
        agree = "" if bias["orders_agree"] is None else f", {bias['orders_agree']:.0%} the same in both orders"
        log.info(
            "position: the attempt shown first won %.0f%% of %d decided pairs%s",
            100 * bias["first_won"],
            bias["pairs"],
            agree,
        )
    if complaint := bias_complaint(bias):
        log.warning("%s", complaint)
    stopped = summary["stopped"]
    if stopped:
        log.warning("stopped: %s", stopped)
    elif not scored:
        log.error("no attempt could be placed: %s", printable(str(summary["first_failure"] or "the input holds none")))
    finish({**summary, "unreadable": errors.count, "errors": errors.written_to})
    if stopped:
        raise typer.Exit(STOPPED)
    if errors.count or unjudged or not scored:
        raise typer.Exit(1)
