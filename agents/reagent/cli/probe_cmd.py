"""`reagent probe`."""

from pathlib import Path
from typing import Annotated

import typer

from reagent.cli.policy_settings import Config, Policy, Task, Words, policy_settings
from rrm.cli import finish
from rrm.cli.paths import check_outputs
from rrm.data.extras import needs


def command(
    words: Words = None,
    task: Task = None,
    config: Config = None,
    policy: Policy = None,
    transcripts: Annotated[
        Path | None, typer.Option(help="write every episode as a canonical trajectory (JSONL), sampled ones first")
    ] = None,
) -> None:
    """Say whether rewards can teach a policy its tasks, before it is trained: gate.samples attempts at gate.tasks training tasks.

    Exit code 3 where it is hardly learnable; the summary says what to change.
    """
    needs("agents", "playing a policy", "torch", "transformers", "accelerate")
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
