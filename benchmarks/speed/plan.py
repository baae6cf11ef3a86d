"""`reagent train --plan` against trainings that are run: memory at the peak, seconds of an update.

    python -m benchmarks.speed.plan [--policy smollm2] [--threads 1]           (SmolLM2: half an hour on one core)

A short training with LoRA is measured first (`--like` of the plans). From it and from its own config each of the others is planned,
then run in a process of its own: one with LoRA whose updates have three times as many episodes of other lengths, the same with another
allocator in place of glibc's (`--preload`), and one that trains every weight. What is
compared: bytes at the peak (`VmHWM` of the process less what it holds once the libraries are imported) with the larger of the
plan's two peaks, and the median seconds of playing and of learning from an update with the plan's, each for itself, both but the first update. Writes
benchmarks/results/plan.json, which keeps the figures of Qwen3 on GPUs that commit 85fd7148 derived by the same arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.harness import finish, made, memory_mb
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.plan import TrainingPlan, plan

ROOT = Path(__file__).resolve().parents[2]
USUAL = [
    "algorithm=grpo", "gate=off", "policy.dtype=float32", "eval.every=0", "environment.eval_tasks=1", "environment.train_tasks=64",
    "save_every=100", "rollout.tasks_per_update=2",
]  # fmt: skip
RUNS = {
    "like": ["max_updates=5", "rollout.group_size=2", "rollout.max_new_tokens=48", "rollout.max_episode_tokens=480"],
    "lora": ["max_updates=4", "rollout.group_size=6", "rollout.max_episode_tokens=640", "optim.microbatch_tokens=2560"],
    "whole": ["max_updates=5", "rollout.group_size=3", "policy.lora=null", "optim.learning_rate=1e-6", "optim.microbatch_tokens=1280"],
}  # fmt: skip


def config_of(args: argparse.Namespace, name: str, folder: Path) -> AgentConfig:
    own = [f"policy.base={args.policy}", f"threads={args.threads}", f"seed={args.seed}", f"output_dir={folder / name}"]
    return load_agent_config("smollm2", [*USUAL, *RUNS[name], *own])


def one(config: AgentConfig) -> None:
    """Train in this process, and say what it held."""
    import peft
    import transformers

    from reagent.train.run import train

    del peft, transformers
    resting = memory_mb("VmRSS")
    train(config)
    print(json.dumps({"resting_mib": resting, "peak_mib": memory_mb("VmHWM")}))


def measured(name: str, folder: Path) -> dict[str, Any]:
    """A run in a process of its own: its memory, and what its updates took."""
    command = [sys.executable, "-m", "benchmarks.speed.plan", *sys.argv[1:], "--one", name, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    held = json.loads(done.stdout.strip().splitlines()[-1])
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()][1:]
    return {
        "gib": round((held["peak_mib"] - held["resting_mib"]) / 1024, 3),
        "resting_gib": round(held["resting_mib"] / 1024, 3),
        **{f"{part}_s": [round(row[f"time/{part}_s"], 2) for row in rows] for part in ("rollout", "update")},
        "tokens": statistics.median(row["episode/tokens"] for row in rows),
    }


def compared(planned: TrainingPlan, found: Mapping[str, Any]) -> dict[str, Any]:
    """Planned over measured, less 1."""
    assert planned.seconds is not None
    gib = max(planned.memory.update, planned.memory.rollout) / 2**30
    taken = {part: statistics.median(found[f"{part}_s"]) for part in ("rollout", "update")}
    off = {part: round(planned.seconds[part] / taken[part] - 1, 4) for part in taken}
    rounded = {part: round(value, 2) for part, value in planned.seconds.items()}
    return {
        "memory": {"planned_gib": round(gib, 3), "measured_gib": found["gib"], "off": round(gib / found["gib"] - 1, 4)},
        "seconds": {"planned": rounded, "measured": taken, "off": off},
        "parts": asdict(planned.memory),
        "run": dict(found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preload", default="libjemalloc.so.2", help="the other allocator's library")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "plan.json")
    parser.add_argument("--one", choices=list(RUNS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        return one(config_of(args, args.one, args.folder))
    runs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LD_PRELOAD"] = ""  # glibc's malloc; the plan reads it, too
        like = measured("like", folder)
        for run, library in (("lora", ""), ("lora preloaded", args.preload), ("whole", "")):
            kind, os.environ["LD_PRELOAD"] = run.split()[0], library
            planned = plan(config_of(args, kind, folder), like=folder / "like")
            runs[run] = compared(planned, measured(kind, folder))
            shutil.rmtree(folder / kind)
            print(run, runs[run]["memory"], runs[run]["seconds"], file=sys.stderr)
    del args.folder, args.one
    args.policy = Path(args.policy).name
    kept = json.loads(args.out.read_text()) if args.out.is_file() else {}
    found = {"like": like, "runs": runs, "seed": args.seed}
    finish(kept | found | made("plan", args, "torch", "transformers", "peft"), args.out)


if __name__ == "__main__":
    main()
