"""`reagent eval`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reagent.cli.paths import check_outputs
from rrm.cli import finish
from rrm.extras import needs


def command(
    overrides: Annotated[list[str] | None, typer.Argument(help="a.b=c overrides of the config")] = None,
    config: Annotated[str, typer.Option("--config", help="shipped name (lab, …) or a YAML file")] = "lab",
    policy: Annotated[
        str | None, typer.Option(help="a directory or hub id; a run's policy/ folder. Default: policy.base")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write the figures as JSON")] = None,
    transcripts: Annotated[
        Path | None, typer.Option(help="write every episode as a canonical trajectory (JSONL), for `rrm score`")
    ] = None,
) -> None:
    """Run a policy on held-out tasks: success, EM, F1, pass@k (eval.samples), turns, tool errors.

    feedback.mode=c gives the frozen policy a second attempt after the judge's critique, reported as `refined`.
    """
    needs("agents", "playing a policy", "torch", "transformers", "accelerate")
    from reagent.train.config import load_agent_config
    from reagent.train.evaluate import evaluate_config
    from rrm.trajectory import write_jsonl

    check_outputs(output, transcripts)
    settings = load_agent_config(config, overrides)
    if policy is not None:
        settings.policy.base = policy
    found, episodes = evaluate_config(settings)
    if transcripts is not None:
        write_jsonl(transcripts, (e.trajectory for e in episodes))
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")
    shown = {k: v for k, v in found.items() if k != "by_task"}
    if "refined" in shown:
        shown["refined"] = {k: v for k, v in shown["refined"].items() if k != "by_task"}
    finish({"policy": settings.policy.base, "environment": settings.environment.name, **shown})
