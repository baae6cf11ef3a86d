"""`rrm score`: judge transcripts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from rrm.cli import finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.reading import OUTCOME, refuse_missing
from rrm.errors import ConfigError, ReadError, RRMError
from rrm.readers.base import printable
from rrm.trajectory import Trajectory

if TYPE_CHECKING:
    from rrm.judge.agent_rrm import AgentRRM

log = logging.getLogger(__name__)


class Modes(StrEnum):
    """What the judge writes."""

    full = "full"
    critique = "critique"
    score = "score"
    steps = "steps"


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="IN...", help="Files, folders, or - for standard input."),
    output: Path | None = typer.Option(None, "-o", "--output", metavar="OUT.jsonl", help="One row per transcript."),
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
        False, "--dry-run", help="Print rows, tokens and an estimate (times a few transcripts; calls no server)."
    ),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    blend: bool = typer.Option(
        False,
        "--blend/--no-blend",
        help="Blend the score with the judge's lexical model, where it has one: for finished runs.",
    ),
    strict: bool = typer.Option(False, "--strict", help="Stop at the first line that cannot be read."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Judge everything again, dropping OUT's rows."),
    retry_errors: bool = typer.Option(False, "--retry-errors", help="Judge rows with status judge_error again."),
    price_in: float | None = typer.Option(None, min=0, help="Price of a million prompt tokens, for --dry-run."),
    price_out: float | None = typer.Option(None, min=0, help="Price of a million written tokens, for --dry-run."),
    *,
    judge: JudgeOptions,
) -> None:
    """Judge transcripts: one row of trace, critique and calibrated score each.

    A killed run goes on where it stopped when the same command is given again. Lines that cannot be read go to
    OUT.errors.jsonl. Exit code 1: some lines could not be read, the judge could not be reached for some rows, or no row
    has a usable score; other rows without one (unparsable, truncated, too_long) are counted in the summary.
    """
    from rrm.estimate import estimate
    from rrm.judge.blended import Blended
    from rrm.score import score_file

    if output is None and not dry_run:
        raise RRMError("say where the rows go: -o OUT.jsonl (or --dry-run for an estimate)")
    check_paths(inputs, output, html)
    reading: dict[str, Any] = {"format": format, "mapping": parse_mapping(map), "outcome": outcome}
    with ErrorLog(None if dry_run else output) as errors:
        loaded = load_judge(judge)
        trajectories = read_inputs(inputs, errors, strict=strict, **reading)
        run: dict[str, Any] = {"mode": chosen_mode(mode, loaded, Modes.full), "samples": samples, "seed": seed}
        if dry_run:
            run |= {"price_in": price_in, "price_out": price_out}
            served = getattr(loaded, "prompter", loaded) is None
            # a server's time is not ours to measure, and asking costs money
            found = estimate(loaded, trajectories, probe=0 if served else 4, **run)
            summary = {"dry_run": True, **asdict(found)}
        elif output is not None:
            run |= {"overwrite": overwrite, "retry_errors": retry_errors}
            scorer = Blended(loaded) if blend else loaded
            summary = asdict(score_file(scorer, trajectories, output, total=count_inputs(inputs, reading), **run))
            if html is not None:
                from rrm.report import write_report

                write_report(pair_rows(read_inputs(inputs, None, **reading), output), html)
                summary["html"] = str(html)
    unjudged = summary.get("statuses", {}).get("judge_error", 0)
    useless = not dry_run and not summary.get("statuses", {}).get("scored")
    if useless:
        log.error("no transcript has a usable score: %s", printable(why_useless(summary, errors.count)))
    elif unjudged:
        reason = summary["first_error"] or "see their reason"
        log.warning(
            "%d transcripts ended in judge_error (%s); --retry-errors judges them again",
            unjudged,
            printable(str(reason)),
        )
    finish({**summary, "unreadable": errors.count, "errors": errors.written_to})
    if errors.count or unjudged or useless:
        raise typer.Exit(1)


def why_useless(summary: dict[str, Any], unreadable: int) -> str:
    """Why a run gave no score at all, and what to do."""
    if not summary["rows"]:
        return f"none was read ({unreadable} lines could not be read)" if unreadable else "the input holds none"
    counts = ", ".join(f"{n} {status}" for status, n in summary["statuses"].items())
    first = (
        f"; the first: {summary['first_failure']}" if summary["first_failure"] else "; why stands in the rows' `reason`"
    )
    if summary["without_steps"] == summary["rows"]:
        return f"{counts}{first}. Where the agent did speak, say where its messages stand: --format or --map (rrm check counts them)"
    return f"{counts}{first}. {ADVICE.get(max(summary['statuses'], key=summary['statuses'].get), '')}".strip()


ADVICE = {
    "unparsable": "The model does not write the judge's format: try another mode or model, or a trained judge's --settings",
    "truncated": "Replies end before their score: raise --max-new-tokens",
    "too_long": "Prompts are longer than the model's positions: lower --transcript-tokens, or give a server's --context",
    "judge_error": "Once what they name is mended, --retry-errors judges them again",
}
"""What to do where no row was scored, by the status most of them have."""


def load_judge(options: JudgeOptions) -> AgentRRM:
    """The judge that `--model` names, or the default one."""
    return options.load()


def chosen_mode(given: Modes | None, judge: object, otherwise: Modes) -> str:
    """The mode that was asked for, else the one the judge prefers (`JudgeSettings.default_mode`), else `otherwise`."""
    preferred = getattr(getattr(judge, "settings", None), "default_mode", None)
    return given.value if given else preferred or otherwise.value


def parse_mapping(pairs: list[str]) -> dict[str, str] | None:
    """`["messages=log.turns"]` → `{"messages": "log.turns"}`; None for no pairs."""
    for pair in pairs:
        if not all(pair.partition("=")):
            raise ConfigError(f"--map {pair!r}: write field=path, e.g. --map messages=log.turns")
    return dict(pair.split("=", 1) for pair in pairs) or None


def check_paths(inputs: list[str], output: Path | None, html: Path | None) -> None:
    """Refuse what does not exist, and to write over, or among, what is being read."""
    refuse_missing(inputs)
    for path in (output, html):
        for name in inputs:
            if path is not None and name != "-" and path.resolve().is_relative_to(Path(name).resolve()):
                raise RRMError(
                    f"{path} lies in the input {name}: it would be written over, or read as one of the inputs; choose another place"
                )
    if html is not None and "-" in inputs:
        raise RRMError("--html reads the transcripts twice, standard input only goes once; give a file")


def read_inputs(
    inputs: list[str],
    errors: ErrorLog | None,
    *,
    format: str,
    mapping: dict[str, str] | None,
    outcome: str | None = None,
    strict: bool = False,
) -> Iterator[Trajectory]:
    """The transcripts, streamed; lines that cannot be read go to `errors` (None: were reported before)."""
    from rrm.readers import read

    ignore: Callable[[ReadError], None] = lambda error: None  # noqa: E731
    on_error = errors.add if errors else ignore
    return iter(read(inputs, format=format, mapping=mapping, outcome=outcome, on_error=on_error, strict=strict))


def count_inputs(inputs: list[str], reading: dict[str, Any]) -> int | None:
    """How many transcripts there are, for the time left: only where they can be read twice."""
    if "-" in inputs:
        return None
    return sum(1 for _ in read_inputs(inputs, None, **reading))


def pair_rows(trajectories: Iterable[Trajectory], output: Path) -> Iterator[tuple[Trajectory, dict[str, Any]]]:
    """Each transcript with its output row, matched by id; rows are looked up in the file, not held."""
    with open(output, "rb") as rows:
        places: dict[str, int] = {}
        place = 0
        for line in rows:
            places[json.loads(line)["id"]] = place
            place += len(line)
        for trajectory in trajectories:
            if trajectory.id not in places:
                raise RRMError(f"{trajectory.id!r} came into the input while it was judged; run the same command again")
            rows.seek(places[trajectory.id])
            yield trajectory, json.loads(rows.readline())


class ErrorLog:
    """Lines that could not be read, one JSON object each in OUT.errors.jsonl (made anew by every run)."""

    def __init__(self, output: Path | None) -> None:
        self.path = None if output is None else output.with_suffix(".errors.jsonl")
        self.count = 0
        self._file: IO[str] | None = None

    def __enter__(self) -> ErrorLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        elif kind is None and self.path is not None:
            self.path.unlink(missing_ok=True)  # an earlier run's, whose lines have been mended since

    @property
    def written_to(self) -> str | None:
        """The file, where it was written."""
        return str(self.path) if self._file is not None else None

    def add(self, error: ReadError) -> None:
        """Count and record one line."""
        self.count += 1
        if self.path is None:
            log.warning("%s", error)
            return
        if self._file is None:
            self._file = open(self.path, "w", encoding="ascii")  # noqa: SIM115  # closed on exit
        self._file.write(json.dumps({"path": error.path, "line": error.line, "reason": error.reason}) + "\n")
        self._file.flush()
