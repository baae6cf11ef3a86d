"""`reagent distil`."""

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_folder
from rrm.data.extras import needs


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str, typer.Option("--config", help="shipped name (lab, …) or a YAML file")] = "lab",
) -> None:
    """Learn from the best of a policy's own attempts at training tasks, as the judge chooses them: no answer is needed.

    distil.tasks tasks are played distil.samples times each, feedback.judge chooses one attempt of each task, and the policy
    learns its tokens; held-out success is measured before and after. Repeat the command to continue a run that was stopped.
    """
    needs("agents", "training an agent", "torch", "transformers", "accelerate", "matplotlib")
    from reagent.train.config import load_agent_config
    from reagent.train.distil import distil

    settings = load_agent_config(config, overrides)
    check_folder(Path(settings.output_dir))
    finish(distil(settings))
