"""What each training stage of the lab judge brings: untrained, SFT, + RL, + calibration, on worlds never seen.

    python -m benchmarks.lab_stages --run runs/lab        (after `rrm train --config lab`)
    python -m benchmarks.lab_stages --run runs/lab --stages shipped --policies runs/feedback_modes/*/seed0/policy

Writes benchmarks/results/lab_stages.json: per stage, and of the shipped judge, which was trained further
(benchmarks/ship_lab.py), in `full` and `score` mode, on fresh transcripts with wordings and faults of the training kind;
apart, with held-out wordings and in half of the faulty runs held-out kinds of fault; and on runs of the shipped lab policy.
With `--policies`, on runs of agents in or after training as well, as many of each: what a judge meets that rewards them.
Stages that are not asked for keep what the file says of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.lab_agent import agent_runs
from benchmarks.ship_lab import TARGET
from reagent.lab.transcripts import make_transcripts
from rrm.config import TrainConfig
from rrm.data.localisation import step_labels
from rrm.data.provenance import environment
from rrm.data.splits import apply_split, load_split
from rrm.data.trajectory import Trajectory
from rrm.engines.hf.engine import HFEngine
from rrm.evaluation.evaluate import evaluate_feedback
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings, load_settings
from rrm.train.prepare import base_and_prompter, load_data, merged_by_id
from rrm.train.run import load_trained
from rrm.train.run_folder import saved_config

FRESH_SEED = 7_000


def stage_judge(run: Path, stage: str, config: TrainConfig) -> AgentRRM:
    """The judge as it stood after a stage."""
    if stage in ("calibration", "shipped"):
        return AgentRRM.from_pretrained(str(run / "judge") if stage == "calibration" else "lab", device="cpu")
    trajectories, raters = load_data(config)
    annotations = merged_by_id(raters)
    train = apply_split(trajectories, load_split(run / "split.json"))["train"]
    model, prompter = base_and_prompter(config, train, annotations)
    if stage in ("sft", "rl"):
        model = load_trained(model, run / stage / "model")
    settings = JudgeSettings(transcript_tokens=config.transcript_tokens, max_new_tokens=config.max_new_tokens)
    return AgentRRM(HFEngine(model.eval(), prompter.tokenizer), prompter, settings=settings, model=f"lab/{stage}")


def process_error(rows: Any, feedback: Any) -> dict[str, float | None]:
    """How far the score is from the process label: mean squared error over scored rows (None without any), and their share."""
    gaps = [(f.score - a.score) ** 2 for (_, a), f in zip(rows, feedback, strict=True) if f.score is not None]
    return {"mse": float(np.mean(gaps)) if gaps else None, "scored": len(gaps) / len(feedback)}


def planted(rows: Any, feedback: Any) -> dict[str, Any]:
    """How often the judge calls the first bad step bad, finds just that one first, and calls a clean run's step bad."""
    hit, first, alarm = [], [], []
    for (_, annotation), said in zip(rows, feedback, strict=True):
        wrong = [x.step for x in annotation.findings if x.verdict == "bad"]
        called = sorted(x.step for x in said.findings if x.verdict == "bad")
        if wrong:
            hit.append(wrong[0] in called)
            first.append(called[:1] == wrong[:1])
        else:
            alarm.append(bool(called))
    return {
        "named_step": float(np.mean(hit)) if hit else None,
        "named_first": float(np.mean(first)) if first else None,
        "false_alarms": float(np.mean(alarm)) if alarm else None,
        "faulty": len(hit),
        "clean": len(alarm),
    }


def groups(rows: Any, feedback: Any) -> dict[str, Any]:
    """`planted`, by who talks and by kind of fault."""
    found: dict[str, Any] = {}
    for name in sorted({group for t, _ in rows for group in _groups(t)}):
        chosen = [(row, f) for row, f in zip(rows, feedback, strict=True) if name in _groups(row[0])]
        found[name] = planted([row for row, _ in chosen], [f for _, f in chosen])
    return found


def _groups(trajectory: Trajectory) -> list[str]:
    meta = trajectory.meta
    if "terse" not in meta:
        return []
    kind = "held-out fault" if meta["fault_kind_heldout"] else "trained fault" if meta["fault"] else "clean"
    return ["terse" if meta["terse"] else "talking", kind, str(meta["fault"])]


def measure(judge: AgentRRM, rows: Any, modes: tuple[str, ...]) -> dict[str, Any]:
    """Both modes on one set of fresh rows."""
    trajectories = [t for t, _ in rows]
    found: dict[str, Any] = {}
    for mode in modes:
        feedback = judge.judge(trajectories, mode=mode, seed=0)  # pyright: ignore[reportArgumentType]
        verdicts = [step_labels(t, [a]) for t, a in rows] if mode == "full" else None
        evaluated = dict(evaluate_feedback(trajectories, feedback, step_labels=verdicts, resamples=2000))
        metrics = json.loads(json.dumps(evaluated, default=str))
        found[mode] = {
            k: metrics.get(k) for k in ("rows", "status", "metrics", "format_validity", "answer_leak", "steps")
        }
        found[mode]["process"] = process_error(rows, feedback)
        if mode == "full":
            found[mode]["planted"] = planted(rows, feedback) | {"groups": groups(rows, feedback)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/lab"))
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seed", type=int, default=FRESH_SEED, help="names the worlds")
    parser.add_argument("--stages", default="untrained,sft,rl,calibration,shipped")
    parser.add_argument("--policies", type=Path, nargs="+", default=[], help="folders of trained lab policies")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "lab_stages.json")
    args = parser.parse_args()
    config = TrainConfig.model_validate(saved_config(args.run / "config.yaml", TrainConfig))
    sets = {
        "fresh": make_transcripts(args.rows, seed=args.seed),
        "heldout_kinds": make_transcripts(args.rows, seed=args.seed, split="heldout"),
        "agent": agent_runs(args.rows // 2, args.seed, samples=2),
    }
    if args.policies:
        share = -(-args.rows // len(args.policies))
        sets["trained_agents"] = [
            row for n, p in enumerate(args.policies) for row in agent_runs(share, args.seed + 1 + n, policy=p)
        ]
    before = json.loads(args.output.read_text()) if args.output.is_file() else {}
    stages: dict[str, Any] = before.get("stages", {})
    for stage in args.stages.split(","):
        if stage in ("sft", "rl") and not (args.run / stage / "model").is_dir():
            continue
        # untrained replies never end: the score mode alone, and a few full ones, tell enough
        rows = {k: v[:24] if stage == "untrained" else v for k, v in sets.items()}
        judge = stage_judge(args.run, stage, config)
        stages[stage] = stages.get(stage, {}) | {name: measure(judge, rows[name], ("score", "full")) for name in rows}
    whole = {
        "command": record.command("lab_stages"),
        "seed": args.seed,
        "policies": [str(path) for path in args.policies] or before.get("policies", []),
        "shipped": load_settings(TARGET).trained_on,
        "environment": environment(),
        "config": config.model_dump(),
        "judge": load_settings(args.run / "judge").model_dump(mode="json"),
        "stages": stages,
    }
    record.write(args.output, whole)
    print(json.dumps({"output": str(args.output), "stages": list(stages)}))


if __name__ == "__main__":
    main()
