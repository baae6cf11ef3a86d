"""`reagent rescore`."""

from __future__ import annotations

import logging
import re
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from rrm.cli import finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.paths import check_outputs
from rrm.cli.tables import for_people, print_table
from rrm.data.extras import needs

log = logging.getLogger(__name__)
OPTIONS = [f.name for f in fields(JudgeOptions) if f.name != "model"]


@partial(with_judge_options, only=OPTIONS)
def command(
    run: Path = typer.Argument(..., metavar="RUN", help="Run folder of `reagent train` with feedback.mode=r or u."),
    name: str = typer.Option(..., "--judge", help="The other judge, named as feedback.judge."),
    output: Path | None = typer.Option(
        None,
        "-o",
        "--output",
        metavar="ROWS.jsonl",
        help="The judge's rows, as of rrm score. Default: RUN/rescored-JUDGE.jsonl.",
    ),
    failures_only: bool = typer.Option(
        False, "--failures-only", help="Ask only about episodes on which the run's judge failed."
    ),
    *,
    judge: JudgeOptions,
) -> None:
    """Judge a training's stored episodes anew: how rewards and advantages would have been under another judge.

    episodes.jsonl holds some of a run's episodes; sample_episodes=N in its config stores more. A killed run goes on where it stopped when
    the same command is given again. Exit code 4: --max-cost was reached, and episodes are left.
    """  # fmt: skip
    needs("agents", "reading a training", "torch", "transformers", "accelerate")
    from reagent.train.build_feedback import check_judge
    from reagent.train.rescore import all_stored, read_run, rescore
    from rrm.engines.server_options import public

    stored = read_run(run)
    config = stored.config
    check_judge(config.feedback.model_copy(update={"judge": name}), config.environment, "--judge")
    slug = re.sub(r"[^\w.]+", "-", public(name)).strip("-.")
    output = output or run / f"rescored-{slug}.jsonl"
    check_outputs(output)
    if len(stored.rows) < stored.played:
        log.warning("%d of %d episodes are stored and judged, and advantages compare these alone; a training with %s stores all", len(stored.rows), stored.played, all_stored(config))  # fmt: skip
    summary = rescore(stored, replace(judge, model=name).load(), output, failures_only=failures_only)
    if for_people():
        show(summary)
    else:
        finish(summary)


def show(summary: dict[str, Any]) -> None:
    from rich.table import Table

    title = f"{summary['rows']} of {summary['episodes']} episodes: {summary['old_judge']} → {summary['judge']}"
    table = Table(title=title, title_justify="left", caption=f"rows: {summary['output']}", caption_justify="left")
    for column in ("update", "rows", "failures", "scored now", "mean reward", "Spearman", "sign changes"):
        table.add_column(column)
    for row in [*summary["updates"], {**summary, "update": "all"}]:
        reward = f"{_number(row['old_reward'])} → {_number(row['new_reward'])}"
        failures = f"{row['old_failures']} → {row['new_failures']}"
        signs = "–" if row["sign_changes"] is None else f"{row['sign_changes']:.0%}"
        cells = (row["update"], row["rows"], failures, row["scored_now"], reward, _number(row["spearman"]), signs)
        table.add_row(*map(str, cells))
    print_table(table)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
