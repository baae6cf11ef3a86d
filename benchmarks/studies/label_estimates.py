"""`rrm estimate` on labelled runs that the judge never saw: do its intervals hold, and are they narrower than by labels alone?

    python -m benchmarks.studies.label_estimates [--runs 400] [--draws 500]

Each source's runs (at most --runs, drawn by seed) are the whole set; their outcomes are known, so the true share is. `small` scores them;
`words` is TF-IDF learned from runs of other questions of the same source, a judge as a team with old labels has one. Of 30 and 100 labels,
drawn as `rrm label --choose` draws them, 500 draws each. Bars: coverage ≥ 0.93; at 100 labels a width of at most 0.85 of that by labels
alone where the judge's AUROC is ≥ 0.75; never more than 1.05. Written down before: coverage holds; at an AUROC of 0.75 the width is
0.89, as a score that explains a fifth of the variance takes no more than a tenth of the width; 0.85 takes an AUROC near 0.8.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks import record
from benchmarks.models.rivals import step_text
from benchmarks.models.sources import LabelledRun, load
from rrm.data.seeds import derive_seed
from rrm.evaluation.share_estimate import chances_of, drawn, estimate
from rrm.judge.agent_rrm import AgentRRM

SOURCES = ("workbench", "tau", "stepshield", "agentdojo")
LABELS = (30, 100)


def words_of(run: LabelledRun) -> str:
    """A run's last two steps."""
    steps = len(run.trajectory.steps)
    return "\n".join(step_text(run.trajectory, k) for k in range(max(1, steps - 1), steps + 1))


def words(train: Sequence[LabelledRun], runs: Sequence[LabelledRun]) -> np.ndarray:
    """P(success) by TF-IDF."""
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=60_000),
        LogisticRegression(max_iter=400),
    )
    model.fit([words_of(run) for run in train], [run.succeeded for run in train])
    return model.predict_proba([words_of(run) for run in runs])[:, 1]


def measured(scores: np.ndarray, truth: np.ndarray, draws: int) -> dict[str, Any]:
    """Coverage and width of one judge on one source."""
    study_record: dict[str, Any] = {
        "auroc": float(roc_auc_score(truth, np.nan_to_num(scores, nan=float(np.nanmean(scores)))))
    }
    order = list(np.argsort(np.nan_to_num(scores, nan=0.5)))
    for n in LABELS:
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
    parser.add_argument("--runs", type=int, default=400, help="of each source")
    parser.add_argument("--draws", type=int, default=500)
    args = parser.parse_args()
    everything, judge = load(), AgentRRM.from_pretrained()
    sources: dict[str, Any] = {}
    for source in SOURCES:
        mine = [run for run in everything if run.source == source and run.trajectory.outcome is not None]
        keys = sorted({run.key for run in mine})
        random.Random(derive_seed("label_estimates", source)).shuffle(keys)
        learned = set(keys[: len(keys) // 2])
        train, held_out = [r for r in mine if r.key in learned], [r for r in mine if r.key not in learned]
        runs = random.Random(derive_seed("label_estimates runs", source)).sample(
            held_out, min(args.runs, len(held_out))
        )
        truth = np.array([float(run.succeeded) for run in runs])
        scored = [row.score for row in judge.judge([run.trajectory for run in runs])]
        small = np.array([np.nan if score is None else score for score in scored])
        sources[source] = {"runs": len(runs), "succeeded": float(truth.mean())}
        for name, scores in (("small", small), ("words", words(train, runs)), ("none", np.full(len(runs), 0.5))):
            sources[source][name] = measured(scores, truth, args.draws)
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
