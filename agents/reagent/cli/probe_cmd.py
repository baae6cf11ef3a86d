"""`reagent probe`."""

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.paths import check_outputs
from rrm.data.extras import needs


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL] [a.b=c]…", help="a folder or hub id, and overrides of the config"),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="what it is to learn: gsm8k, hotpotqa, … (`reagent tasks` lists them)")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", help="shipped name or a YAML file; default: lab, with --task the defaults")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="as MODEL; default: policy.base of the config")] = None,
    transcripts: Annotated[
        Path | None, typer.Option(help="write every episode as a canonical trajectory (JSONL), sampled ones first")
    ] = None,
) -> None:
    """Say whether rewards can teach a policy its tasks, before it is trained: gate.samples attempts at gate.tasks training tasks.

    Exit code 3 where it is hardly learnable; the summary says what to change.
    """
    needs("agents", "playing a policy", "torch", "transformers", "accelerate")
    from reagent.cli.policy_settings import policy_settings
    from reagent.train.probe import probe_config
    from rrm.data.trajectory import write_jsonl

    check_outputs(transcripts)
    settings = policy_settings(words, config, policy, task)
    probe, episodes = probe_config(settings)
    if transcripts is not None:
        write_jsonl(transcripts, (episode.trajectory for episode in episodes))
    finish({"policy": settings.policy.base, "environment": settings.environment.name, **probe.figures()})
    if probe.learnable is False:
        raise typer.Exit(3)
