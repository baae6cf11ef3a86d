"""`rrm choose`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import typer

from rrm.cli import finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.reading import OUTCOME, ErrorLog, check_paths, mapping_of, read_inputs
from rrm.cli.score_cmd import Modes, chosen_mode, load_judge
from rrm.data.feedback import Mode
from rrm.errors import ConfigError


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="TRANSCRIPTS...", help="Files, folders, or - for standard input."),
    output: Path = typer.Option(..., "-o", "--output", metavar="CHOSEN.jsonl", help="One transcript a question."),
    by: list[str] = typer.Option(
        ["judge"],
        metavar="STRATEGY",
        help="judge, weighted (votes by the judge's scores), majority, longest, shortest, random, oracle (a comma list, or all): the first one's choice is written, "
        "the others' success is said beside.",
    ),
    scores: Path | None = typer.Option(
        None, metavar="SCORED.jsonl", help="The judge's scores, as `rrm score -o` wrote them; no judge is loaded."
    ),
    mode: Modes | None = typer.Option(
        None, help="The judge's mode. Default: the judge's own, score where it names none.", show_default=False
    ),
    seed: int = typer.Option(0, help="Of ties between attempts, of the judge's replies, of intervals."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    strict: bool = typer.Option(False, "--strict", help="Stop at the first line that cannot be read."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Choose again, dropping what CHOSEN.jsonl holds."),
    *,
    judge: JudgeOptions,
) -> None:
    """Choose one of several attempts at each question: by a judge, or by what needs none. Answers are not needed.

    Where outcomes are known, the summary says how often each strategy's choice is right. Many transcripts are best judged
    with `rrm score` first, which goes on where it was stopped, and chosen with --scores. Exit code 1: some lines could not be
    read.
    """
    from rrm.data.output import WAY_OUT
    from rrm.data.trajectory import write_jsonl
    from rrm.evaluation.choosing import OF_SCORES, strategies_of
    from rrm.scoring.choose import check_choice, choose, judge_scores, read_scores
    from rrm.scoring.unsupported_media import unsupported_media

    strategies = strategies_of(by)
    if not strategies:
        raise ConfigError("--by names no strategy: give judge, or another one")
    of_judge = [*judge.given, *["--mode"] * (mode is not None)]
    if scores is not None and of_judge:
        raise ConfigError(f"--scores has the judge's scores already: leave out {', '.join(of_judge)}")
    if judge.max_cost is not None:
        raise ConfigError(
            "--max-cost is of runs that can go on: score with `rrm score` first, and choose with --scores"
        )
    if not OF_SCORES & {*strategies} and (scores is not None or of_judge):
        options = ", ".join([*["--scores"] * (scores is not None), *of_judge])
        raise ConfigError(
            f"scores are for --by judge or weighted, which is not asked for: name it, or leave out {options}"
        )
    check_paths(inputs, output, None)
    if output.is_file() and output.stat().st_size and not overwrite:
        raise ConfigError(f"{output} holds transcripts already; {WAY_OUT}")
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    with ErrorLog(output) as errors:
        rows = list(read_inputs(inputs, errors, strict=strict, **reading))
        check_choice(rows, strategies)
        row_scores: list[float | None] | None = None
        figures: dict[str, Any] = {}
        if scores is not None:
            row_scores = read_scores(scores, rows)
        elif OF_SCORES & {*strategies}:
            loaded = load_judge(judge)
            judge_mode = cast(Mode, chosen_mode(mode, loaded, Modes.score))
            figures["unsupported_media"] = unsupported_media(rows, sees=getattr(loaded, "images", None) is not None)
            row_scores = judge_scores(loaded, rows, judge_mode, seed)
        chosen = choose(rows, strategies, row_scores, seed=seed)
        write_jsonl(output, chosen.transcripts)
    finish(
        {
            "output": str(output),
            "by": strategies[0],
            **chosen.figures,
            **figures,
            "unreadable": errors.count,
            "errors": errors.written_to,
        }
    )
    if errors.count:
        raise typer.Exit(1)
