"""The learning curve: the judge that ships and TF-IDF on 0, 30, 100 and 300 labels of sources that it never saw.

    python -m benchmarks.studies.learning_curve draw STATE            # STATE/SOURCE.N.jsonl, pieces of 50 runs
    for piece in STATE/*.jsonl: rrm score STATE/SOURCE.N.jsonl -o STATE/SOURCE.N.scored.jsonl     # may be stopped, goes on
    rrm score … -o STATE/SOURCE.N.chat.jsonl --model openai:URL#model                             # where a chat judge is at hand
    python -m benchmarks.studies.learning_curve figures STATE         # benchmarks/results/learning_curve.json

The judge learned from no run of `SOURCES`, and runs of questions that it met elsewhere are left out. A run is scored once; each draw
then takes the labels of n runs, question by question, and measures on all runs of other questions (at least `LEAST`). `judge`: its score,
mapped as `rrm calibrate` maps it (from 20 labels on). `tfidf`: fitted on the same runs and labels; of steps, on the labelled steps of these
runs. A map keeps the order, so that the judge's AUROC moves by the drawn test runs alone. Bar: at 30 labels AUROC above TF-IDF's in
three of four sources. Written down before: on runs unlike its own the judge is near chance (`default_judge.json`), and TF-IDF passes it
at 100 labels everywhere.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks import record
from benchmarks.models.sources import LabelledRun, load
from rrm.data.feedback import Feedback, read_feedback
from rrm.data.localisation import StepLabels
from rrm.data.questions import seen_in_training
from rrm.data.seeds import derive_seed
from rrm.errors import RRMError
from rrm.evaluation.baselines import fit_step_tfidf, fit_tfidf
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import PRIOR_LABELS, fit

SOURCES = {"workbench": 250, "stepshield": 250, "reflexion": 250, "tau": 120}
"""Source → most runs."""
LABELS, DRAWS, PIECE, LEAST = (0, 30, 100, 300), 3, 50, 40


def drawn(everything: Sequence[LabelledRun], source: str, known: Sequence[str]) -> list[LabelledRun]:
    """A source's runs in the order in which they are scored: a run of each question, then another of each; pairs (StepShield) whole."""
    mine = [run for run in everything if run.source == source and run.trajectory.outcome is not None]
    met = set(seen_in_training(known, [run.trajectory for run in mine]))
    by_key = defaultdict[str, list[LabelledRun]](list)
    for run in mine:
        if run.trajectory.id not in met:
            by_key[run.key].append(run)
    rng = random.Random(derive_seed("learning_curve", source))
    keys = sorted(by_key)
    rng.shuffle(keys)
    for key in sorted(by_key):
        rng.shuffle(by_key[key])
    if source == "stepshield":
        runs = [run for key in keys for run in by_key[key]]
    else:
        turns = range(max(map(len, by_key.values())))
        runs = [by_key[key][turn] for turn in turns for key in keys if turn < len(by_key[key])]
    return runs


def all_runs() -> dict[str, list[LabelledRun]]:
    training_questions = AgentRRM.from_pretrained().settings.training_questions
    everything = load()
    return {source: drawn(everything, source, training_questions) for source in SOURCES}


def draw(state: Path) -> None:
    """Write the pieces that `rrm score` reads."""
    state.mkdir(parents=True, exist_ok=True)
    for source, runs in all_runs().items():
        for start in range(0, min(len(runs), SOURCES[source]), PIECE):
            lines = [
                run.trajectory.model_dump_json(exclude={"source"}, exclude_none=True)
                for run in runs[start : min(start + PIECE, SOURCES[source])]
            ]
            (state / f"{source}.{start // PIECE}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def scored(state: Path, source: str, kind: str) -> dict[str, Feedback]:
    """Scored rows of all pieces of a source, by id."""
    rows = [row for path in sorted(state.glob(f"{source}.*.{kind}.jsonl")) for row in read_feedback(path)]
    return {row.id: row for row in rows if row.raw_score is not None}


def step_labels(run: LabelledRun) -> StepLabels:
    return [None if y is None else "good" if y else "bad" for y in run.labels]


def auroc(truth: Sequence[float], scores: Sequence[float]) -> float | None:
    return float(roc_auc_score(truth, scores)) if len(set(truth)) > 1 else None


def mapped(judge: dict[str, Feedback], learned: Sequence[LabelledRun], test: Sequence[LabelledRun]) -> list[float]:
    """Scores of the test runs by a map of the learned runs' labels, as `rrm calibrate` fits it; the judge's own where it fits none."""
    rows = [judge[run.trajectory.id] for run in learned]
    present = [row.score or 0.0 for row in rows]
    if len(rows) >= PRIOR_LABELS:
        try:
            new = fit(
                [row.raw_score or 0.0 for row in rows], [float(run.succeeded) for run in learned], "platt", present
            )
            return [new(judge[run.trajectory.id].raw_score or 0.0) for run in test]
        except RRMError:
            pass
    return [judge[run.trajectory.id].score or 0.0 for run in test]


def of_scores(scores: Sequence[float], test: Sequence[LabelledRun]) -> dict[str, Any]:
    truth = [float(run.succeeded) for run in test]
    return {"auroc": auroc(truth, scores), "brier": float(np.mean((np.array(scores) - np.array(truth)) ** 2))}


def of_steps(p_good: Sequence[Sequence[float | None]], test: Sequence[LabelledRun]) -> float | None:
    """AUROC over the labelled steps that have a probability."""
    pairs = [
        (y, p)
        for run, row in zip(test, p_good, strict=True)
        for y, p in zip(run.labels, row, strict=True)
        if y is not None and p is not None
    ]
    return auroc(*map(list, zip(*pairs, strict=True))) if pairs else None


def one_draw(
    runs: Sequence[LabelledRun], judges: dict[str, dict[str, Feedback]], n: int, seed: int
) -> dict[str, Any] | None:
    """Each scorer on the runs of questions without a label; None for too few of them."""
    keys = sorted({run.key for run in runs})
    random.Random(seed).shuffle(keys)
    place = {key: i for i, key in enumerate(keys)}
    ordered = sorted(runs, key=lambda run: place[run.key])
    learned = ordered[:n]
    test = [run for run in ordered[n:] if run.key not in {one.key for one in learned}]
    if len(test) < LEAST or len({run.succeeded for run in test}) < 2:
        return None
    found: dict[str, Any] = {"test": len(test), "succeeded": float(np.mean([run.succeeded for run in test]))}
    for name, judge in judges.items():
        found[name] = of_scores(mapped(judge, learned, test), test)
        p_good = [{f.step: f.p_good for f in judge[run.trajectory.id].findings} for run in test]
        found[name]["steps"] = of_steps(
            [[row.get(k) for k in range(1, len(run.labels) + 1)] for row, run in zip(p_good, test, strict=True)], test
        )
    transcripts = [run.trajectory for run in learned]
    try:
        words = fit_tfidf(transcripts, np.array([float(run.succeeded) for run in learned]))
        found["tfidf"] = of_scores(words([run.trajectory for run in test]).tolist(), test)
        of_words = fit_step_tfidf(transcripts, list(map(step_labels, learned)))
        found["tfidf"]["steps"] = of_steps(of_words([run.trajectory for run in test]), test)
    except RRMError as error:
        found.setdefault("tfidf", {"auroc": 0.5})["why"] = str(error)
    return found


def figures(state: Path) -> dict[str, Any]:
    """Means over the draws, by source and number of labels, and the bar."""
    table: dict[str, Any] = {}
    for source, runs in all_runs().items():
        judges = {name: scored(state, source, kind) for name, kind in (("judge", "scored"), ("chat", "chat"))}
        judges = {name: rows for name, rows in judges.items() if rows}
        having = [run for run in runs if judges and all(run.trajectory.id in rows for rows in judges.values())]
        table[source] = {"runs": len(having), "questions": len({run.key for run in having})}
        for n in LABELS:
            draws = [one_draw(having, judges, n, derive_seed("learning_curve draw", i)) for i in range(DRAWS)]
            if rows := [row for row in draws if row is not None]:
                table[source][str(n)] = {
                    "draws": rows,
                    "mean": {
                        who: {
                            key: float(np.mean(values))
                            for key in ("auroc", "brier", "steps")
                            if len(values := [v for row in rows if (v := row[who].get(key)) is not None])
                        }
                        for who in (*judges, "tfidf")
                    },
                }
    means = {source: of["30"]["mean"] for source, of in table.items() if "30" in of}
    above = [source for source, of in means.items() if of["judge"]["auroc"] > of["tfidf"]["auroc"]]
    return {"sources": table, "above_tfidf_at_30": above, "measured_at_30": sorted(means)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "figures"))
    parser.add_argument("state", type=Path)
    args = parser.parse_args()
    if args.what == "draw":
        return draw(args.state)
    made = {"command": record.command("studies.learning_curve"), "commit": record.commit()}
    results = figures(args.state)
    for source, of in results["sources"].items():
        print(source, {n: row["mean"] for n, row in of.items() if isinstance(row, dict)})
    record.write(record.RESULTS / "learning_curve.json", results | made | record.made_with("torch", "scikit-learn"))


if __name__ == "__main__":
    main()
