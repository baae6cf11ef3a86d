"""Where the next hours of training are best spent: one axis at a time around one small training.

    python -m benchmarks.default_judge.scaling                   # all points; those that are done are read
    python -m benchmarks.default_judge.scaling --points base,lora --threads 2

The base point is a twelfth of `subset`'s rows, read once, every weight trained, windows of 640 tokens; `lora` trains low-rank parts of the upper
twenty layers. Every other point changes one thing. Each is
trained by `rrm train`, in a folder of its own under --work (a stopped one goes on), and measured on the same held-out rows in mode `steps`:
AUROC of outcomes and of step labels, each the mean over the sources that have both classes. Writes benchmarks/results/default_judge_scaling.json.

Expected, written down before it ran at this size: half the rows cost 0.05 of the steps' AUROC, twice the rows or a second reading bring as
much; low-rank parts learn less than every weight in so few updates; the context changes less than chance does; outcomes stay where chance is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.default_judge.drawing import drawn, named
from benchmarks.default_judge.said import Judged
from benchmarks.default_judge.scorers import data_hash, labels_of, load
from benchmarks.default_judge.sources import Example
from benchmarks.default_judge.subset import characters
from benchmarks.studies.study import begin
from rrm.data.provenance import environment
from rrm.evaluation.step_scores import LabelledSteps
from rrm.judge.agent_rrm import AgentRRM

SHARE = 0.08


@dataclass(frozen=True)
class Point:
    """One training."""

    axis: str
    share: float = SHARE
    """Of the subset's rows."""
    options: tuple[str, ...] = ()
    """Of `rrm train`."""


EVERY_WEIGHT = ("sft.lora=null", "sft.learning_rate=1e-4")
POINTS = {
    "base": Point("base", options=EVERY_WEIGHT),
    "lora": Point("trainable share"),
    "lora_upper_ten": Point("trainable share", options=("sft.lora.skip_layers=20",)),
    "rows_half": Point("rows", SHARE / 2, EVERY_WEIGHT),
    "rows_twice": Point("rows", SHARE * 2, EVERY_WEIGHT),
    "context_384": Point("context", options=(*EVERY_WEIGHT, "transcript_tokens=384")),
    "context_1024": Point("context", options=(*EVERY_WEIGHT, "transcript_tokens=1024")),
    "epochs_two": Point("epochs", options=(*EVERY_WEIGHT, "sft.epochs=2")),
}  # fmt: skip


def run(module: str, *arguments: str) -> None:
    """A command of this repository, its output shown; the first that fails ends the study."""
    subprocess.run([sys.executable, "-m", module, *arguments], check=True)


def train(point: Point, folder: Path, data: Path, threads: int, seed: int) -> None:
    """Draw the rows and train, unless that is done.

    Raises:
        SystemExit: the folder holds a point of other options, data or seed.
    """
    made = {"share": point.share, "options": list(point.options), "seed": seed, "data": data_hash(data)}
    begin(folder, **made)
    rows = folder.parent / f"rows_{point.share:g}_{seed}_{made['data']}"
    if not (rows / "split.json").is_file():
        run("benchmarks.default_judge.subset", "--data", str(data), "-o", str(rows), "--share", f"{point.share}",
            "--calibration", "1", "--seed", str(seed))  # fmt: skip
    if (folder / "judge" / "judge.json").is_file():
        return
    own = [
        f"output_dir={folder}", f"threads={threads}", f"seed={seed}", "calibration.enabled=false", f"data.split={rows}/split.json",
        "sft.batch_size=4", "sft.gradient_accumulation_steps=2", "sft.save_steps=4",  # half the memory, and little lost by a stop
        f"data.trajectories=[{rows}/transcripts.jsonl]", f"data.annotations=[{rows}/annotations.jsonl]",
    ]  # fmt: skip
    run("rrm", "train", "--config", "default-small", *own, *point.options)


def auroc(scores: Sequence[float], good: Sequence[bool]) -> float | None:
    """None where one class is absent."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(good, scores)) if 0 < sum(good) < len(good) else None


def measure(judge: AgentRRM, rows: Sequence[Example], path: Path, seed: int) -> dict[str, Any]:
    """Mean AUROC over sources, of outcomes and of labelled steps, and each source's."""
    said = Judged("steps")
    said.add(judge, rows, path, seed)
    outcomes: dict[str, float] = {}
    steps: dict[str, float] = {}
    for name, mine in named(rows).items():
        graded = [(s, row.trajectory.outcome >= 0.5) for row in mine
                  if row.trajectory.outcome is not None and (s := said.score(row)) is not None]  # fmt: skip
        labelled = LabelledSteps(
            [row.trajectory for row in mine],
            [said.feedback.get(row.trajectory.id) for row in mine],
            [labels_of(row) for row in mine],
        )
        for kept, value in (
            (outcomes, auroc([s for s, _ in graded], [y for _, y in graded])),
            (steps, auroc(list(labelled.p_good), [not bad for bad in labelled.bad])),
        ):
            if value is not None:
                kept[name] = value
    means = {k: float(np.mean(list(v.values()))) if v else None for k, v in (("outcomes", outcomes), ("steps", steps))}
    return {"auroc": means, "by_source": {"outcomes": outcomes, "steps": steps}, "rows": len(rows), "raw": said.raw}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("runs/default_judge/data"))
    parser.add_argument("--work", type=Path, default=Path("runs/default_judge/scaling"))
    parser.add_argument("--output", type=Path, default=record.RESULTS / "default_judge_scaling.json")
    parser.add_argument("--points", default=",".join(POINTS), help="comma-separated")
    parser.add_argument("--limit", type=int, default=16, help="held-out rows of each source")
    parser.add_argument("--longest", type=int, default=2500, help="characters of a held-out row, as of a training row")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = args.points.split(",")
    if unknown := sorted(set(names) - set(POINTS)):
        parser.error(f"no point {unknown[0]!r}: {', '.join(POINTS)}")
    held_out = [row for row in load(args.data)["test"] if characters(row.trajectory) <= args.longest]
    test = [row for rows in named(held_out).values() for row in drawn(rows, args.limit, 4, args.seed)]
    args.work.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for name in names:
        point, folder = POINTS[name], args.work / name
        train(point, folder, args.data, args.threads, args.seed)
        stage = json.loads((folder / "sft" / "done.json").read_text(encoding="utf-8"))
        state = json.loads((folder / "sft" / "trainer_state.json").read_text(encoding="utf-8"))
        seconds = state["log_history"][-1].get("train_runtime")
        measured = measure(
            AgentRRM.from_pretrained(str(folder / "judge")), test, args.work / f"{name}.jsonl", args.seed
        )
        found[name] = {
            "axis": point.axis, "options": point.options, "rows": stage["rows"], "tokens": stage["tokens"], "seconds": seconds, **measured,
        }  # fmt: skip
        print(json.dumps({"point": name, "tokens": stage["tokens"], **measured["auroc"]}), flush=True)
    made = {
        "command": record.command("default_judge.scaling"),
        "commit": record.commit(),
        "seed": args.seed,
        "limit": args.limit,
        "longest": args.longest,
    }
    record.write(
        args.output,
        {"points": found, "made": made, "environment": environment(), **record.made_with("numpy", "scikit-learn")},
    )


if __name__ == "__main__":
    main()
