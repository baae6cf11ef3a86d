"""`reagent train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_folder
from rrm.extras import needs, needs_trackers


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str, typer.Option("--config", help="shipped name (lab, …) or a YAML file")] = "lab",
) -> None:
    """Train an agent: algorithm=ppo|grpo|rloo|reinforce++. Repeat the command to continue a run that was stopped.

    Exit code 3: a guard stopped it (guards.NAME.action=stop), with a checkpoint and the best policy kept.
    """
    needs("agents", "training an agent", "torch", "transformers", "accelerate", "matplotlib")
    from accelerate import PartialState

    from reagent.train.config import load_agent_config
    from reagent.train.run import train

    settings = load_agent_config(config, overrides)
    needs_trackers(settings.report_to)
    check_folder(Path(settings.output_dir))
    summary = train(settings)
    if PartialState().is_main_process:
        finish(summary)
    if summary["stopped_by"]:
        raise typer.Exit(3)
