"""What the default judge must beat, on exactly the mixture's rows: words, length, turns, the agent's name, a step's position.

    python -m benchmarks.default_judge.baselines      # under five minutes on one thread

Everything that learns is trained on the training rows that the judge is given and measured on held-out questions, each
source apart, with 95 % intervals over questions. Writes benchmarks/results/default_judge_baselines.json, and with --scores the score of
every row and step, so that a judge can be compared pair by pair.

  outcomes  tfidf_all: TF-IDF and logistic regression on all sources' rows; tfidf_own: on the source's; length, turns, agent
  steps     tfidf_all, tfidf_own: the transcript up to and with step k; tfidf_step: step k alone (of the source); position
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.default_judge import sources
from benchmarks.default_judge.mixture import CAP, build, load_split
from benchmarks.default_judge.sources import Example
from rrm.data.output import write_lines
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.evaluation.baselines import BaselineError, Scorer, fit_agent, fit_tfidf, length_scores
from rrm.evaluation.bootstrap import Statistic, own_interval, replicates, too_few
from rrm.evaluation.metrics.pairs import codes, pair_parts
from rrm.evaluation.metrics.probability import Auroc

RESULT = record.RESULTS / "default_judge_baselines.json"
MIN_PAIRS = 200
"""A source with fewer held-out pairs has no vote in the pooled figure."""
Scores = dict[str, np.ndarray]
"""Scorer's name → (N,) scores."""


@dataclass(frozen=True)
class LabelledStep:
    """Step k of a row and whether it was good; `shown` is the transcript up to and with it."""

    source: str
    shown: Trajectory
    k: int
    good: bool

    @property
    def alone(self) -> Trajectory:
        """The step's own message and what answered it."""
        step = self.shown.steps[-1]
        return self.shown.model_copy(update={"messages": [step.message, *step.observations]})


def labelled_steps(rows: Sequence[Example]) -> list[LabelledStep]:
    """Every labelled step of every row, in order."""
    found: list[LabelledStep] = []
    for row in rows:
        t = row.trajectory
        starts = [step.message_index for step in t.steps] + [len(t.messages)]
        for k, good in row.steps().items():
            shown = t.model_copy(update={"messages": t.messages[: starts[k]]})
            found.append(LabelledStep(row.source, shown, k, good))
    return found


def position_scores(train: Sequence[LabelledStep], test: Sequence[LabelledStep]) -> np.ndarray:
    """(N,) share of good steps at each step's position among the training steps; the share of all where none was seen."""
    at: dict[int, list[bool]] = defaultdict(list)
    for step in train:
        at[step.k].append(step.good)
    mean = float(np.mean([step.good for step in train])) if train else 0.5
    return np.array([float(np.mean(at[step.k])) if at.get(step.k) else mean for step in test])


def _fitted(rows: Sequence[Trajectory], labels: np.ndarray) -> Scorer | None:
    """TF-IDF, or None where the rows have one class only."""
    try:
        return fit_tfidf(rows, labels)
    except BaselineError:
        return None


def outcome_scores(train: Sequence[Example], test: Sequence[Example]) -> dict[str, Scores]:
    """source → the baselines' scores of its test rows. Both parts: rows with an outcome."""
    shown = {name: [r.trajectory for r in test if r.source == name] for name in sorted({r.source for r in test})}
    together = fit_tfidf([r.trajectory for r in train], _outcomes([r.trajectory for r in train]))
    found: dict[str, Scores] = {}
    for name, rows in shown.items():
        own = [r.trajectory for r in train if r.source == name]
        scores: Scores = {"tfidf_all": together(rows), "length": length_scores(rows)}
        scores["turns"] = -np.array([len(t.steps) for t in rows], dtype=np.float64)
        if own and (alone := _fitted(own, _outcomes(own))):
            scores |= {"tfidf_own": alone(rows), "agent": fit_agent(own, _outcomes(own))(rows)}
        found[name] = scores
    return found


def _outcomes(rows: Sequence[Trajectory]) -> np.ndarray:
    return np.array([t.outcome for t in rows], dtype=np.float64)


def step_scores(train: Sequence[LabelledStep], test: Sequence[LabelledStep]) -> dict[str, Scores]:
    """source → the baselines' scores of its test steps."""
    together = fit_tfidf([s.shown for s in train], np.array([s.good for s in train], dtype=np.float64))
    found: dict[str, Scores] = {}
    for name in sorted({s.source for s in test}):
        mine, own = [s for s in test if s.source == name], [s for s in train if s.source == name]
        good = np.array([s.good for s in own], dtype=np.float64)
        scores: Scores = {"tfidf_all": together([s.shown for s in mine]), "position": position_scores(own, mine)}
        if prefix := _fitted([s.shown for s in own], good):
            scores["tfidf_own"] = prefix([s.shown for s in mine])
        if single := _fitted([s.alone for s in own], good):
            scores["tfidf_step"] = single([s.alone for s in mine])
        found[name] = scores
    return found


def _measured(statistics: Mapping[str, Statistic], n: int, thin: bool, resamples: int, seed: int) -> dict[str, Any]:
    drawn = replicates(statistics, n, n=resamples, seed=seed)
    return {k: own_interval(f, n, drawn[k]).unless(thin).to_dict() for k, f in statistics.items()}


def outcome_table(
    test: Sequence[Example], scores: Mapping[str, Scores], *, resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """source → rows, pairs, and each scorer's same-question-and-turns pair accuracy and AUROC."""
    found: dict[str, dict[str, Any]] = {}
    for name, by_scorer in scores.items():
        rows = [r.trajectory for r in test if r.source == name]
        labels, turns = _outcomes(rows), np.array([len(t.steps) for t in rows])
        questions, n = codes([question_of(t) for t in rows])
        entry: dict[str, Any] = {"rows": len(rows), "questions": n, "positive": round(float(labels.mean()), 4)}
        for scorer, s in sorted(by_scorer.items()):
            pairs = pair_parts(s, labels, questions, n, turns)
            entry["pairs"] = int(pairs.denominator.sum())
            thin = too_few(int((pairs.denominator > 0).sum()), entry["pairs"])
            accuracy = _measured({"pair_accuracy": pairs}, n, thin, resamples, seed)
            auroc = _measured({"auroc": Auroc(s, labels, questions)}, n, too_few(n, len(rows)), resamples, seed)
            entry[scorer] = accuracy | auroc
        found[name] = entry
    return found


def pooled(
    test: Sequence[Example], scores: Mapping[str, Scores], table: Mapping[str, Any], *, resamples: int, seed: int
) -> dict[str, Any]:
    """Mean pair accuracy over the sources with at least `MIN_PAIRS` pairs, each one vote; drawn over all their questions."""
    voting = [name for name in scores if table[name]["pairs"] >= MIN_PAIRS and "tfidf_own" in scores[name]]
    rows = {name: [r.trajectory for r in test if r.source == name] for name in voting}
    _, n = all_codes = codes([question_of(t) for name in voting for t in rows[name]])
    where, at = {}, 0
    for name in voting:
        where[name] = all_codes[0][at : at + len(rows[name])]
        at += len(rows[name])
    statistics: dict[str, Statistic] = {}
    for scorer in ("tfidf_all", "tfidf_own", "length", "turns", "agent"):
        parts = [
            pair_parts(
                scores[name][scorer],
                _outcomes(rows[name]),
                where[name],
                n,
                np.array([len(t.steps) for t in rows[name]]),
            )
            for name in voting
        ]
        statistics[scorer] = lambda counts, parts=parts: np.mean([part(counts) for part in parts], axis=0)
    return {"sources": voting, **_measured(statistics, n, False, resamples, seed)} if voting else {"sources": []}


def step_table(
    test: Sequence[LabelledStep], scores: Mapping[str, Scores], *, resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """source → steps, the good ones' share, and each scorer's AUROC and average precision (of the good steps)."""
    from sklearn.metrics import average_precision_score

    found: dict[str, dict[str, Any]] = {}
    for name, by_scorer in scores.items():
        steps = [s for s in test if s.source == name]
        labels = np.array([s.good for s in steps], dtype=np.float64)
        questions, n = codes([question_of(s.shown) for s in steps])
        entry: dict[str, Any] = {"steps": len(steps), "questions": n, "good": round(float(labels.mean()), 4)}
        for scorer, s in sorted(by_scorer.items()):
            auroc = {"auroc": Auroc(s, labels, questions)}
            entry[scorer] = _measured(auroc, n, too_few(n, len(steps)), resamples, seed)
            entry[scorer]["average_precision"] = round(float(average_precision_score(labels, s)), 4)
        found[name] = entry
    return found


def score_lines(
    rows: Sequence[Example], outcomes: Mapping[str, Scores], steps: Sequence[LabelledStep], graded: Mapping[str, Scores]
) -> list[str]:
    """One JSON line a row and a step: id, source, step (absent: the outcome), label, and every scorer's score."""
    lines: list[str] = []
    for name, scores in outcomes.items():
        for i, row in enumerate(r for r in rows if r.source == name):
            said = {scorer: round(float(s[i]), 6) for scorer, s in scores.items()}
            lines.append(json.dumps({"id": row.trajectory.id, "source": name, "label": row.trajectory.outcome, **said}))
    for name, scores in graded.items():
        for i, step in enumerate(s for s in steps if s.source == name):
            said = {scorer: round(float(s[i]), 6) for scorer, s in scores.items()}
            where = {"id": step.shown.id, "source": name, "step": step.k, "label": float(step.good)}
            lines.append(json.dumps(where | said))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=sources.DATA)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--scores", type=Path, help="write every row's and step's scores here (JSONL)")
    parser.add_argument("--cap", type=int, default=CAP)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.process_time()
    parts = build(sources.load(args.data), load_split(), cap=args.cap, seed=args.seed)
    drawing = {"resamples": args.resamples, "seed": args.seed}
    train = [r for r in parts["train"] if r.trajectory.outcome is not None]
    test = [r for part in ("test", "unseen") for r in parts[part] if r.trajectory.outcome is not None]
    outcomes = outcome_scores(train, test)
    table = outcome_table(test, outcomes, **drawing)
    learned, held_out = labelled_steps(parts["train"]), labelled_steps(parts["test"])
    graded = step_scores(learned, held_out)
    found = {
        "train": {"outcomes": len(train), "steps": len(learned)},
        "outcomes": table,
        "pooled_pair_accuracy": pooled(test, outcomes, table, **drawing),
        "steps": step_table(held_out, graded, **drawing),
        **drawing,
        "command": record.command("default_judge.baselines"),
        **record.made_with("numpy", "scikit-learn", "scipy"),
        "cpu_seconds": round(time.process_time() - start, 1),
    }
    record.write(args.out, found)
    if args.scores:
        write_lines(args.scores, score_lines(test, outcomes, held_out, graded))
    for name, entry in table.items():
        for scorer, said in ((k, v) for k, v in entry.items() if isinstance(v, dict)):
            pair = said["pair_accuracy"]["value"]
            shown = "–" if pair is None else f"{pair:.3f}"
            print(f"{name:22s} {scorer:10s} pairs {entry['pairs']:6d} {shown:>6s}  AUROC {said['auroc']['value']:.3f}")
    for name, entry in found["steps"].items():
        for scorer, said in ((k, v) for k, v in entry.items() if isinstance(v, dict)):
            print(f"{name:22s} {scorer:10s} steps {entry['steps']:6d}         AUROC {said['auroc']['value']:.3f}")
    print(json.dumps({"output": str(args.out), "cpu_seconds": found["cpu_seconds"]}))


if __name__ == "__main__":
    main()
