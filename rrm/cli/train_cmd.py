"""`rrm train`."""

from __future__ import annotations

from typing import Annotated

import typer

from rrm.cli import finish


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[
        str, typer.Option("--config", help="shipped name (lab, smollm2, qwen3-8b) or a YAML file")
    ] = "lab",
) -> None:
    """Train a judge: SFT, RL, calibration. Repeat the command to continue a run that was stopped."""
    from rrm.config import load_config
    from rrm.train.run import train

    finish(train(load_config(config, overrides)))
