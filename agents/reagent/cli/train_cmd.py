"""`reagent train`."""

from __future__ import annotations

from typing import Annotated

import typer

from rrm.cli import finish


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str, typer.Option("--config", help="shipped name (lab, …) or a YAML file")] = "lab",
) -> None:
    """Train an agent: algorithm=ppo|grpo|rloo|reinforce++. Repeat the command to continue a run that was stopped."""
    from accelerate import PartialState

    from reagent.train.config import load_agent_config
    from reagent.train.run import train

    summary = train(load_agent_config(config, overrides))
    if PartialState().is_main_process:
        finish(summary)
