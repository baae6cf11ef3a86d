"""Check that planted mistakes cannot be told by their words: TF-IDF on the step alone, planted against the run's own, AUROC by kind.

    python -m benchmarks.models.plants_check

Grouped 5-fold by question. Kinds that show only in meaning must stay at 0.65 or below (`benchmarks/results/plants_check.json`). A planted
step is compared with the step it stands for, a needless change of state with one that was needed; where there is none, with another step.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

from benchmarks import record
from benchmarks.models.rows import BESIDE, WEIGHTS, Maker
from benchmarks.models.sources import LabelledRun, load
from rrm.annotate.planted import OPERATORS, counterpart, plant
from rrm.data.mistakes import MEANING_KINDS
from rrm.prompt.canonical import canonical_step

MOST = 0.65


def text_of(run: LabelledRun, trajectory, k: int) -> str:
    """A step as TF-IDF reads it."""
    step = canonical_step(trajectory.steps[k - 1])
    return f"{step.action_text}\n{step.return_text}"


def texts(runs: list[LabelledRun], maker: Maker, seed: int) -> dict[str, list[tuple[str, int, str]]]:
    """Kind → (text, 1 planted or 0 right, question)."""
    rng, found = random.Random(seed), defaultdict(list)
    for run in runs:
        view = maker.view(run)
        for kind in OPERATORS:
            if (planted := plant(view, kind, rng)) is None:
                continue
            changing = [k for k in view.changing() if k != planted.step]
            if kind == "needless_side_effect" and not changing:
                continue
            k = (
                rng.choice(changing)
                if kind == "needless_side_effect"
                else planted.twin or rng.randrange(1, len(run.labels) + 1)
            )
            found[kind].append((text_of(run, planted.trajectory, planted.step), 1, run.key))
            right = counterpart(view, kind, rng) if rng.random() < BESIDE.get(kind, 0.5) else None
            if right is not None:
                found[kind].append((text_of(run, right.trajectory, right.step), 0, run.key))
            else:
                found[kind].append((text_of(run, run.trajectory, k), 0, run.key))
    return found


def auroc(rows: list[tuple[str, int, str]]) -> float:
    """AUROC of TF-IDF and logistic regression, out of fold by question."""
    words, y, groups = (np.array(column, dtype=object) for column in zip(*rows, strict=True))
    said = np.zeros(len(rows))
    for train, test in GroupKFold(5).split(words, groups=groups):
        vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=60_000)
        model = LogisticRegression(C=10.0, max_iter=400).fit(vectors.fit_transform(words[train]), y[train].astype(int))
        said[test] = model.decision_function(vectors.transform(words[test]))
    return float(roc_auc_score(y.astype(int), said))


def main() -> None:
    """Print and record the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1500, help="runs that succeeded")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runs = [run for run in load() if run.ships and run.succeeded and run.part == "train" and run.source in WEIGHTS]
    maker = Maker(None, runs, sorted({run.source for run in runs}))  # pyright: ignore[reportArgumentType]
    rng = random.Random(args.seed)
    names = sorted({run.source for run in runs})
    chosen = [
        rng.choice([r for r in runs if r.source == rng.choices(names, [WEIGHTS[n] for n in names])[0]] or runs)
        for _ in range(args.rows)
    ]
    found = {}
    for kind, rows in sorted(texts(chosen, maker, args.seed).items()):
        value = auroc(rows)
        found[kind] = {
            "auroc": round(value, 3),
            "rows": len(rows),
            "meaning": kind in MEANING_KINDS,
            "passes": kind not in MEANING_KINDS or value <= MOST,
        }
        print(kind, found[kind], flush=True)
    record.write(
        record.RESULTS / "plants_check.json",
        {
            "command": record.command("models.plants_check"),
            "wanted": MOST,
            "kinds": found,
            **record.made_with("scikit-learn"),
            "commit": record.commit(),
        },
    )
    print(json.dumps({"passes": all(f["passes"] for f in found.values())}))


if __name__ == "__main__":
    main()
