"""The baselines on MINT by the protocol, grouped 5-fold: what every judge is held against.

python -m benchmarks.baselines_mint        # writes benchmarks/results/baselines_mint.json, under 5 minutes on two cores
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.mint import DATA, rows
from rrm.data.questions import question_of
from rrm.evaluation.baselines import LEARNED, length_scores, out_of_fold
from rrm.evaluation.bootstrap import Ratio, Statistic, own_interval, paired_bootstrap, replicates
from rrm.evaluation.metrics.pairs import best_of_n_parts, codes, pair_parts
from rrm.evaluation.metrics.probability import Auroc

RESULT = record.RESULTS / "baselines_mint.json"


def intervals(statistics: Mapping[str, Statistic], n_questions: int, resamples: int, seed: int) -> dict[str, Any]:
    """Each statistic's value with its 95 % interval over questions, all on the same resamples."""
    drawn = replicates(statistics, n_questions, n=resamples, seed=seed)
    return {k: own_interval(f, n_questions, drawn[k]).to_dict() for k, f in statistics.items()}


def measure(data: Path, *, folds: int, seed: int, resamples: int) -> dict[str, Any]:
    """Scores of every baseline and their metrics with 95 % intervals over questions."""
    trajectories = list(rows(data, critic=False))
    labels = np.array([t.outcome or 0.0 for t in trajectories])
    questions, n_questions = codes([question_of(t) for t in trajectories])
    turns = np.array([len(t.steps) for t in trajectories])
    scores = {"length": length_scores(trajectories)}
    for name, fit in LEARNED.items():
        scores[name] = out_of_fold(fit, trajectories, labels, k=folds, seed=seed)
    table: dict[str, Any] = {}
    pair_statistics: dict[str, Ratio] = {}
    for name, s in scores.items():
        same_turns = pair_statistics[name] = pair_parts(s, labels, questions, n_questions, turns)
        statistics = {
            "pair_accuracy_same_turns": same_turns,
            "pair_accuracy_same_question": pair_parts(s, labels, questions, n_questions),
            "auroc": Auroc(s, labels, questions),
            "best_of_n_gain": best_of_n_parts(s, labels, questions, n_questions),
        }
        table[name] = intervals(statistics, n_questions, resamples, seed)
    difference = paired_bootstrap(
        pair_statistics["agent"], pair_statistics["tfidf"], n_questions, n=resamples, seed=seed
    )
    return {
        "rows": len(trajectories),
        "questions": n_questions,
        "positive_rate": float(labels.mean()),
        "pairs_same_turns": int(pair_statistics["length"].denominator.sum()),
        "folds": folds,
        "resamples": resamples,
        "baselines": table,
        "agent_minus_tfidf_same_turns": difference.to_dict(),
    }


def measured(
    name: str, measure: Callable[..., dict[str, Any]], description: str | None, packages: Sequence[str]
) -> dict[str, Any]:
    """What `measure(data, folds=, seed=, resamples=)` finds with the command line's options, written to
    benchmarks/results/`name`.json (or `--out`) with what made it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=record.RESULTS / f"{name}.json")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=10_000)
    args = parser.parse_args()
    start = time.monotonic()
    found = measure(args.data, folds=args.folds, seed=args.seed, resamples=args.resamples)
    found |= {
        "seed": args.seed,
        "command": record.command(name),
        **record.made_with(*packages),
        "seconds": round(time.monotonic() - start, 1),
    }
    record.write(args.out, found)
    return found


def main() -> None:
    found = measured("baselines_mint", measure, __doc__, ("numpy", "scikit-learn", "scipy"))
    for name, metrics in found["baselines"].items():
        for metric, i in metrics.items():
            print(f"{name:8s} {metric:28s} {i['value']:.3f} [{i['low']:.3f}, {i['high']:.3f}]")
    print(json.dumps({"rows": found["rows"], "questions": found["questions"]}))


if __name__ == "__main__":
    main()
