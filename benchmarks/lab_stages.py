"""What each training stage of the lab judge brings: untrained, SFT, + RL, + calibration, on worlds never seen.

    python -m benchmarks.lab_stages --run runs/lab        (after `rrm train --config lab`)

Writes benchmarks/results/lab_stages.json: per stage, in `full` and `score` mode, on fresh transcripts with wordings and
faults of the training kind and, apart, of held-out kinds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.judge_mint import report
from rrm.config import TrainConfig
from rrm.engines.hf import HFEngine
from rrm.judge import AgentRRM
from rrm.judge_files import JudgeSettings, load_settings
from rrm.lab.transcripts import make_transcripts
from rrm.prompting import Prompter
from rrm.provenance import environment
from rrm.run_folder import saved_config
from rrm.train.finish import step_verdicts
from rrm.train.lab_base import build_lab_base
from rrm.train.run import load_data, load_trained
from rrm.train.splits import apply_split, load_split

FRESH_SEED = 7_000


def stage_judge(run: Path, stage: str, config: TrainConfig) -> AgentRRM:
    """The judge as it stood after a stage."""
    trajectories, annotations = load_data(config)
    train = apply_split(trajectories, load_split(run / "split.json"))["train"]
    model, tokenizer = build_lab_base(config, train, annotations)
    if stage in ("sft", "rl"):
        model = load_trained(model, run / stage / "model")
    settings = JudgeSettings(transcript_tokens=config.transcript_tokens, max_new_tokens=config.max_new_tokens)
    if stage == "calibration":
        return AgentRRM.from_pretrained(str(run / "judge"), device="cpu")
    prompter = Prompter(tokenizer, config.transcript_tokens)
    return AgentRRM(HFEngine(model.eval(), tokenizer), prompter, settings=settings, model=f"lab/{stage}")


def process_error(rows: Any, feedback: Any) -> dict[str, float | None]:
    """How far the score is from the process label: mean squared error over scored rows (None without any), and their share."""
    gaps = [(f.score - a.score) ** 2 for (_, a), f in zip(rows, feedback, strict=True) if f.score is not None]
    return {"mse": float(np.mean(gaps)) if gaps else None, "scored": len(gaps) / len(feedback)}


def planted(rows: Any, feedback: Any) -> dict[str, float]:
    """Named the planted step as bad; and called a clean transcript's step bad."""
    hit = [any(x.verdict == "bad" and x.step == t.meta["fault_step"] for x in f.findings)
           for (t, _), f in zip(rows, feedback, strict=True) if t.meta.get("fault")]  # fmt: skip
    alarm = [any(x.verdict == "bad" for x in f.findings)
             for (t, _), f in zip(rows, feedback, strict=True) if not t.meta.get("fault")]  # fmt: skip
    return {
        "named_step": float(np.mean(hit)),
        "false_alarms": float(np.mean(alarm)),
        "faulty": len(hit),
        "clean": len(alarm),
    }


def measure(judge: AgentRRM, rows: Any, modes: tuple[str, ...]) -> dict[str, Any]:
    """Both modes on one set of fresh rows."""
    trajectories = [t for t, _ in rows]
    found: dict[str, Any] = {}
    for mode in modes:
        feedback = judge.judge(trajectories, mode=mode, seed=0)  # pyright: ignore[reportArgumentType]
        verdicts = [step_verdicts(t, a) for t, a in rows] if mode == "full" else None
        metrics = report(trajectories, feedback, step_labels=verdicts, resamples=2000)
        found[mode] = {
            k: metrics.get(k) for k in ("rows", "status", "metrics", "format_validity", "answer_leak", "steps")
        }
        found[mode]["process"] = process_error(rows, feedback)
        if mode == "full":
            found[mode]["planted"] = planted(rows, feedback)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/lab"))
    parser.add_argument("--rows", type=int, default=240)
    parser.add_argument("--output", type=Path, default=record.RESULTS / "lab_stages.json")
    args = parser.parse_args()
    config = TrainConfig.model_validate(saved_config(args.run / "config.yaml", TrainConfig))
    sets = {split: make_transcripts(args.rows, seed=FRESH_SEED, split=split) for split in ("train", "heldout")}
    stages: dict[str, Any] = {}
    for stage in ("untrained", "sft", "rl", "calibration"):
        if stage in ("sft", "rl") and not (args.run / stage / "model").is_dir():
            continue
        # untrained replies never end: the score mode alone, and a few full ones, tell enough
        rows = {k: v[:24] if stage == "untrained" else v for k, v in sets.items()}
        judge = stage_judge(args.run, stage, config)
        stages[stage] = {
            "fresh": measure(judge, rows["train"], ("score", "full")),
            "heldout_kinds": measure(judge, rows["heldout"], ("score", "full")),
        }
    whole = {
        "command": record.command("lab_stages"),
        "environment": environment(),
        "config": config.model_dump(),
        "judge": load_settings(args.run / "judge").model_dump(mode="json"),
        "stages": stages,
    }
    record.write(args.output, whole)
    print(json.dumps({"output": str(args.output), "stages": list(stages)}))


if __name__ == "__main__":
    main()
