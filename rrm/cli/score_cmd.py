"""`rrm score`: judge transcripts."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from rrm.cli import STOPPED, finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.paths import beside
from rrm.cli.reading import OUTCOME, ErrorLog, begun, check_paths, mapping_of, read_inputs
from rrm.cli.score_table import score_lines
from rrm.cli.tables import for_people
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.readers.base import printable
from rrm.readers.formats import FileFormats
from rrm.scoring.row_matching import digest_of
from rrm.scoring.sharding import Shard

if TYPE_CHECKING:
    from rrm.judge.agent_rrm import AgentRRM

log = logging.getLogger(__name__)


class Modes(StrEnum):
    full = "full"
    critique = "critique"
    score = "score"
    steps = "steps"


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="IN...", help="Files, folders, or - for standard input."),
    output: Path | None = typer.Option(
        None,
        "-o",
        "--output",
        metavar="OUT.jsonl",
        help="One row per transcript; - for standard output. Default: IN.scored.jsonl.",
        show_default=False,
    ),
    mode: Modes | None = typer.Option(
        None,
        help="full: trace, critique, score; critique: without trace; score: alone; steps: the probability that each step was "
        "good, and the score. Default: the judge's own, full where it names none.",
        show_default=False,
    ),
    samples: int = typer.Option(1, min=1, help="Judgements per transcript; the score is their mean."),
    seed: int = typer.Option(0, help="Each transcript's seed derives from this and its id."),
    html: Path | None = typer.Option(None, metavar="REPORT.html", help="Also write a page to read the judgements in."),
    dry_run: bool = typer.Option(
        False,
        "--dry-run",
        help="Print rows, tokens and an estimate, of money too where --price is given (times a few transcripts; calls no server).",
    ),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    shard: str | None = typer.Option(
        None,
        metavar="I/N",
        help="Judge the I-th of N consecutive parts of the input; rrm merge puts the outputs together.",
    ),
    escalate: str | None = typer.Option(
        None,
        metavar="MODEL",
        help="A stronger judge, named as --model, that judges again what --model is unsure of, worst first. --price, --max-cost and the other options of servers are then its own.",
    ),
    escalate_share: float | None = typer.Option(
        None,
        min=0,
        max=1,
        help="Share of the rows that --model is sure of which go to the stronger judge, too, to see how often they agree. Default: 0.05.",
    ),
    strict: bool = typer.Option(False, "--strict", help="Stop at the first line that cannot be read."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Judge everything again, dropping OUT's rows."),
    retry_errors: bool = typer.Option(
        False, "--retry-errors", help="Judge rows with status judge_error, unparsable or truncated again."
    ),
    *,
    judge: JudgeOptions,
) -> None:
    """Judge transcripts: one row of trace, critique and calibrated score each.

    A killed run goes on where it stopped when the same command is given again. Lines that cannot be read go to
    OUT.errors.jsonl. Exit code 1: some lines could not be read, the judge could not be reached for some rows, or no row
    has a usable score; other rows without one (unparsable, truncated, too_long) are counted in the summary. Exit code 4: --max-cost
    was reached, and transcripts are left.

    With --escalate the rows that --model is unsure of go to a stronger judge. OUT.small.jsonl and OUT.escalated.jsonl hold what each judge
    said; a row of OUT says in `escalated` whose it is.
    """
    from rrm.scoring.cascade import score_cascade
    from rrm.scoring.estimate import estimate
    from rrm.scoring.run import score_file

    to_stdout, default = str(output) == "-" and not dry_run, output is None and not dry_run
    scratch = tempfile.TemporaryDirectory()
    if to_stdout:
        output = Path(scratch.name, "rows.jsonl")
    elif default:
        output = beside(inputs, ".scored.jsonl")
    if escalate is None and escalate_share is not None:
        raise ConfigError("--escalate-share is of --escalate: name the stronger judge")
    if escalate is not None and dry_run:
        raise ConfigError(
            "--dry-run knows no --escalate: which rows go on shows once --model has read them; estimate each judge by --model"
        )
    check_paths(inputs, *((None, None) if dry_run else (output, html)))
    if default:
        log.info("the rows go to %s", output)
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    chosen = None if shard is None else Shard.parse(shard)
    with ErrorLog(None if dry_run or to_stdout else output) as errors:
        rows = begun(read_inputs(inputs, errors, strict=strict, **reading))
        if rows is None and chosen is None:
            finish_empty(Path("-") if to_stdout else output, dry_run, errors)
        first, second = (judge, None) if escalate is None else judge.escalating(escalate)
        loaded, stronger = load_judge(first), None if second is None else load_judge(second)
        total = None if dry_run and chosen is None else count_inputs(inputs, reading)
        trajectories = part_of(rows or (), chosen, total)
        run: dict[str, Any] = {"mode": chosen_mode(mode, loaded, Modes.full), "samples": samples, "seed": seed}
        if dry_run:
            options = judge.server()
            if options is not None:
                run |= {"prices": options.prices, "thinking_tokens": options.thinking_tokens or 0}
            served = getattr(loaded, "prompter", loaded) is None
            # a server's time is not ours to measure, and asking costs money
            formats = FileFormats()
            figures = estimate(loaded, formats.counted(trajectories), probe=0 if served else 4, **run)
            summary = {"dry_run": True, **asdict(figures), **asdict(formats)}
        elif output is not None:
            run |= {"overwrite": overwrite, "retry_errors": retry_errors}
            if chosen is not None and total is not None:
                run["settings"] = chosen.settings(total)
            expected = chosen.rows_of(total) if chosen is not None and total is not None else total
            if stronger is None:
                done = score_file(loaded, trajectories, output, total=expected, **run)
            else:
                run |= escalation_of(stronger, mode, escalate_share)
                run["mode"] = mode_of_small(run["mode"], loaded)
                done = score_cascade(loaded, stronger, trajectories, output, total=expected, **run)
            summary = asdict(done)
            if html is not None and done.stopped is None:
                from rrm.report import write_report

                again = part_of(read_inputs(inputs, None, **reading), chosen, total)
                write_report(pair_rows(again, output), html)
                summary["html"] = str(html)
    unjudged = summary.get("statuses", {}).get("judge_error", 0)
    stopped = summary.get("stopped")
    empty = chosen is not None and not summary.get("rows") and not errors.count  # more shards than transcripts
    useless = not dry_run and not stopped and not empty and not summary.get("statuses", {}).get("scored")
    if useless:
        log.error("no transcript has a usable score: %s", printable(why_useless(summary, errors)))
    elif unjudged:
        reason = summary["first_error"] or "see their reason"
        log.warning(
            "%d transcripts ended in judge_error (%s); --retry-errors judges them again",
            unjudged,
            printable(str(reason)),
        )
    failed = warn_of_escalation(summary.get("escalation"))
    if stopped:
        log.warning("stopped: %s%s", stopped, "; the report is written once all is judged" if html is not None else "")
    summary |= {"unreadable": errors.count, "errors": errors.written_to}
    if to_stdout and output is not None:
        with open(output, encoding="utf-8") as rows_file:
            shutil.copyfileobj(rows_file, sys.stdout)
    lines = None
    if output is not None and not dry_run and for_people(err=to_stdout):
        again = part_of(read_inputs(inputs, None, **reading), chosen, total) if "-" not in inputs else ()
        lines = list(score_lines(summary, again))
    finish(summary | ({"output": "-"} if to_stdout else {}), lines, err=to_stdout)
    if stopped:
        raise typer.Exit(STOPPED)
    if errors.count or unjudged or useless or failed:
        raise typer.Exit(1)


def escalation_of(stronger: object, mode: Modes | None, share: float | None) -> dict[str, Any]:
    """Return the stronger judge's options of `score_cascade`; it has its own mode in place of `steps`."""
    stronger_mode = None if mode is Modes.steps else mode
    return {
        "stronger_mode": chosen_mode(stronger_mode, stronger, Modes.full),
        **({} if share is None else {"share": share}),
    }


def mode_of_small(mode: str, judge: AgentRRM) -> str:
    """Return `steps` for `score` where that is read from steps: same score, and rows show what is unsure."""
    return "steps" if mode == "score" and judge.abilities.reads_slots("score") else mode


def warn_of_escalation(escalation: dict[str, Any] | None) -> int:
    """Warn of rows that the stronger judge failed on; returns how many ended in `judge_error`."""
    failed = {} if escalation is None else escalation["failed"]
    if escalation is not None and failed:
        log.warning(
            "%d transcripts keep the first judge's row, as %s gave no score or no verdict (%s); --retry-errors asks again where it could not be reached",
            sum(failed.values()),
            escalation["model"],
            printable(str(escalation["first_failure"])),
        )
    return failed.get("judge_error", 0)


def finish_empty(output: Path | None, dry_run: bool, errors: ErrorLog) -> NoReturn:
    from rrm.scoring.estimate import Estimate
    from rrm.scoring.run import ScoreSummary

    if dry_run:
        summary = {"dry_run": True, **asdict(Estimate()), **asdict(FileFormats())}
    else:
        summary = asdict(ScoreSummary(str(output)))
        log.error("no transcript has a usable score: %s", why_useless(summary, errors))
    finish({**summary, "unreadable": errors.count, "errors": errors.written_to}, err=str(output) == "-")
    raise typer.Exit(0 if dry_run and not errors.count else 1)


def why_useless(summary: dict[str, Any], errors: ErrorLog) -> str:
    """Say why a run gave no score at all, and what to do."""
    if not summary["rows"]:
        return f"none was read ({errors.what} could not be read)" if errors.count else "the input holds none"
    counts = ", ".join(f"{n} {status}" for status, n in summary["statuses"].items())
    first = (
        f"; the first: {summary['first_failure']}" if summary["first_failure"] else "; why stands in the rows' `reason`"
    )
    if summary["without_steps"] == summary["rows"]:
        return f"{counts}{first}. Where the agent did speak, say where its messages stand: --format or --map (rrm check counts them)"
    return f"{counts}{first}. {ADVICE.get(max(summary['statuses'], key=summary['statuses'].get), '')}".strip()


# the rows' most common status → what to do where none was scored
ADVICE = {
    "unparsable": "The model does not write the judge's format: try another mode or model, or a trained judge's --settings",
    "truncated": "Replies end before their score: raise --max-new-tokens, or --thinking-tokens where the model thinks first",
    "too_long": "With another -o or --overwrite, lower --transcript-tokens or --max-new-tokens; --mode score writes least; a server takes --context",
    "judge_error": "Once what they name is mended, --retry-errors judges them again",
}


def load_judge(options: JudgeOptions) -> AgentRRM:
    return options.load()


def chosen_mode(mode: Modes | None, judge: object, otherwise: Modes) -> str:
    """Return the mode asked for, else the judge's `default_mode`, else `otherwise`."""
    preferred = getattr(getattr(judge, "settings", None), "default_mode", None)
    return mode.value if mode else preferred or otherwise.value


def count_inputs(inputs: list[str], reading: dict[str, Any]) -> int | None:
    """Count the transcripts, for the time left; None: standard input, which is read once."""
    if "-" in inputs:
        return None
    return sum(1 for _ in read_inputs(inputs, None, **reading))


def part_of(trajectories: Iterable[Trajectory], shard: Shard | None, total: int | None) -> Iterable[Trajectory]:
    """Return the transcripts of a shard, or all; raises `ConfigError` where they cannot be counted."""
    if shard is None:
        return trajectories
    if total is None:
        raise ConfigError("--shard counts the transcripts before it reads them: give files, not standard input")
    return shard.of_rows(trajectories, total)


def pair_rows(trajectories: Iterable[Trajectory], output: Path) -> Iterator[tuple[Trajectory, dict[str, Any]]]:
    """Pair transcripts with output rows of their content; rows are looked up in the file, not held."""
    with open(output, "rb") as rows:
        offsets: dict[str, int] = {}
        offset = 0
        for line in rows:
            offsets[json.loads(line)["id"]] = offset
            offset += len(line)
        for trajectory in trajectories:
            if trajectory.id not in offsets:
                raise RRMError(f"{trajectory.id!r} came into the input while it was judged; run the same command again")
            rows.seek(offsets[trajectory.id])
            row = json.loads(rows.readline())
            if digest_of(row) != trajectory.digest:
                raise RRMError(f"{trajectory.id!r} changed while it was judged; judge it again, with another -o")
            yield trajectory, row
