"""The headline on all of MINT: five judges, each trained on four folds' questions, judge the fifth's.

    for f in 0 1 2 3 4; do
      python -m benchmarks.train_mint --split benchmarks/splits/mint_fold$f.json -o runs/fold$f/data
      rrm train --config smollm2 output_dir=runs/fold$f/run data.trajectories="[runs/fold$f/data/trajectories.jsonl]" \\
        data.annotations="[runs/fold$f/data/annotations.jsonl]" data.target=annotation data.split=benchmarks/splits/mint_fold$f.json
    done
    python -m benchmarks.folds_mint --runs runs --dtype bfloat16        # writes benchmarks/results/folds_mint.json

Pairs are made inside a question, so inside a fold: scores of different judges are never compared. The baselines are out
of fold over the same folds, trained on all other questions (the judge leaves eight of them for its calibration). Rows
judged are kept in each run's folder and not judged again; `--folds 0,1` measures the folds named.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import mint, record
from benchmarks.judge_mint import judged, outcomes, report
from rrm.data.feedback import Feedback
from rrm.data.provenance import environment
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.evaluation.baselines import LEARNED, length_scores, out_of_fold
from rrm.judge.agent_rrm import AgentRRM


def fold_feedback(run: Path, rows: list[Trajectory], dtype: str | None, seed: int) -> tuple[list[Feedback], Any]:
    """One fold's judge on its held-out rows, and how the judge describes itself."""
    judge = AgentRRM.from_pretrained(str(run / "judge"), dtype=dtype)
    return judged(judge, rows, run / "heldout.jsonl", "score", seed), judge.describe()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--folds", default="0,1,2,3,4")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--data", type=Path, default=mint.DATA)
    parser.add_argument("--output", type=Path, default=record.RESULTS / "folds_mint.json")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    folds = [int(f) for f in args.folds.split(",")]
    protocol = list(mint.rows(args.data, critic=False))
    y = outcomes(protocol)
    splits = {f: mint.load_split(mint.SPLIT.parent / f"mint_fold{f}.json") for f in folds}
    test = {f: [t for t in protocol if t.question_id in set(splits[f]["test"])] for f in folds}
    feedback: list[Feedback] = []
    judges: list[Any] = []
    for f in folds:
        found, description = fold_feedback(args.runs / f"fold{f}" / "run", test[f], args.dtype, args.seed)
        feedback += found
        judges.append(description)
    index = [i for i, t in enumerate(protocol) if any(question_of(t) in splits[f]["test"] for f in folds)]
    rows = [protocol[i] for i in index]
    baselines = {"length": length_scores(rows)}
    for name, fit in LEARNED.items():
        baselines[name] = out_of_fold(fit, protocol, y, k=5, seed=0)[index]
    datasets = {d: [i for i, t in enumerate(rows) if t.meta["dataset"] == d] for d in mint.FILES}
    by_id = {f.id: f for f in feedback}
    whole = {
        "command": record.command("folds_mint"),
        "seed": args.seed,
        "environment": {**environment(), "dtype": args.dtype or "default"},
        "judges": judges,
        "folds": folds,
        "all": report(rows, [by_id[t.id] for t in rows], baselines=baselines, seed=args.seed),
        "datasets": {
            d: report(
                [rows[i] for i in chosen],
                [by_id[rows[i].id] for i in chosen],
                baselines={k: v[np.array(chosen)] for k, v in baselines.items()},
                seed=args.seed,
            )
            for d, chosen in datasets.items()
        },
    }
    record.write(args.output, whole)
    headline = {k: v["pair_accuracy_same_turns"] for k, v in whole["all"]["metrics"].items()}
    gaps = {k: v["pair_accuracy_same_turns"] for k, v in whole["all"]["differences"].items()}
    print(json.dumps({"pairs": headline, "judge_minus": gaps, "output": str(args.output)}))


if __name__ == "__main__":
    main()
