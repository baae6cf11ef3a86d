"""`reagent probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_outputs
from rrm.data.extras import needs


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str, typer.Option("--config", help="shipped name (lab, …) or a YAML file")] = "lab",
    policy: Annotated[str | None, typer.Option(help="a directory or hub id. Default: policy.base")] = None,
    transcripts: Annotated[
        Path | None, typer.Option(help="write every episode as a canonical trajectory (JSONL), sampled ones first")
    ] = None,
) -> None:
    """Say whether rewards can teach a policy its tasks, before it is trained: gate.samples attempts at gate.tasks training tasks.

    Exit code 3 where it is hardly learnable; the summary says what to change.
    """
    needs("agents", "playing a policy", "torch", "transformers", "accelerate")
    from reagent.train.config import load_agent_config
    from reagent.train.probe import probe_config
    from rrm.data.trajectory import write_jsonl

    check_outputs(transcripts)
    settings = load_agent_config(config, overrides)
    if policy is not None:
        settings.policy.base = policy
    found, episodes = probe_config(settings)
    if transcripts is not None:
        write_jsonl(transcripts, (episode.trajectory for episode in episodes))
    finish({"policy": settings.policy.base, "environment": settings.environment.name, **found.figures()})
    if found.learnable is False:
        raise typer.Exit(3)
