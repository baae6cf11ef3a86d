"""Self-generated labels: a judge retrained on an agent's own runs, labelled by rules, by itself, or by both.

    python -m benchmarks.studies.self_labels --parallel 2

The paper's future work (arXiv 2601.22154, §6). The start is the weak judge of the feedback study (in runs/feedback_modes,
trained where it is missing), which saw few scripted transcripts; the agent is the shipped lab policy, sampled as in training. `rules` labels come from `rrm annotate --annotator rules`, `self` labels from
`--annotator self` with that very judge: of four judgements the best that agrees with the outcome. `both` takes the self label
of a run where there is one, the rules' elsewhere. `replay` (each run labelled
from its world, what labels at best could be) and `start` (the judge as it was) stand beside them. Every arm takes the same
number of steps. Measured on runs of other questions against replayed labels. Writes benchmarks/results/self_labels.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.lab_agent import agent_runs
from benchmarks.lab_stages import measure
from benchmarks.studies.feedback_modes import weak_judge
from benchmarks.studies.study import ROOT, begin, call, parse, training_command
from rrm.data.annotation import Annotation
from rrm.data.provenance import environment
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.judge.agent_rrm import AgentRRM

TASKS, EVAL_TASKS = 800, 400
TRAIN_SEED, EVAL_SEED = 41, 42
STEPS = 200
ARMS: dict[str, list[str]] = {"rules": ["rules"], "self": ["self"], "both": ["self", "rules"], "replay": ["replay"]}
SEEDS = {"rules": 3, "self": 3, "both": 3, "replay": 3}
FEEDBACK_RUNS = ROOT / "runs" / "feedback_modes"
"""Where the weak judge is."""
FIGURES = ("auroc", "verdicts", "named_first", "false_alarms", "well_formed", "score_mse")


def prepare(runs: Path) -> None:
    """The agent's runs and their replayed labels, the judge to start from, and both kinds of made labels."""
    runs.mkdir(parents=True, exist_ok=True)
    rollouts, replayed = runs / "rollouts.jsonl", runs / "replay.jsonl"
    if not replayed.is_file():
        rows = agent_runs(TASKS, TRAIN_SEED)
        write_jsonl(rollouts, (t for t, _ in rows))
        replayed.write_text("".join(a.model_dump_json(exclude_none=True) + "\n" for _, a in rows), encoding="utf-8")
    start = weak_judge(FEEDBACK_RUNS)
    for name in ("rules", "self"):
        options = ["--model", start] if name == "self" else []
        target = runs / f"{name}.jsonl"
        if not (runs / f"{name}.done").is_file():
            call(
                ["annotate", str(rollouts), "-o", str(target), "--annotator", name, *options],
                runs / f"{name}.log",
                "rrm",
            )
            (runs / f"{name}.done").touch()


def run_arm(runs: Path, arm: str, seed: int, extra: list[str]) -> None:
    """One retraining, unless it is done."""
    folder = runs / arm / f"seed{seed}"
    if (folder / "judge" / "evaluation.json").is_file():
        return
    labels = ", ".join(str(runs / f"{name}.jsonl") for name in ARMS[arm])
    options = [
        f"model.base={weak_judge(FEEDBACK_RUNS)}", f"data.trajectories=[{runs / 'rollouts.jsonl'}]",
        f"data.annotations=[{labels}]", "data.generate=null",
        "drills.rows=0", "data.test_share=0.05", "data.calibration_share=0.1", f"sft.max_steps={STEPS}", "sft.learning_rate=0.0003", "rl.enabled=false", "evaluation.enabled=false",
        "threads=1", f"seed={seed}", f"output_dir={folder}",
    ]  # fmt: skip
    call(["train", "--config", "lab", *options, *extra], folder.with_suffix(".log"), "rrm")


def figures(judge: Path, rows: list[tuple[Trajectory, Annotation]]) -> dict[str, Any]:
    """A judge's figures on the agent's runs of other questions."""
    found = measure(AgentRRM.from_pretrained(str(judge), device="cpu"), rows, ("full",))["full"]
    planted, metrics = found["planted"], found["metrics"].get("judge", {})
    return {
        "auroc": metrics.get("auroc", {}).get("value"),
        "verdicts": found["steps"] and found["steps"]["metrics"]["judge"]["macro_f1"]["value"],
        "named_first": planted["named_first"],
        "false_alarms": planted["false_alarms"],
        "well_formed": found["format_validity"],
        "score_mse": found["process"]["mse"],
    }


def labels_made(runs: Path, rows: dict[str, Annotation]) -> dict[str, Any]:
    """How many labels each annotator made, and how many of them find the first bad step that replaying finds."""
    found: dict[str, Any] = {}
    for name in ("rules", "self"):
        made = [Annotation.model_validate_json(line) for line in (runs / f"{name}.jsonl").read_text().splitlines()]
        right = [_first_bad(a) == _first_bad(rows[a.trajectory_id]) for a in made]
        found[name] = {
            "labels": len(made),
            "of": len(rows),
            "first_bad_right": statistics.fmean(right) if right else None,
        }
    return found


def _first_bad(annotation: Annotation) -> int | None:
    return min((f.step for f in annotation.findings or [] if f.verdict == "bad"), default=None)


def mean_of(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and range over seeds of every figure that has values."""
    found: dict[str, Any] = {}
    for name in FIGURES:
        values = [row[name] for row in each if row[name] is not None]
        found[name] = {"mean": statistics.fmean(values), "low": min(values), "high": max(values)} if values else None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args, wanted = parse(parser, "self_labels", ARMS, SEEDS)
    begin(args.runs, overrides=args.overrides)
    if not args.collect:
        prepare(args.runs)
        with ThreadPoolExecutor(args.parallel) as pool:
            jobs = [
                pool.submit(run_arm, args.runs, arm, seed, args.overrides)
                for arm in wanted
                for seed in range(wanted[arm])
            ]
            for job in jobs:
                job.result()
    replayed = [Annotation.model_validate_json(line) for line in (args.runs / "replay.jsonl").read_text().splitlines()]
    rows = agent_runs(EVAL_TASKS, EVAL_SEED)
    arms: dict[str, Any] = {"start": mean_of([figures(Path(weak_judge(FEEDBACK_RUNS)), rows)])}
    for arm in ARMS:
        folders = sorted(p.parent.parent for p in (args.runs / arm).glob("seed*/judge/evaluation.json"))
        if folders:
            arms[arm] = {"seeds": len(folders), **mean_of([figures(f / "judge", rows) for f in folders])}
    whole = {
        "command": training_command("self_labels"),
        "environment": environment(),
        "labels": labels_made(args.runs, {a.trajectory_id: a for a in replayed}),
        "rows": len(rows),
        "arms": arms,
    }
    record.write(args.output, whole)
    print(json.dumps({"output": str(args.output), "arms": {k: v["named_first"] for k, v in arms.items()}}))


if __name__ == "__main__":
    main()
