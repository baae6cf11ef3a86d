"""`reagent train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_folder
from rrm.data.extras import needs, needs_trackers
from rrm.errors import ConfigError

if TYPE_CHECKING:
    from reagent.train.config import AgentConfig


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str, typer.Option("--config", help="shipped name (lab, …) or a YAML file")] = "lab",
    plan: Annotated[
        bool, typer.Option("--plan", help="say what it would hold and take; load no weight, write nothing")
    ] = False,
    like: Annotated[
        Path | None, typer.Option("--like", help="with --plan: a run on this machine, for its speed")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="with --plan: that share the work")] = 1,
) -> None:
    """Train an agent: algorithm=NAME (docs/algorithms.md). Repeat the command to continue a run that was stopped.

    Main keys (more: docs/agents.md):

    \b
    environment.name=NAME       the task: gsm8k, … (reagent tasks), or module:Class
    policy.base=NAME            the model that learns: a folder or hub id
    feedback.mode=none|c|r|u    critiques, rewards or both, by feedback.judge=NAME
    max_updates=N               eval.every=N measures in between
    rollout.tasks_per_update=N  with rollout.group_size=N attempts at each
    optim.learning_rate=X
    output_dir=DIR

    Exit code 3: a guard stopped it (guards.NAME.action=stop), with a checkpoint and the best policy kept.
    """
    needs("agents", "training an agent", "torch", "transformers", "accelerate", "matplotlib")
    from accelerate import PartialState

    from reagent.train.config import load_agent_config
    from reagent.train.run import train

    settings = load_agent_config(config, overrides)
    if not plan and (like is not None or processes != 1):
        raise ConfigError("--like and --processes are of --plan: start processes with accelerate launch")
    needs_trackers(settings.report_to)
    check_folder(Path(settings.output_dir))
    if plan:
        say_plan(settings, like, processes)
        return
    summary = train(settings)
    if PartialState().is_main_process:
        finish(summary)
    if summary["stopped_by"]:
        raise typer.Exit(3)


def say_plan(settings: AgentConfig, like: Path | None, processes: int) -> None:
    """Print the plan as a table, and its figures as the summary.
    Raises RRMError: the training would be refused, as far as that is known before its weights are loaded."""
    from dataclasses import asdict

    import torch
    from rich.table import Table

    from reagent.train.plan import plan, plan_rows
    from reagent.train.prepare import check_continues, prepare
    from rrm.cli.tables import print_table

    device = "cpu" if settings.cpu or not torch.cuda.is_available() else "cuda"
    check_continues(settings)
    prepare(settings, processes)
    figures = plan(settings, processes=processes, device=device, like=like)
    table = Table(show_header=False)
    for row in plan_rows(figures):
        table.add_row(*row)
    print_table(table, stderr=True)
    memory = {**asdict(figures.memory), "update": figures.memory.update, "rollout": figures.memory.rollout}
    finish({**asdict(figures), "memory": memory, "seconds": figures.seconds})
