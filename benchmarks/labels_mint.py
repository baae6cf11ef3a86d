"""Which labels to train the MINT judge on, and how much of a transcript it needs, asked of TF-IDF.

    python -m benchmarks.labels_mint        # writes benchmarks/results/labels_mint.json, twenty minutes on a busy machine

- `labels`: TF-IDF and ridge regression on outcomes smoothed by agent (`benchmarks.smoothed`, the training questions'
  alone), for several shares of a row's own outcome; 1.0 is the outcome as it is.
- `budgets`: TF-IDF and logistic regression on outcomes, reading what a judge with so many transcript tokens would read.

All out of fold over the baselines' five folds; measured on outcomes by the protocol, with 95 % intervals over questions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import smoothed
from benchmarks.baselines_mint import intervals, measured
from benchmarks.mint import rows
from rrm.data.questions import question_of
from rrm.data.splits import grouped_folds
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.hf.base_model import base_path
from rrm.evaluation.baselines import fit_tfidf, out_of_fold, tfidf_features, tfidf_text
from rrm.evaluation.bootstrap import paired_bootstrap
from rrm.evaluation.metrics.pairs import codes, pair_parts
from rrm.evaluation.metrics.probability import Auroc
from rrm.prompt.rendering import render_transcript

OWN_SHARES = (1.0, 0.5, 0.35, 0.3, 0.0)
BUDGETS = (192, 256, 448, 704)
ALPHA = 1.0
"""Strength of the ridge regression's penalty (scikit-learn's default)."""


def smoothed_scores(trajectories: Sequence[Trajectory], folds: int, seed: int) -> dict[float, np.ndarray]:
    """(N,) out-of-fold predictions for each share of a row's own outcome."""
    from sklearn.linear_model import Ridge

    fold_of = grouped_folds([question_of(t) for t in trajectories], folds, seed)
    scores = {share: np.empty(len(trajectories)) for share in OWN_SHARES}
    for fold in range(folds):
        train = [t for t, f in zip(trajectories, fold_of, strict=True) if f != fold]
        test = [t for t, f in zip(trajectories, fold_of, strict=True) if f == fold]
        features, transform = tfidf_features(map(tfidf_text, train))
        held_out, questions = transform(map(tfidf_text, test)), {t.question_id for t in train if t.question_id}
        for share, found in scores.items():
            labels = {a.trajectory_id: a.score for a in smoothed.annotate(train, questions, own_share=share)}
            model = Ridge(alpha=ALPHA, solver="sparse_cg").fit(features, [labels[t.id] for t in train])
            found[fold_of == fold] = model.predict(held_out)
    return scores


def as_read(trajectory: Trajectory, tokenizer: Any, budget: int) -> Trajectory:
    """The transcript as a judge's prompt shows it within `budget` tokens, as one message."""
    text = render_transcript(trajectory, tokenizer, budget).text
    return trajectory.model_copy(update={"messages": [Message(role="user", content=text)]})


def budget_scores(
    trajectories: Sequence[Trajectory], labels: np.ndarray, folds: int, seed: int
) -> dict[str, np.ndarray]:
    """(N,) out-of-fold predictions for each budget of tokens (of SmolLM2's tokenizer), and for whole transcripts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base_path("smollm2"))
    found = {}
    for budget in BUDGETS:
        cut = [as_read(t, tokenizer, budget) for t in trajectories]
        found[str(budget)] = out_of_fold(fit_tfidf, cut, labels, k=folds, seed=seed)
    return found | {"all": out_of_fold(fit_tfidf, trajectories, labels, k=folds, seed=seed)}


def measure(data: Path, *, folds: int, seed: int, resamples: int) -> dict[str, Any]:
    """Both questions' tables; differences are paired, against outcomes and against whole transcripts."""
    trajectories = list(rows(data, critic=False))
    labels = np.array([t.outcome or 0.0 for t in trajectories])
    questions, n_questions = codes([question_of(t) for t in trajectories])
    turns = np.array([len(t.steps) for t in trajectories])

    def table(scores: dict[Any, np.ndarray], reference: Any) -> dict[str, Any]:
        pairs = {name: pair_parts(s, labels, questions, n_questions, turns) for name, s in scores.items()}
        found: dict[str, Any] = {}
        for name, s in scores.items():
            statistics = {"pair_accuracy_same_turns": pairs[name], "auroc": Auroc(s, labels, questions)}
            found[str(name)] = intervals(statistics, n_questions, resamples, seed)
            if name != reference:
                gap = paired_bootstrap(pairs[name], pairs[reference], n_questions, n=resamples, seed=seed)
                found[str(name)][f"pairs_minus_{reference}"] = gap.to_dict()
        return found

    return {
        "rows": len(trajectories),
        "questions": n_questions,
        "folds": folds,
        "resamples": resamples,
        "labels": table(smoothed_scores(trajectories, folds, seed), 1.0),
        "budgets": table(budget_scores(trajectories, labels, folds, seed), "all"),
    }


def main() -> None:
    found = measured("labels_mint", measure, __doc__, ("numpy", "scikit-learn", "transformers"))
    for what in ("labels", "budgets"):
        for name, metrics in found[what].items():
            for metric, i in metrics.items():
                print(f"{what:8s} {name:5s} {metric:26s} {i['value']:.3f} [{i['low']:.3f}, {i['high']:.3f}]")
    print(json.dumps({"rows": found["rows"], "questions": found["questions"]}))


if __name__ == "__main__":
    main()
