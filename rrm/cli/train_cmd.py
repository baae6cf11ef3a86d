"""`rrm train`."""

from __future__ import annotations

from typing import Annotated

import typer

from rrm.cli import finish
from rrm.data.extras import needs, needs_trackers
from rrm.errors import ConfigError


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str | None, typer.Option("--config", help="name of a shipped config, or a YAML file")] = None,
) -> None:
    """Train a judge: SFT, RL, calibration. Repeat the command to continue a run that was stopped."""
    from rrm.config import config_names, load_config

    if config is None:
        names = ", ".join(config_names())
        raise ConfigError(
            f"say which judge to train: --config NAME, a YAML file or one of {names} (`smollm2` is the usual one)"
        )
    settings = load_config(config, overrides)
    needs("train", "training a judge", "torch", "transformers", "peft", "datasets", "trl")
    needs_trackers(settings.report_to)
    from rrm.train.run import train

    summary = train(settings)
    if summary is not None:  # of several processes the main one speaks
        finish(summary)
