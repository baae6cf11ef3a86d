"""`reagent lab build | reflect | transcripts`."""

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reagent.cli.lab_transcripts import command as transcripts
from reagent.lab.settings import LabSettings, ReflectSettings
from rrm.cli import finish
from rrm.cli.paths import check_folder
from rrm.data.extras import needs
from rrm.errors import RRMError


class Kinds(StrEnum):
    """What the policy is shown."""

    tool_call = "tool_call"
    naive_rag = "naive_rag"
    direct = "direct"


app = typer.Typer(no_args_is_help=True, help="The lab's own policies and transcripts.")
app.command("transcripts")(transcripts)


@app.command("build")
def build(
    output: Annotated[Path, typer.Option("-o", "--output", help="folder of the policy")],
    kind: Annotated[
        Kinds, typer.Option(help="tool_call: what RL starts from; the others are baselines")
    ] = Kinds.tool_call,
    rows: Annotated[int, typer.Option(min=8, help="demonstrations")] = LabSettings.rows,
    epochs: Annotated[int, typer.Option(min=1)] = LabSettings.epochs,
    seed: Annotated[int, typer.Option()] = LabSettings.seed,
) -> None:
    """Build a lab policy from a seed: tokenizer, small Llama, supervised training on played demonstrations."""
    needs("train", "building a lab policy", "torch", "transformers", "datasets", "trl")
    from reagent.lab.build import build_lab_policy

    check_folder(output)
    output.mkdir(parents=True, exist_ok=True)
    card = build_lab_policy(LabSettings(kind=kind.value, seed=seed, rows=rows, epochs=epochs), output)
    shutil.rmtree(output / "training", ignore_errors=True)
    finish({"output": str(output), **{k: card[k] for k in ("parameters", "rows", "tokens", "train_loss", "sha256")}})


@app.command("reflect")
def reflect(
    output: Annotated[Path, typer.Option("-o", "--output", help="folder of the policy")],
    policy: Annotated[Path | None, typer.Option(help="the policy to teach; default: the shipped one")] = None,
    rows: Annotated[int, typer.Option(min=8, help="reflections")] = ReflectSettings.rows,
    seed: Annotated[int, typer.Option()] = ReflectSettings.seed,
) -> None:
    """Teach a lab policy second attempts and the judge's texts, which feedback in training builds on."""
    needs("train", "teaching a lab policy", "torch", "transformers", "datasets", "trl")
    from reagent.lab import build as training
    from reagent.lab.shipped import lab_policy_folder

    base = policy or lab_policy_folder()
    if not (base / "config.json").is_file():
        raise RRMError(f"no policy at {base}: `reagent lab build -o {base}` makes one")
    check_folder(output)
    output.mkdir(parents=True, exist_ok=True)
    card = training.reflect(ReflectSettings(seed=seed, rows=rows), base, output)
    shutil.rmtree(output / "training", ignore_errors=True)
    finish({"output": str(output), **{k: card[k] for k in ("rows", "tokens", "train_loss", "sha256")}})
