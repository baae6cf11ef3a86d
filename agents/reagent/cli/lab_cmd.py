"""`reagent lab build | reflect | transcripts`."""

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reagent.lab.settings import LabSettings, ReflectSettings
from rrm.cli import finish
from rrm.cli.paths import check_folder, check_outputs
from rrm.data.extras import needs
from rrm.errors import RRMError


class Kinds(StrEnum):
    tool_call = "tool_call"
    naive_rag = "naive_rag"
    direct = "direct"


app = typer.Typer(no_args_is_help=True, help="The lab's own policies and transcripts.")


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


@app.command("transcripts")
def transcripts(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the transcripts go (canonical JSONL).")],
    n: Annotated[int, typer.Option("--n", min=1, help="How many transcripts, four to a question.")] = 2000,
    seed: Annotated[int, typer.Option(help="Names the worlds; different seeds share none.")] = 0,
    heldout: Annotated[
        bool, typer.Option("--heldout", help="Wordings and fault kinds that training never has.")
    ] = False,
    annotations: Annotated[Path | None, typer.Option(help="Where the labels go, one line a transcript.")] = None,
    hops: Annotated[str, typer.Option(help="Hop counts to draw from, e.g. 1,2,3.")] = "1,2,3,4",
) -> None:
    """Make lab transcripts: search agents that answer questions of several hops, clean or with one planted fault.

    Everything follows from the seed: worlds, questions, mistakes, outcomes and labels.
    """
    from reagent.lab.transcripts import make_transcripts
    from rrm.data.trajectory import write_jsonl

    check_outputs(output, annotations)
    counts = _hops(hops)
    rows = make_transcripts(n, seed=seed, split="heldout" if heldout else "train", hops=counts)
    write_jsonl(output, (trajectory for trajectory, _ in rows))
    if annotations is not None:
        lines = (annotation.model_dump_json(exclude_none=True) + "\n" for _, annotation in rows)
        annotations.write_text("".join(lines), encoding="utf-8")
    finish(
        {
            "command": "lab transcripts",
            "transcripts": len(rows),
            "questions": len({t.question_id for t, _ in rows}),
            "positive": round(sum(t.outcome or 0.0 for t, _ in rows) / len(rows), 4),
            "faulty": sum(t.meta["fault"] is not None for t, _ in rows),
            "seed": seed,
            "output": str(output),
            "annotations": str(annotations) if annotations else None,
        }
    )


def _hops(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"--hops {text!r} is not a list of numbers such as 1,2,3") from error
    if not all(1 <= c <= 6 for c in counts):
        raise typer.BadParameter(f"--hops {text!r}: a question has 1 to 6 hops")
    return counts
