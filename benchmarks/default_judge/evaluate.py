"""Measure a judge on the mixture's held-out questions, agents and sources, beside what needs no judge.

    python -m benchmarks.default_judge.mixture -o runs/default_judge/data
    python -m benchmarks.default_judge.evaluate --model runs/default_judge/judge --dtype bfloat16
    python -m benchmarks.default_judge.evaluate --limit 20 --pairs mint=60     # the shipped judge, some twenty rows a source
    python -m benchmarks.default_judge.evaluate … --dry-run       # what would be drawn and read: rows, pairs, tokens

Writes benchmarks/results/default_judge.json, `modes` by mode:
  sources   each source's test questions (and groups of sources, `GROUPS`): pair accuracy (same question and turns), AUROC, ECE,
            best-of-n gain, step probabilities and findings, coverage, share marked as outside; beside length, turns, TF-IDF trained on the same rows,
            the agent's name, position and rules; agents seen in training and held out apart; `in_pairs`: pair accuracy on rows
            drawn for pairs (`--pairs`); `ece_floor`: what a perfectly calibrated judge has on so few rows
  pooled    mean pair accuracy over the sources with at least 200 held-out pairs, each one vote, on the rows drawn in pairs where
            there are such
  unseen    mean AUROC over the sources that were held out whole
  best_of_n tau_bench's four trials a task, MINT's many agents a question (`mint_answers`: beside majority)

Rows of a question that the judge says it was trained on are left out (`left_out`). How rows are drawn: `benchmarks.default_judge.drawing`,
and `draw` in the record. Thresholds of step probabilities are fitted on calibration rows. Rows judged are kept under --work, by the
judge's hash, and not judged again; the file names each with its SHA-256.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks import record
from benchmarks.default_judge.attempts import best_of_n
from benchmarks.default_judge.baselines import MIN_PAIRS
from benchmarks.default_judge.drawing import Draw, counted, draw, limits_of, named, pairs_of, to_read
from benchmarks.default_judge.mixture import load_split
from benchmarks.default_judge.plan import plan, plan_lines
from benchmarks.default_judge.said import Judged, coverage, ece_floor, outside
from benchmarks.default_judge.scorers import Known, Parts, add_same_rows, data_hash, known, labels_of, load
from benchmarks.default_judge.sources import Example
from rrm.data.feedback import Mode
from rrm.data.provenance import environment
from rrm.data.questions import question_of, seen_in_training
from rrm.data.splits import HELD_OUT
from rrm.data.trajectory import read_canonical
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE, Statistic, compare
from rrm.evaluation.evaluate import evaluate_feedback
from rrm.evaluation.metrics import pairs, process
from rrm.evaluation.metrics.probability import Auroc
from rrm.evaluation.step_scores import LabelledSteps
from rrm.judge.agent_rrm import AgentRRM

MINT_TASKS = tuple(f"mint/{name}" for name in ("gsm8k", "hotpotqa", "math", "theoremqa")) + tuple(
    f"mint_more/{name}" for name in ("alfworld", "humaneval", "mbpp", "mmlu")
)
CODE = ("mint_more/humaneval", "mint_more/mbpp")
"""MINT's tasks whose answers are programs, which no majority can compare."""
CRITICS = tuple(f"mint_critic/{name}" for name in ("gsm8k", "hotpotqa", "math", "theoremqa"))
GROUPS: dict[str, tuple[str, ...]] = {"mint": MINT_TASKS, "mint_critic": CRITICS}
"""Sources that are also measured together; `home` is all of the test part."""
KEPT = (
    "rows", "labelled", "scored_labelled", "questions", "positive_rate", "status", "pairs", "metrics", "differences",
    "steps", "step_scores", "length", "truncated_rows",
)  # fmt: skip
"""What is kept of an evaluation report."""
PAIR_FIGURES = "pair_accuracy_same_turns"
"""How the figures begin that rows drawn in pairs may give."""


def steps_of(rows: Sequence[Example], said: Judged, known: Known) -> tuple[LabelledSteps, dict[str, list[list[float]]]]:
    """The labelled steps with a p_good, and the baselines that know all of them: name → one list a row."""
    found = [said.feedback.get(row.trajectory.id) for row in rows]
    steps = LabelledSteps([row.trajectory for row in rows], found, [labels_of(row) for row in rows])
    having = [known.steps.get(rows[i].trajectory.id, {}) for i in steps.index]
    names = sorted(set.intersection(*map(set, having))) if having else []
    return steps, {name: [known.steps.get(r.trajectory.id, {}).get(name, []) for r in rows] for name in names}


def thresholds(rows: Sequence[Example], said: Judged, known: Known) -> dict[str, float]:
    """Each scorer's threshold with the highest MCC on calibration rows; none where they cannot say."""
    steps, baselines = steps_of(rows, said, known)
    found: dict[str, float] = {}
    for name, p in {JUDGE: steps.p_good, **{name: steps.of(scores) for name, scores in baselines.items()}}.items():
        try:
            found[name] = process.fit_threshold(p, steps.bad).value
        except RRMError as error:
            logging.warning("no threshold of %s: %s", name, error)
    return found


def measure(
    rows: Sequence[Example], said: Judged, known: Known, cut: Mapping[str, float], *, resamples: int, seed: int
) -> dict[str, Any]:
    """One set of rows: the evaluation report's figures, coverage, and the thresholds they are at."""
    trajectories = [row.trajectory for row in rows]
    scores = {t.id: known.outcomes.get(t.id, {}) for t in trajectories}
    graded = [scores[t.id] for t in trajectories if t.outcome is not None]
    names = sorted(set.intersection(*map(set, graded))) if graded else []
    feedback = [said.feedback[t.id] for t in trajectories if t.id in said.feedback]
    _, step_baselines = steps_of(rows, said, known)
    report = evaluate_feedback(
        trajectories,
        feedback,
        baselines={name: [scores[t.id].get(name, math.nan) for t in trajectories] for name in names},
        step_labels=[labels_of(row) for row in rows],
        step_scores=step_baselines,
        step_thresholds=cut,
        resamples=resamples,
        seed=seed,
    )
    found = {"coverage": coverage(feedback), "outside": outside(feedback), "ece_floor": ece_floor(rows, said, seed)}
    return {**{key: report[key] for key in KEPT}, **found}


def measure_pairs(rows: Sequence[Example], said: Judged, known: Known, **drawing: int) -> dict[str, Any]:
    """Rows drawn in pairs: what they are, and pair accuracies. They are balanced by their making, so that nothing else is kept."""
    report = measure(rows, said, known, {}, **drawing)  # pyright: ignore[reportArgumentType]
    for table in ("metrics", "differences"):
        report[table] = {
            scorer: {name: value for name, value in values.items() if name.startswith(PAIR_FIGURES)}
            for scorer, values in report[table].items()
        }
    return {**counted(rows), **{key: report[key] for key in ("status", "metrics", "differences")}}


def pooled(
    by_source: Mapping[str, Sequence[Example]],
    said: Judged,
    known: Known,
    *,
    least: int,
    resamples: int,
    seed: int,
    held_out: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Means over sources, each one vote, on shared draws of all their questions, over the rows the judge scored.

    Args:
        least: a source takes part in pair accuracy with at least so many pairs; 0: AUROC is pooled instead, of sources with both
            outcomes.
        held_out: source → the pairs of its held-out questions, of which the rows are a draw; by default the rows' own count.

    Returns:
        `sources, pairs` (of the rows, by source), `undefined` (source → why it has no AUROC), `unscored` (source → rows with an
        outcome, of which the judge scored none), `metrics, differences` (judge − scorer).
    """
    graded = {name: [r for r in rows if r.trajectory.outcome is not None] for name, rows in by_source.items()}
    kept = {name: [r for r in rows if said.score(r) is not None] for name, rows in graded.items()}
    unscored = {name: len(rows) for name, rows in graded.items() if rows and not kept[name]}
    kept = {name: rows for name, rows in kept.items() if rows}
    everything = [row for rows in kept.values() for row in rows]
    codes, n = pairs.codes([question_of(row.trajectory) for row in everything])
    code = {row.trajectory.id: int(c) for row, c in zip(everything, codes, strict=True)}
    metric = "pair_accuracy_same_turns" if least else "auroc"
    parts: dict[str, dict[str, Statistic]] = {}
    drawn_pairs: dict[str, int] = {}
    undefined: dict[str, str] = {}
    for name, rows in kept.items():
        y = np.array([row.trajectory.outcome for row in rows], dtype=np.float64)
        q = np.array([code[row.trajectory.id] for row in rows], dtype=np.int64)
        turns = np.array([len(row.trajectory.steps) for row in rows], dtype=np.int64)
        drawn_pairs[name] = int(pairs.pair_parts(y, y, q, n, turns).denominator.sum())
        enough = drawn_pairs[name] if held_out is None else held_out.get(name, 0)
        if least and (enough < least or not drawn_pairs[name]):
            continue
        if not least and (y.min() >= 0.5 or y.max() < 0.5):
            undefined[name] = f"{len(rows)} rows of one outcome"
            continue
        scores = {JUDGE: [said.score(row) for row in rows]}
        for scorer in sorted(set.intersection(*(set(known.outcomes[row.trajectory.id]) for row in rows))):
            scores[scorer] = [known.outcomes[row.trajectory.id][scorer] for row in rows]
        arrays = {scorer: np.array(s, dtype=np.float64) for scorer, s in scores.items()}
        parts[name] = {
            scorer: pairs.pair_parts(s, y, q, n, turns) if least else Auroc(s, y, q) for scorer, s in arrays.items()
        }
    if not parts:
        return {"sources": [], "undefined": undefined, "unscored": unscored, "metrics": {}, "differences": {}}
    common = set.intersection(*map(set, parts.values()))

    def mean(scorer: str) -> Statistic:
        return lambda counts: np.mean([found[scorer](counts) for found in parts.values()], axis=0)

    table = {scorer: {metric: mean(scorer)} for scorer in sorted(common)}
    counts = {name: drawn_pairs[name] for name in sorted(parts)}
    return {
        "sources": sorted(parts),
        "pairs": counts,
        "undefined": undefined,
        "unscored": unscored,
        **compare(table, n, thin=lambda _: n < 10, n=resamples, seed=seed),
    }


def attempts(parts: Parts, said: Judged, known: Known, *, resamples: int, seed: int) -> dict[str, Any]:
    """Best of n on tau_bench (4 trials a task) and on MINT's test questions (4 and 8 of their agents); `mint_answers` are those
    whose answers can be compared."""
    found: dict[str, Any] = {}
    mint = [row for row in parts["test"] if row.source in MINT_TASKS]
    tau = [row for row in parts["unseen"] if row.source == "tau_bench"]
    spoken = [row for row in mint if row.source not in CODE]
    plans = (("tau_bench", tau, (4,), False), ("mint", mint, (4, 8), False), ("mint_answers", spoken, (4, 8), True))
    for name, rows, sizes, answers in plans:
        rows = [row for row in rows if row.trajectory.outcome is not None and said.score(row) is not None]
        scores = {JUDGE: np.array([said.score(row) for row in rows], dtype=np.float64)}
        scores["tfidf_all"] = np.array([known.outcomes[row.trajectory.id]["tfidf_all"] for row in rows])
        chosen = [row.trajectory for row in rows]
        drawing: dict[str, Any] = {"compare_answers": answers, "resamples": resamples, "seed": seed}
        found[name] = {str(n): best_of_n(chosen, scores, n, **drawing) for n in sizes}
    return found


def evaluate_mode(
    judge: AgentRRM,
    mode: Mode,
    parts: Parts,
    paired: Sequence[Example],
    held_out_pairs: Mapping[str, int],
    known: Known,
    args: argparse.Namespace,
    work: Path,
) -> dict[str, Any]:
    """Judge the rows in one mode and measure everything.

    Args:
        parts: rows drawn by question.
        paired: test rows drawn in pairs; none: pair figures are of the former.
        held_out_pairs: source → pairs that its held-out questions have, drawn or not.
    """
    said = Judged(mode)
    for part, rows in to_read(parts, paired).items():
        for name, mine in named(rows).items():
            said.add(judge, mine, work / f"{mode}.{part}.{name.replace('/', '_')}.jsonl", args.seed)
    drawing: dict[str, Any] = {"resamples": args.resamples, "seed": args.seed}
    tests, calibration = named(parts["test"]), named(parts["calibration"])
    pairs_by_source = named(paired)
    held_out = set(load_split(args.split)[HELD_OUT])
    sources: dict[str, Any] = {}
    for name, rows in {**together(tests), **named(parts["unseen"])}.items():
        fitting = [row for source in GROUPS.get(name, (name,)) for row in calibration.get(source, ())]
        cut = thresholds(parts["calibration"] if name == "home" else fitting, said, known)
        sources[name] = measure(rows, said, known, cut, **drawing)
        for title, wanted in (("agents_held_out", True), ("agents_seen", False)):
            some = [row for row in rows if (row.trajectory.meta.get("agent") in held_out) == wanted]
            if some and len(some) < len(rows):
                sources[name][title] = measure(some, said, known, cut, **drawing)
    for name, rows in together(pairs_by_source).items():
        sources.setdefault(name, {})["in_pairs"] = measure_pairs(rows, said, known, **drawing)
    voting, held = (pairs_by_source, held_out_pairs) if paired else (tests, None)
    mint = {k: v for k, v in voting.items() if k in MINT_TASKS}
    return {
        "sources": sources,
        "pooled": pooled(voting, said, known, least=args.least_pairs, held_out=held, **drawing),
        "pooled_mint": pooled(mint, said, known, least=1, **drawing),
        "unseen": pooled(named(parts["unseen"]), said, known, least=0, **drawing),
        "best_of_n": attempts(parts, said, known, **drawing),
        "threshold": thresholds(parts["calibration"], said, known).get(JUDGE),
        "raw": said.raw,
    }


def together(tests: Mapping[str, Sequence[Example]]) -> dict[str, list[Example]]:
    """Test rows by source, by group of sources (`GROUPS`) and all of them (`home`), where there are any."""
    grouped = {group: [row for name in names for row in tests.get(name, ())] for group, names in GROUPS.items()}
    every = {"home": [row for rows in tests.values() for row in rows]}
    return {name: list(rows) for name, rows in {**tests, **grouped, **every}.items() if rows}


def unseen_by(judge: AgentRRM, parts: Parts) -> tuple[Parts, dict[str, int]]:
    """The rows of questions that the judge was not trained on, and how many of a part and source were left out."""
    learned = set(
        seen_in_training(judge.settings.training_questions, (row.trajectory for rows in parts.values() for row in rows))
    )
    left_out = Counter(
        f"{part}/{row.source}"
        for part in parts
        if part != "train"
        for row in parts[part]
        if row.trajectory.id in learned
    )
    return {p: [row for row in rows if row.trajectory.id not in learned] for p, rows in parts.items()}, dict(left_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a judge, as `rrm score --model`; the shipped default without it")
    parser.add_argument("--dtype")
    parser.add_argument(
        "--modes", help="comma-separated; by default score and steps, where the judge was trained in them"
    )
    parser.add_argument("--data", type=Path, default=Path("runs/default_judge/data"), help="what the mixture wrote")
    parser.add_argument("--split", type=Path, default=record.RESULTS.parent / "splits" / "default_judge.json")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/default_judge/evaluation"), help="raw rows are kept here"
    )
    parser.add_argument("--output", type=Path, default=record.RESULTS / "default_judge.json")
    for option, what in (
        ("--limit", "about so many rows of each source and part, drawn by question, or of those whose name begins so (the "
                    "longest fits); 0: all"),
        ("--attempts", "rows of one question at most in that draw, at random; 0: all"),
        ("--calibration-limit", "calibration rows of each source; as --limit without it"),
        ("--pairs", "test rows of a source drawn in pairs, for pair accuracy alone; 0: all pairs; none without it"),
    ):  # fmt: skip
        parser.add_argument(option, action="append", default=[], metavar="[SOURCE=]N", help=what)
    parser.add_argument(
        "--pairs-longest", type=int, default=0, help="characters of a transcript drawn in pairs, at most; 0: any"
    )
    parser.add_argument("--dry-run", action="store_true", help="draw, say what would be read, and read nothing")
    parser.add_argument(
        "--trained-on",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="transcripts (of the training part) that the judge learned from, where not from all: TF-IDF on these is `tfidf_same`",
    )
    parser.add_argument(
        "--least-pairs", type=int, default=MIN_PAIRS, help="a source with fewer has no vote in `pooled`"
    )
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    judge = AgentRRM.from_pretrained(args.model, dtype=args.dtype)
    trained = judge.settings.modes or ["score"]
    modes: list[Any] = args.modes.split(",") if args.modes else [m for m in ("score", "steps") if m in trained]
    if unknown := sorted(set(modes) - set(get_args(Mode))):
        parser.error(f"no mode {unknown[0]!r}")
    try:
        how = Draw(
            limits=limits_of(args.limit),
            attempts=limits_of(args.attempts, "--attempts"),
            pairs=limits_of(args.pairs, "--pairs"),
            calibration=limits_of(args.calibration_limit, "--calibration-limit"),
            pairs_longest=args.pairs_longest,
            seed=args.seed,
        )
    except ValueError as error:
        parser.error(str(error))
    parts = load(args.data)
    if args.dry_run:
        for mode in modes:
            for line in plan_lines(plan(judge, mode, *draw(unseen_by(judge, parts)[0], how))):
                print(line)
        return
    scores = known(parts, args.data, args.work)
    if args.trained_on:
        ids = {t.id for path in args.trained_on for t in read_canonical(path) if t.meta.get("part", "train") == "train"}
        add_same_rows(scores, parts, ids, args.data, args.work)
    parts, left_out = unseen_by(judge, parts)
    held_out_pairs = {name: pairs_of(rows) for name, rows in named(parts["test"]).items()}
    parts, paired = draw(parts, how)
    work = args.work / (judge.model_hash or "no_hash")[:12]
    work.mkdir(parents=True, exist_ok=True)
    whole: dict[str, Any] = {
        "modes": {
            mode: evaluate_mode(judge, mode, parts, paired, held_out_pairs, scores, args, work) for mode in modes
        },
        "judge": judge.describe(),
        "command": record.command("default_judge.evaluate"),
        "commit": record.commit(),
        "data": data_hash(args.data),
        "rows": {part: len(rows) for part, rows in to_read(parts, paired).items()},
        "left_out": left_out,
        "draw": how.told(),
        "held_out_pairs": held_out_pairs,
        **{name: getattr(args, name) for name in ("least_pairs", "resamples", "seed")},
        "environment": {**environment(), "dtype": judge.dtype},
        **record.made_with("numpy", "scikit-learn", "scipy"),
    }
    record.write(args.output, whole)
    said = {mode: found["pooled"]["metrics"].get(JUDGE) for mode, found in whole["modes"].items()}
    print(json.dumps({"output": str(args.output), "pooled": said}))


if __name__ == "__main__":
    main()
