"""What a single prefill of the lab judge reaches: does the probability of each step name the first planted fault?

    python -m benchmarks.lab_steps --train --runs steps=runs/lab_steps traces=runs/lab_steps_traces

trains each arm as `rrm train --config lab …` with its overrides (`ARMS`), where that is not done, and measures it.

The lab judge learned its verdicts after a written trace (docs/decisions.md, 33). Here it goes on from the shipped weights in mode
`steps`, where a verdict is read at a slot behind each step and nothing is written. Measured on runs in worlds that no training had, a
fault planted in two of three: the first step below a threshold, beside the first planted fault. The threshold, of every scorer, is the
one that names most of them on calibration runs with at most 5 % of the faultless ones called bad; beside it the one with the best MCC
over steps. `lowest`: the step of the lowest probability (the earliest of equal ones).

Scorers: the judge; position, the share of good steps at k of N in its training runs; rules, `rrm.prompt.rules`.
Writes benchmarks/results/lab_steps.json. Arms that are not asked for keep what the file says of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RESULTS, command, commit, made_with, write
from reagent.lab.transcripts import make_transcripts
from rrm.config import load_config
from rrm.data.annotation import Annotation
from rrm.data.feedback import Feedback
from rrm.data.localisation import step_labels
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.baselines import StepProbabilities, fit_step_position, rules_step_scores
from rrm.evaluation.bootstrap import JUDGE, Ratio, compare, too_few
from rrm.evaluation.metrics import process
from rrm.evaluation.step_scores import LabelledSteps, evaluate_step_scores
from rrm.judge.agent_rrm import AgentRRM
from rrm.train.run_folder import saved_config

SHIPPED = "agents/reagent/lab/assets/judge"
COMMON = (
    f"model.base={SHIPPED}",
    "model.options={}",
    "threads=1",
    "transcript_tokens=800",
    "drills.rows=0",
    "rl.enabled=false",
    "data.generate_options={transcripts: 2400, wanderers: 2400, wordings: many}",
    "seed=11",
    "sft.short_first_share=1",
    "sft.learning_rate=1.0e-3",
    "calibration.modes=[steps]",
    "evaluation.enabled=false",
)
ARMS: dict[str, tuple[str, ...]] = {
    "steps": (*COMMON, "sft.mix={score: 0, critique: 0, full: 0, steps: 1}", "sft.epochs=2"),
    "traces": (*COMMON, "sft.mix={score: 0, critique: 0, full: 0.5, steps: 1}", "sft.epochs=1"),
}
"""Of each arm: what it changes of the config `lab`. A window of 800 holds every run of the lab: one prefill."""
FRESH, CALIBRATION = 7_000, 7_500
"""Seeds of worlds that no training had."""
MOST_ALARMS = 0.05
Rows = Sequence[tuple[Trajectory, Annotation]]


def threshold_within(p_good: StepProbabilities, first_bad: Sequence[int | None], most: float = MOST_ALARMS) -> float:
    """The threshold below which a step is bad that names most first faults, with at most a share of faultless runs called bad;
    of equal ones the lowest. 0 calls nothing bad.

    Args:
        p_good: one list a run.
        first_bad: the first faulty step of each run, from 1; None: faultless.
    """
    values = np.unique([p for row in p_good for p in row])
    best, reached = 0.0, 0
    clean = [row for row, bad in zip(p_good, first_bad, strict=True) if bad is None]
    for cut in [*((values[:-1] + values[1:]) / 2), float(np.nextafter(values[-1], 2.0))]:
        if clean and sum(min(row) < cut for row in clean) > most * len(clean):
            break
        named = sum(first_below(row, cut) == bad for row, bad in zip(p_good, first_bad, strict=True) if bad is not None)
        if named > reached:
            best, reached = float(cut), named
    return best


def first_below(p_good: Sequence[float], cut: float) -> int | None:
    """The first step, from 1, whose probability is below the cut."""
    return next((k for k, p in enumerate(p_good, start=1) if p < cut), None)


def first_faults(rows: Rows) -> list[int | None]:
    """The first faulty step of each run; None: faultless."""
    return [min((f.step for f in a.findings or [] if f.verdict == "bad"), default=None) for _, a in rows]


def p_good_of(feedback: Sequence[Feedback]) -> list[list[float]]:
    """Each run's probabilities, raw or calibrated as they are.

    Raises:
        RRMError: a run that was not read.
    """
    unread = [f.id for f in feedback if f.status != "scored"]
    if unread:
        raise RRMError(f"{len(unread)} of {len(feedback)} runs were not read, e.g. {unread[0]}")
    return [[f.p_good if f.p_good is not None else 1.0 for f in said.findings] for said in feedback]


def lowest(rows: Rows, scores: Mapping[str, StepProbabilities], resamples: int, seed: int) -> dict[str, Any]:
    """How often the step of the lowest probability is the first planted fault, over faulty runs, with paired intervals."""
    truth = first_faults(rows)
    questions = sorted({question_of(t) for t, _ in rows})
    place = {q: i for i, q in enumerate(questions)}
    of = np.array([place[question_of(t)] for t, _ in rows])
    faulty = np.array([bad is not None for bad in truth])
    table: dict[str, dict[str, Ratio]] = {}
    for name, said in scores.items():
        hit = np.array([bad is not None and int(np.argmin(p)) + 1 == bad for p, bad in zip(said, truth, strict=True)])
        sums = [np.bincount(of, which, minlength=len(questions)).astype(np.float64) for which in (hit, faulty)]
        table[name] = {"lowest": Ratio(*sums)}
    few = too_few(len(questions), int(faulty.sum()))
    return compare(table, len(questions), thin=lambda _: few, n=resamples, seed=seed)


def scores_of(judge: AgentRRM, rows: Rows, position: Any) -> tuple[list[Feedback], dict[str, StepProbabilities]]:
    """What the judge says, and every scorer's probabilities of these runs' steps."""
    runs = [t for t, _ in rows]
    feedback = judge.judge(runs, mode="steps", seed=0)
    return feedback, {JUDGE: p_good_of(feedback), "position": position(runs), "rules": rules_step_scores(runs)}


def labels_of(rows: Rows) -> list[Any]:
    """One verdict a step."""
    return [step_labels(t, [a]) for t, a in rows]


def fitted(rows: Rows, feedback: Sequence[Feedback], scores: Mapping[str, StepProbabilities]) -> dict[str, Any]:
    """Each scorer's thresholds, by how they were chosen."""
    steps = LabelledSteps([t for t, _ in rows], feedback, labels_of(rows))
    found: dict[str, dict[str, float]] = {"alarms": {}, "mcc": {}}
    for name, said in scores.items():
        found["alarms"][name] = threshold_within(said, first_faults(rows))
        try:
            found["mcc"][name] = process.fit_threshold(steps.of(said), steps.bad).value
        except RRMError as error:
            logging.warning("no threshold of %s: %s", name, error)
    return found


def measure(
    rows: Rows,
    feedback: Sequence[Feedback],
    scores: Mapping[str, StepProbabilities],
    cuts: Mapping[str, Mapping[str, float]],
    *,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """One set of runs: p_good over steps, first faults at both thresholds and at the lowest probability."""
    baselines = {name: said for name, said in scores.items() if name != JUDGE}
    runs, labels = [t for t, _ in rows], labels_of(rows)
    found: dict[str, Any] = {
        by: evaluate_step_scores(runs, feedback, labels, baselines, thresholds=chosen, resamples=resamples, seed=seed)
        for by, chosen in cuts.items()
    }
    truth = first_faults(rows)
    return {
        "runs": len(rows),
        "faulty": sum(bad is not None for bad in truth),
        **found,
        "lowest": lowest(rows, scores, resamples, seed),
    }


def measure_arm(run: Path, *, rows: int, resamples: int, seed: int) -> dict[str, Any]:
    """One training's judge on worlds never seen, wordings and kinds of fault as in training and held out."""
    judge = AgentRRM.from_pretrained(str(run / "judge"), device="cpu")
    config = saved_config(run / "config.yaml", type(load_config("lab")))
    learned = make_transcripts(2_000, seed=config["seed"])
    position = fit_step_position([t for t, _ in learned], labels_of(learned))
    known = make_transcripts(rows, seed=CALIBRATION)
    cuts = fitted(known, *scores_of(judge, known, position))
    sets = {
        "fresh": make_transcripts(rows, seed=seed),
        "heldout_kinds": make_transcripts(rows, seed=seed, split="heldout"),
    }
    parts = {
        name: measure(found, *scores_of(judge, found, position), cuts, resamples=resamples, seed=0)
        for name, found in sets.items()
    }
    return {
        "config": {k: v for k, v in config.items() if k != "output_dir"},
        "training": json.loads((run / "sft" / "done.json").read_text()),
        "model_hash": judge.model_hash,
        "thresholds": cuts,
        "parts": parts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", default=[], metavar="ARM=FOLDER", help="trainings to measure, by arm")
    parser.add_argument("--train", action="store_true", help="first train those that are not there")
    parser.add_argument("--rows", type=int, default=600, help="runs of each set")
    parser.add_argument("--seed", type=int, default=FRESH, help="names the worlds")
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "lab_steps.json")
    args = parser.parse_args()
    before = json.loads(args.output.read_text()) if args.output.is_file() else {}
    arms: dict[str, Any] = before.get("arms", {})
    for name, _, folder in (run.partition("=") for run in args.runs):
        if name not in ARMS or not folder:
            parser.error(f"--runs {name}={folder}: the arms are {', '.join(ARMS)}, each as ARM=FOLDER")
        if args.train and not (Path(folder) / "judge").is_dir():
            from rrm.train.run import train

            train(load_config("lab", [*ARMS[name], f"output_dir={folder}"]))
        found = measure_arm(Path(folder), rows=args.rows, resamples=args.resamples, seed=args.seed)
        arms[name] = {"overrides": list(ARMS[name]), **found, "commit": commit()}
        for part, said in found["parts"].items():
            of = said["alarms"]["metrics"][JUDGE]
            shown = {k: of[k]["value"] for k in ("auroc", "first_error", "false_alarms")}
            sys.stdout.write(json.dumps({"arm": name, "part": part, **shown}) + "\n")
    record = {"command": command("lab_steps"), "commit": commit(), "seed": args.seed}
    write(args.output, {**record, **made_with("agent-rrm", "torch", "transformers", "trl"), "arms": arms})


if __name__ == "__main__":
    main()
