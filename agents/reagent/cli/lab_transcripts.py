"""`reagent lab transcripts`: make labelled transcripts of scripted agents in small worlds."""

from pathlib import Path
from typing import Annotated

import typer

from rrm.cli.paths import check_outputs


def command(
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
    from rrm.cli import finish
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
        counts = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"--hops {text!r} is not a list of numbers such as 1,2,3") from error
    if not all(1 <= c <= 6 for c in counts):
        raise typer.BadParameter(f"--hops {text!r}: a question has 1 to 6 hops")
    return counts
