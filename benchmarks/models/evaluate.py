"""Measure a step judge on sources left out, at home and on the sanity set; writes its part of benchmarks/results/judges.json.

    python -m benchmarks.models.evaluate rows --fold all -o runs/judges/eval/rows
    python -m benchmarks.models.evaluate score runs/judges/eval/rows/FOLD.npz --base BASE --adapter ADAPTER -o SCORES/FOLD.npz
    python -m benchmarks.models.evaluate score …/rows/calibration.npz --leave-out FOLD --adapter … -o SCORES/FOLD.calibration.npz
    python -m benchmarks.models.evaluate calibrate SCORES/FOLD.calibration.npz -o SCORES/FOLD.maps.json
    python -m benchmarks.models.evaluate figures --judge small --scores SCORES

A fold's rows are scored by the adapter that left it out, `home` and `sanity` by the one that learned from all sources; their maps are
`all.maps.json`. `score` goes on where it stopped. The figures: `benchmarks/models/figures.py`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.models import evaluation_rows, figures, scores
from benchmarks.models.rivals import Rivals, lessons
from benchmarks.models.rows import prompter_of, store
from benchmarks.models.sources import FOLDS, load

RESULT = record.RESULTS / "judges.json"
ALL = (*FOLDS, "home", "calibration", "sanity")
"""What rows are made for."""
SANITY = Path(__file__).with_name("sanity.jsonl")


def make_rows(args: argparse.Namespace) -> None:
    """Write NAME.npz and NAME.jsonl of each fold that is asked for."""
    prompter = prompter_of(args.tokenizer)
    names = ALL if "all" in args.fold else args.fold
    runs = load() if set(names) != {"sanity"} else []
    learned = lessons(runs, args.seed)
    for name in names:
        out = [source for source in learned if name in FOLDS and source.startswith(FOLDS[name])]
        rivals = Rivals([said for source, said in learned.items() if source not in out])
        sanity = name == "sanity"
        pool = list(evaluation_rows.sanity_runs(SANITY)) if sanity else evaluation_rows.chosen(runs, name)
        shares = evaluation_rows.NATURAL if name == "calibration" else evaluation_rows.SHARES
        made = evaluation_rows.make(prompter, pool, rivals, None if sanity else args.tokens, args.seed, shares)
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made.lines), "utf-8")
        store(args.output / f"{name}.npz", prompter, made.rows, made.sources, fold=name, seed=args.seed)


def score(args: argparse.Namespace) -> None:
    """Score a file of rows, and print how far it is."""
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)
    how = (args.base, args.adapter, args.device, args.dtype, args.leave_out, args.minutes)
    print(json.dumps(scores.score(args.rows, args.output, *how)))


def calibrate(args: argparse.Namespace) -> None:
    """Fit the maps of verdicts and outcomes and the band of `unsure`; print and store them."""
    rows, scored = scores.read_scores(args.scores)
    said = {
        **figures.fit_maps(rows, args.coverage),
        "scored": scored,
        "command": record.command("models.evaluate"),
        "commit": record.commit(),
    }
    record.write(args.output, said)
    print(json.dumps(said))


def write_figures(args: argparse.Namespace) -> None:
    """Add the figures of every file of scores that is there to the record."""
    held, scored = dict[str, figures.Fold](), dict[str, Any]()
    for name in (*FOLDS, "home", "sanity"):
        path, maps = args.scores / f"{name}.npz", args.scores / f"{name if name in FOLDS else 'all'}.maps.json"
        if path.is_file():
            rows, scored[name] = scores.read_scores(path)
            held[name] = figures.Fold(rows, json.loads(maps.read_text()) if maps.is_file() else None)
    found = figures.all_figures(held, resamples=args.resamples, seed=args.seed)
    made: dict[str, Any] = {
        "command": record.command("models.evaluate"),
        "commit": record.commit(),
        "seed": args.seed,
        "resamples": args.resamples,
        **record.made_with("numpy", "scikit-learn", "torch", "transformers", "peft"),
        "calibrated": sorted(name for name, fold in held.items() if fold.maps is not None),
        "adapters": {name: said["adapter"] for name, said in scored.items()},
        "counts": {name: figures.sizes(fold.scored) for name, fold in held.items()},
    }
    before = json.loads(args.out.read_text()) if args.out.is_file() else {}
    mine = before.get(args.judge, {})
    for section, said in {**found, "evaluation": made}.items():
        mine[section] = {**mine.get(section, {}), **said}
    record.write(args.out, {**before, args.judge: mine})
    print(json.dumps(found))


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = made.add_subparsers(required=True)
    rows = stages.add_parser("rows", help="choose runs and write rows")
    rows.add_argument("--fold", nargs="+", required=True, choices=["all", *ALL])
    rows.add_argument(
        "--tokens", type=int, default=150_000, help="of each file, but for the sanity set, which is read whole"
    )
    rows.add_argument("--tokenizer", default="smollm2", help="base model, or a folder")
    rows.add_argument("--seed", type=int, default=0)
    rows.add_argument("-o", "--output", type=Path, required=True, help="folder")
    rows.set_defaults(run=make_rows)
    scoring = stages.add_parser("score", help="log-odds at every slot")
    scoring.add_argument("rows", type=Path)
    scoring.add_argument("--base", required=True)
    scoring.add_argument("--adapter", required=True, help="a file, or `none`: the base alone")
    scoring.add_argument("--leave-out", choices=list(FOLDS), help="rows of its sources are not scored")
    scoring.add_argument("--device", default="cpu")
    scoring.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    scoring.add_argument("--threads", type=int)
    scoring.add_argument("--minutes", type=float, default=1e9)
    scoring.add_argument("-o", "--output", type=Path, required=True)
    scoring.set_defaults(run=score)
    calibrating = stages.add_parser("calibrate", help="maps of a judge, from scores of the calibration part")
    calibrating.add_argument("scores", type=Path)
    calibrating.add_argument("--coverage", type=float, default=0.8, help="share of the steps that the band leaves sure")
    calibrating.add_argument("-o", "--output", type=Path, required=True)
    calibrating.set_defaults(run=calibrate)
    measuring = stages.add_parser("figures", help="figures of all scores in a folder")
    measuring.add_argument("--judge", required=True, choices=["small", "base"])
    measuring.add_argument("--scores", type=Path, required=True, help="folder")
    measuring.add_argument("--out", type=Path, default=RESULT)
    measuring.add_argument("--resamples", type=int, default=2000)
    measuring.add_argument("--seed", type=int, default=0)
    measuring.set_defaults(run=write_figures)
    return made


def main() -> None:
    """Run one stage."""
    args = parser().parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
