"""`rrm failures`: what goes wrong over many runs, where, and how often."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from rrm.cli import finish
from rrm.cli.judge_options import ESCALATE, JudgeOptions, with_judge_options
from rrm.cli.paths import beside
from rrm.cli.reading import OUTCOME, ErrorLog, check_paths, counting, mapping_of, read_inputs
from rrm.cli.tables import for_people
from rrm.data.mistakes import DESCRIPTIONS, MISTAKE_KINDS
from rrm.data.output import write_lines
from rrm.data.printing import did_you_mean, printable
from rrm.errors import ConfigError, RRMError, SpendingLimit
from rrm.scoring.row_matching import ScoredRows, digest_of

if TYPE_CHECKING:
    from rrm.data.trajectory import Trajectory

log = logging.getLogger(__name__)
RULES = "rules"
CHAT_PREFIXES = ("openai:", "command:", "vision:")  # judges that answer questions of ours
GROUPS = 10  # of a field, in the table
UNJUDGED_WARNINGS = {
    "unsure_runs": "have unsure steps, which only the rules judged; {0} --out-of-domain keep takes the judge's verdicts (an option of "
    "{0} --help-all), {0} --escalate asks a chat judge",
    "unjudged": "have no judgement: only the rules judged them; {1} asks again",
}


@with_judge_options
def command(
    inputs: list[str] = typer.Argument(..., metavar="RUNS...", help="Files or folders of transcripts."),
    output: Path | None = typer.Option(
        None, "-o", "--output", metavar="OUT.jsonl", help="A row a run: its mistakes. Default: RUNS.failures.jsonl."
    ),
    html: Path | None = typer.Option(
        None, metavar="REPORT.html", help="Also write a page: a bar per kind, with links to steps."
    ),
    scores: Path | None = typer.Option(
        None, metavar="SCORED.jsonl", help="Take these rows of rrm score; no judge is asked."
    ),
    categories: Path | None = typer.Option(
        None,
        metavar="FILE.yaml",
        help="Your own kinds, `name: what such a step does`; kinds beyond the twelve need a chat judge.",
    ),
    by: list[str] = typer.Option([], metavar="FIELD", help="Groups: model, task, tool, or a path in meta. Repeatable."),
    against: Path | None = typer.Option(
        None, metavar="OTHER.jsonl", help="rrm failures' rows of other runs: which failures grew since?"
    ),
    escalate: str | None = ESCALATE,
    overwrite: bool = typer.Option(False, "--overwrite", help="Judge everything again, dropping OUT.scores.jsonl."),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    *,
    judge: JudgeOptions,
) -> None:
    """Say what goes wrong in many runs: mistakes by kind with 95 % intervals, where, and quotes that show them.

    `--model rules` takes what rules prove, in seconds. Otherwise the judge's rows go to OUT.scores.jsonl as those of rrm score, and a stopped
    run goes on there. Where a judge only says `bad`, the step's form suggests the kind; a chat judge is asked for each kind, and its
    quotes are checked to occur in their step. Shares are of what rules and judge say: rrm estimate says from labels what is true.
    """
    from rrm.evaluation.failure_counts import changes_since, count_failures, read_failures
    from rrm.evaluation.failures import PROVABLE, failures_of

    output = output or beside(inputs, ".failures.jsonl")
    check_paths([*inputs, *(str(path) for path in (scores, categories, against) if path is not None)], output, html)
    kinds: Mapping[str, str] = (
        read_categories(categories) if categories else {str(name): text for name, text in DESCRIPTIONS.items()}
    )
    check_options(judge, escalate, scores, inputs, kinds)
    if judge.model == RULES:
        kinds = {name: text for name, text in kinds.items() if name in PROVABLE}
    if not kinds:
        raise ConfigError(f"rules alone find {', '.join(PROVABLE)}, and {categories} has none of them: name a judge")
    before = None if against is None else read_failures(against)
    reading: dict[str, Any] = {"format": format, "mapping": mapping_of(map), "outcome": outcome}
    scorer, retry = (
        ("rrm failures", "the same command") if scores is None else ("rrm score", "rrm score --retry-errors")
    )
    with ErrorLog(output) as errors:
        if scores is None and judge.model != RULES:
            scores = output.with_name(f"{output.stem}.scores.jsonl")
            score(inputs, scores, judge, escalate, kinds, reading, overwrite)
        scored = None if scores is None else ScoredRows(scores)
        runs = counting(read_inputs(inputs, errors, **reading), "analysing")
        rows = [failures_of(run, scored and scored.of(run), kinds, by) for run in runs]
    figures = count_failures(rows, list(kinds), by)
    if scored is not None:
        scored.check()
        figures["unjudged"] += sum(row["judge"] is None for row in rows)
    if before is not None:
        figures["against"] = changes_since(before, rows, list(kinds))
        warn_of_differences(before, rows)
    write_lines(output, (json.dumps(row) for row in rows))
    if html is not None:
        write_page(html, read_inputs(inputs, None, **reading), rows, scored, {**figures, "descriptions": dict(kinds)})
    for figure, text in UNJUDGED_WARNINGS.items():
        if figures[figure]:
            log.warning("%d of %d runs %s", figures[figure], len(rows), text.format(scorer, retry))
    if figures["not_asked"]:
        log.warning("no run was asked about %s: no shares of these", ", ".join(figures["not_asked"]))
    made = {"output": str(output), "html": None if html is None else str(html), "errors": errors.written_to}
    if for_people():
        show(figures)
        typer.echo("  ".join(f"{name}: {path}" for name, path in made.items() if path))
    else:
        finish({**made, **figures, "unreadable": errors.count})
    if errors.count or figures["unjudged"]:
        raise typer.Exit(1)


def read_categories(path: Path) -> Mapping[str, str]:
    """Read `name: what such a step does` of each category; raises `ConfigError`."""
    from rrm.evaluation.failures import questions_of
    from rrm.prompt.criteria import read_yaml

    tree = read_yaml(path)
    if not tree or not all(isinstance(text, str) and text.strip() for text in tree.values()):
        raise ConfigError(f"{path}: write a line `name: what such a step does` for each kind, both as text")
    questions_of(tree, str(path))
    return tree


def check_options(
    judge: JudgeOptions, escalate: str | None, scores: Path | None, inputs: Sequence[str], kinds: Mapping[str, str]
) -> None:
    """Raise `ConfigError` for options that cannot go together."""
    asked = [name for name in (judge.model, escalate) if name is not None]
    if scores is not None and (judge.given or escalate is not None):
        raise ConfigError(f"--scores takes rows that are judged: leave out {', '.join(judge.given or ['--escalate'])}")
    if judge.model == RULES and escalate is not None:
        raise ConfigError("--escalate is for what a judge is unsure of, and rules are not: leave out one of the two")
    if judge.criteria is not None:
        raise ConfigError("rrm failures asks for its own kinds: leave out --criteria, and give yours as --categories")
    if judge.model != RULES and scores is None and "-" in inputs:
        raise ConfigError(
            "the transcripts are read twice, standard input only goes once: give a file, or --model rules"
        )
    unknown = [name for name in kinds if name not in MISTAKE_KINDS]
    if unknown and scores is None and not any(name.startswith(CHAT_PREFIXES) for name in asked):
        meant = did_you_mean(unknown[0], MISTAKE_KINDS)
        raise ConfigError(
            f"--categories: only a chat judge knows {unknown[0]!r}{meant}; give --model openai:URL#model or --escalate"
        )


def score(
    inputs: list[str],
    path: Path,
    judge: JudgeOptions,
    escalate: str | None,
    kinds: Mapping[str, str],
    reading: dict[str, Any],
    overwrite: bool,
) -> None:
    """Judge the runs that have no row in `path` yet; raises `SpendingLimit` where money runs out."""
    from rrm.cli.score_cmd import Modes, chosen_mode, count_inputs, escalation_of, mode_of_small
    from rrm.evaluation.failures import questions_of
    from rrm.scoring.cascade import score_cascade
    from rrm.scoring.run import score_file

    def load(options: JudgeOptions) -> tuple[Any, Modes | None]:
        if options.settings is not None or not (options.model or "").startswith(CHAT_PREFIXES):
            return options.load(), None
        return replace(options, criteria=cast(Any, questions_of(kinds))).load(), Modes.score

    small_options, large_options = (judge, None) if escalate is None else judge.escalating(escalate)
    (small, mode), large = load(small_options), None if large_options is None else load(large_options)
    score_options: dict[str, Any] = {
        "overwrite": overwrite, "retry_errors": True, "total": count_inputs(inputs, reading), "mode": chosen_mode(mode, small, Modes.full),
    }  # fmt: skip
    trajectories = read_inputs(inputs, None, **reading)
    if large is None:
        done = score_file(small, trajectories, path, **score_options)
    else:
        score_options |= {"mode": mode_of_small(score_options["mode"], small), **escalation_of(*large, 0.0)}
        done = score_cascade(small, large[0], trajectories, path, **score_options)
    if done.stopped is not None:
        raise SpendingLimit(f"{path}: {done.stopped}")


def warn_of_differences(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> None:
    """Warn of other judges, and of kinds that one of the sets was not asked about."""
    earlier, later = ({str(name) for row in rows for name in row["asked"]} for rows in (before, now))
    if left_out := sorted(earlier ^ later):
        names = printable(", ".join(left_out), 300)
        log.warning("--against leaves out %s: one of the two sets was not asked about these", names)
    theirs, ours = ({str((row.get("judge") or {}).get("model", RULES)) for row in rows} for rows in (before, now))
    if theirs != ours:
        names = [printable(", ".join(sorted(names)), 80) for names in (theirs, ours)]
        log.warning("--against was judged by %s and these runs by %s: a difference may be the judges'", *names)


def write_page(
    html: Path,
    runs: Iterable[Trajectory],
    rows: Iterable[dict[str, Any]],
    scored: ScoredRows | None,
    figures: dict[str, Any],
) -> None:
    from rrm.evaluation.failures import as_feedback
    from rrm.report import write_report

    by_id = {row["id"]: row for row in rows}

    def pairs() -> Iterator[tuple[Trajectory, dict[str, Any]]]:
        for run in runs:
            row = by_id.get(run.id)
            if row is None or digest_of(row) != run.digest:
                raise RRMError(f"{printable(run.id)!r} changed while it was read: run the same command again")
            feedback = as_feedback(row, scored and scored.of(run), figures["descriptions"])
            yield run, {**feedback.model_dump(), "source": row["source"]}

    write_report(pairs(), html, title="Failures", failures=figures)


def show(figures: Mapping[str, Any]) -> None:
    """Print the kinds that were found, each with its clearest run; then groups, calls and loops."""
    against, width = figures.get("against"), shutil.get_terminal_size().columns
    name_width = max(map(len, figures["kinds"]), default=0)
    head = f"{'kind':{name_width}}  runs with it  {'share of runs asked':24}{'first step':>10}"
    typer.echo(f"{head}  change" if against else head)
    for name, figure in figures["kinds"].items():
        if not figure["runs"] and not against:
            continue
        first = "" if figure["first_step"] is None else f"{figure['first_step']:g}"
        changed = change_text(against[name]) if against and name in against else ""
        runs = f"{figure['runs']} of {figure['of']}"
        typer.echo(f"{name:{name_width}}  {runs:>12}  {share_text(figure):24}{first:>10}  {changed}".rstrip())
        for example in figure["examples"][:1]:
            typer.echo("  " + printable(f"{example['id']} step {example['step']}: {example['quote']}", width - 2))
    for field, groups in figures["by"].items():
        typer.echo(f"{'by ' + printable(field, 37):42} {'of runs':>7}  {'share with a mistake':24} commonest")
        for name, group in list(groups.items())[:GROUPS]:
            most = max(group["kinds"], key=lambda name: group["kinds"][name]["runs"], default="none")
            failing = group["failing"]
            typer.echo(f"  {printable(name, 40):40} {failing['of']:7}  {share_text(failing):24} {most}")
    calls, looping, quotes = figures["calls"], figures["looping"], figures["quotes"]
    wasted = ", ".join(f"{calls[name]} {name.replace('_', ' ')}" for name in ("identical", "errored", "never_used"))
    typer.echo(
        f"{share_text(figures['failing'])} of {figures['runs']} runs have a mistake, {share_text(looping)} loop."
    )
    typer.echo(
        f"Of {calls['calls']} calls: {wasted}. Quotes that did not occur in their step: {quotes['dropped']}; "
        f"mistakes without a step: {quotes['unplaced']}."
    )


def share_text(share: Mapping[str, float]) -> str:
    return f"{share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}]"


def change_text(change: Mapping[str, float]) -> str:
    moved = " grown" if change["low"] > 0 else " fallen" if change["high"] < 0 else ""
    return f"{change['value']:+.1%} [{change['low']:+.1%}, {change['high']:+.1%}]{moved}"
