"""`rrm estimate` on labelled runs that the judge never saw: do its intervals hold, and are they narrower than by labels alone?

    python -m benchmarks.studies.label_estimates STATE [--draws 2000]

STATE is the folder of `benchmarks.studies.learning_curve`, whose runs `rrm score` has scored. Each source's runs are the whole set; their
outcomes are known, so the true share is. `small` is the judge's score of its scored runs; `words`, of all runs, is TF-IDF learned from the
source's other questions (five folds), a judge as a team with old labels has one; `none` knows nothing. 30 and 100 labels (where they are at
most half of the runs) are drawn as `rrm label --choose` draws them, but in the order of the score alone; 2,000 draws each.

Bars: coverage ≥ 0.93; at 100 labels a width of at most 0.85 of that by labels alone where the judge's AUROC is ≥ 0.75; never more than 1.05.
Written down before: coverage holds; at an AUROC of 0.75 the width is 0.89, as a score that explains a fifth of the variance takes no more
than a tenth of the width; 0.85 takes an AUROC near 0.8.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks import record
from benchmarks.models.rivals import step_text
from benchmarks.models.sources import LabelledRun, load
from benchmarks.studies.learning_curve import all_runs, scored
from rrm.data.seeds import derive_seed
from rrm.evaluation.share_estimate import chances_of, drawn, estimate

LABELS, FOLDS = (30, 100), 5


def words_of(run: LabelledRun) -> str:
    """A run's last two steps."""
    steps = len(run.trajectory.steps)
    return "\n".join(step_text(run.trajectory, k) for k in range(max(1, steps - 1), steps + 1))


def words(everything: Sequence[LabelledRun], runs: Sequence[LabelledRun]) -> np.ndarray:
    """P(success) by TF-IDF, each fifth of the questions judged by what the others taught."""
    source = runs[0].source
    mine = [run for run in everything if run.source == source and run.trajectory.outcome is not None]
    keys = sorted({run.key for run in mine})
    random.Random(derive_seed("label_estimates", source)).shuffle(keys)
    scores = np.zeros(len(runs))
    for fold in range(FOLDS):
        held_out = set(keys[fold::FOLDS])
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=60_000),
            LogisticRegression(max_iter=400),
        )
        train = [run for run in mine if run.key not in held_out]
        model.fit([words_of(run) for run in train], [run.succeeded for run in train])
        judged = [i for i, run in enumerate(runs) if run.key in held_out]
        scores[judged] = model.predict_proba([words_of(runs[i]) for i in judged])[:, 1]
    return scores


def measured(scores: np.ndarray, truth: np.ndarray, draws: int) -> dict[str, Any]:
    """Coverage and width of one judge on one source."""
    study_record: dict[str, Any] = {
        "auroc": float(roc_auc_score(truth, np.nan_to_num(scores, nan=float(np.nanmean(scores)))))
    }
    order = list(np.argsort(np.nan_to_num(scores, nan=0.5)))
    for n in (n for n in LABELS if n <= len(scores) / 2):
        chances = chances_of(scores, n)
        rows = []
        for draw in range(draws):
            places = np.array(drawn(chances, order, draw))
            chosen = estimate(scores, places, truth[places], chances[places])
            evenly = np.random.default_rng(draw).choice(len(truth), n, replace=False)
            alone = estimate(scores, evenly, truth[evenly])
            low, high = alone.labels_alone
            rows.append(
                (
                    chosen.low <= truth.mean() <= chosen.high,
                    chosen.high - chosen.low,
                    low <= truth.mean() <= high,
                    high - low,
                )
            )
        covered, width, covered_alone, width_alone = np.mean(rows, axis=0)
        study_record[str(n)] = {
            "coverage": float(covered), "width": float(width), "coverage_alone": float(covered_alone),
            "width_alone": float(width_alone), "width_ratio": float(width / width_alone),
        }  # fmt: skip
    return study_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", type=Path)
    parser.add_argument("--draws", type=int, default=2000)
    args = parser.parse_args()
    everything, sources = load(), dict[str, Any]()
    for source, every_run in all_runs().items():
        rows = scored(args.state, source, "scored")
        judged = [run for run in every_run if run.trajectory.id in rows]
        scores = [rows[run.trajectory.id].score for run in judged]
        small = np.array([np.nan if score is None else score for score in scores])
        sources[source] = {}
        judges = (
            ("small", judged, small),
            ("words", every_run, words(everything, every_run)),
            ("none", judged, np.full(len(judged), 0.5)),
        )
        for name, runs, of in judges:
            truth = np.array([float(run.succeeded) for run in runs])
            sources[source][name] = {"runs": len(runs), "succeeded": float(truth.mean())} | measured(
                of, truth, args.draws
            )
            print(source, name, sources[source][name], flush=True)
    study_record = {
        "sources": sources,
        "draws": args.draws,
        "command": record.command("studies.label_estimates"),
        "commit": record.commit(),
    }
    record.write(record.RESULTS / "label_estimates.json", study_record | record.made_with("torch", "scikit-learn"))


if __name__ == "__main__":
    main()
