"""`rrm train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli import finish
from rrm.cli.tables import figure_lines
from rrm.data.extras import needs, needs_trackers
from rrm.errors import ConfigError


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str | None, typer.Option("--config", help="name of a shipped config, or a YAML file")] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--own",
            metavar="LOGS",
            help="Labelled runs of yours (repeatable): calibrate the default judge on them, train its adapter further, and keep "
            "what orders held-out runs better. Without --config: default-small.",
        ),
    ] = None,
    annotations: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="With --own: labels of `rrm label` or `rrm annotate`.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="FIELD", help="With --own: the field that says how a run ended.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="With --own: a directory of `rrm calibrate` on the same labels, to compare with."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="output_dir.")] = None,
) -> None:
    """Train a judge: SFT, RL, calibration. Repeat the command to continue a run that was stopped.

    Main keys (more: docs/training.md):

    \b
    data.trajectories=[FILE,…]  labelled transcripts
    data.annotations=[FILE,…]   their labels, where they hold none
    model.base=NAME             the model that learns: a folder or hub id
    sft.epochs=N                passes over the data; sft.max_steps=N ends earlier
    sft.learning_rate=X
    transcript_tokens=N         what is read of a transcript at once
    output_dir=DIR
    """
    from rrm.config import config_names, load_config

    if config is None and not own:
        names = ", ".join(config_names())
        raise ConfigError(
            f"say which judge to train: --own LOGS, or --config NAME, a YAML file or one of {names} (`smollm2` is the usual one)"
        )
    if not own and (annotations or outcome or against):
        raise ConfigError(
            "--annotations, --outcome and --against belong to --own; a config has data.annotations, data.outcome"
        )
    given = [f"output_dir={output}"] if output else []
    if own:
        needs("train", "training a judge", "torch", "transformers", "peft", "datasets", "trl")
        from rrm.train.own import own_overrides

        given += [*own_overrides(), *([] if output else ["output_dir=runs/own"])]
    settings = load_config(config or "default-small", [*given, *(overrides or ())])
    if own:
        files = {"trajectories": own, "annotations": annotations or settings.data.annotations}
        data = settings.data.model_copy(update=files | ({"outcome": outcome} if outcome else {}))
        settings = settings.model_copy(update={"data": data})
    needs("train", "training a judge", "torch", "transformers", "peft", "datasets", "trl")
    needs_trackers(settings.report_to)
    if own:
        from rrm.cli.eval_tables import metrics_table
        from rrm.cli.tables import print_table
        from rrm.train.own import train_own

        report, summary = train_own(settings, against)
        print_table(metrics_table(f"{summary['taken']} (judge) on held-out questions", report), stderr=True)
        if report["note"]:
            typer.echo(report["note"], err=True)
        for name, why in summary["not_taken"].items():
            typer.echo(f"not taken: {name}: {why}", err=True)
    else:
        from rrm.train.run import train

        summary = train(settings)
    if summary is not None:  # of several processes the main one speaks
        finish(summary, [*figure_lines(summary), ("use it", f"rrm score LOGS --model {summary['judge']}")])
