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
from benchmarks.models.rivals import step_text
from benchmarks.models.rows import BESIDE, Maker
from benchmarks.models.sources import WEIGHTS, LabelledRun, load
from rrm.annotate.planted import OPERATORS, counterpart, plant
from rrm.data.mistakes import MEANING_KINDS

MOST = 0.65


def texts(runs: list[LabelledRun], maker: Maker, seed: int) -> dict[str, list[tuple[str, int, str]]]:
    """Kind → (text, 1 planted or 0 right, question)."""
    rng, found = random.Random(seed), defaultdict(list)
    for run in runs:
        view = maker.view(run)
        for kind in OPERATORS:
            if (planted := plant(view, kind, rng)) is None:
                continue
            if kind == "needless_side_effect":
                if not (changing := [k for k in view.changing() if k != planted.step]):
                    continue
                k = rng.choice(changing)
            else:
                k = planted.twin or rng.randrange(1, len(run.labels) + 1)
            right = counterpart(view, kind, rng) if rng.random() < BESIDE.get(kind, 0.5) else None
            other = (right.trajectory, right.step) if right is not None else (run.trajectory, k)
            found[kind] += [(step_text(planted.trajectory, planted.step), 1, run.key), (step_text(*other), 0, run.key)]
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
    rng, names = random.Random(args.seed), sorted({run.source for run in runs})
    maker = Maker(None, runs, names)  # pyright: ignore[reportArgumentType]
    chosen = [
        rng.choice([r for r in runs if r.source == rng.choices(names, [WEIGHTS[n] for n in names])[0]] or runs)
        for _ in range(args.rows)
    ]
    found = {}
    for kind, rows in sorted(texts(chosen, maker, args.seed).items()):
        value, meaning = auroc(rows), kind in MEANING_KINDS
        passes = not meaning or value <= MOST
        found[kind] = {"auroc": round(value, 3), "rows": len(rows), "meaning": meaning, "passes": passes}
        print(kind, found[kind], flush=True)
    made = {"command": record.command("models.plants_check"), "wanted": MOST, "kinds": found}
    made |= {**record.made_with("scikit-learn"), "commit": record.commit()}
    record.write(record.RESULTS / "plants_check.json", made)
    print(json.dumps({"passes": all(f["passes"] for f in found.values())}))


if __name__ == "__main__":
    main()
