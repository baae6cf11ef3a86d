"""`reagent train --plan` against trainings that are run: memory at the peak, seconds of an update.

    python -m benchmarks.speed.plan [--policy smollm2] [--threads 1]           (SmolLM2: half an hour on one core)

A short training with LoRA is measured first (`--like` of the plans). From it and from its own config each of the others is planned,
then run in a process of its own: one with LoRA whose updates have three times as many episodes of other lengths, the same with another
allocator in place of glibc's (`--preload`), and one that trains every weight. What is
compared: bytes at the peak (`VmHWM` of the process less what it holds once the libraries are imported) with the larger of the
plan's two peaks, and the median seconds of playing and of learning from an update with the plan's, each for itself, both but the first update. Writes
benchmarks/results/plan.json; the last line is one JSON object.

Figures for Qwen3 on GPUs are derived by the same arithmetic, from the models' published shapes (`QWEN3`) and the shipped configs: no such model was run.
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.arms import memory_mb
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.plan import TrainingPlan, plan

OUT = record.RESULTS / "plan.json"
WITHIN = 0.2
ROOT = Path(__file__).resolve().parents[2]
USUAL = [
    "algorithm=grpo", "policy.dtype=float32", "eval.every=0", "environment.eval_tasks=1", "environment.train_tasks=64",
    "save_every=100", "rollout.tasks_per_update=2",
]  # fmt: skip
RUNS = {
    "like": ["max_updates=5", "rollout.group_size=2", "rollout.max_new_tokens=48", "rollout.max_episode_tokens=480"],
    "lora": ["max_updates=4", "rollout.group_size=6", "rollout.max_episode_tokens=640", "optim.microbatch_tokens=2560"],
    "whole": ["max_updates=5", "rollout.group_size=3", "policy.lora=null", "optim.learning_rate=1e-6", "optim.microbatch_tokens=1280"],
}  # fmt: skip
QWEN3: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "layers": 28, "heads": 16, "tied": True},
    "qwen3-1.7b": {"hidden_size": 2048, "intermediate_size": 6144, "layers": 28, "heads": 16, "tied": True},
    "qwen3-4b": {"hidden_size": 2560, "intermediate_size": 9728, "layers": 36, "heads": 32, "tied": True},
    "qwen3-8b": {"hidden_size": 4096, "intermediate_size": 12288, "layers": 36, "heads": 32, "tied": False},
    "qwen3-8b-full": {"hidden_size": 4096, "intermediate_size": 12288, "layers": 36, "heads": 32, "tied": False},
    "paper": {"hidden_size": 4096, "intermediate_size": 12288, "layers": 36, "heads": 32, "tied": False},
}
"""Of the models that the shipped configs name: what their config.json says on the hub; 8 key-value heads of 128, 151,936 tokens."""
BETWEEN = ("qwen3-1.7b", "qwen3-4b")
PROCESSES = {"qwen3-8b-full": 4, "paper": 4}


def config_of(args: argparse.Namespace, name: str, folder: Path) -> AgentConfig:
    """A run's."""
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


def measured(args: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
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
        "rollout_s": [round(row["time/rollout_s"], 2) for row in rows],
        "update_s": [round(row["time/update_s"], 2) for row in rows],
        "tokens": statistics.median(row["episode/tokens"] for row in rows),
        "longest_tokens": statistics.median(row["episode/longest_tokens"] for row in rows),
        "action_tokens": statistics.median(row["episode/action_tokens"] for row in rows),
    }


def compared(planned: TrainingPlan, found: Mapping[str, Any]) -> dict[str, Any]:
    """Planned over measured, less 1."""
    assert planned.seconds is not None
    gib = max(planned.memory.update, planned.memory.rollout) / 2**30
    seconds = {part: statistics.median(found[f"{part}_s"]) for part in ("rollout", "update")}
    off = {part: round(planned.seconds[part] / seconds[part] - 1, 4) for part in seconds}
    return {
        "memory": {"planned_gib": round(gib, 3), "measured_gib": found["gib"], "off": round(gib / found["gib"] - 1, 4)},
        "seconds": {
            "planned": {part: round(value, 2) for part, value in planned.seconds.items()},
            "measured": seconds,
            "off": off,
        },
        "parts": asdict(planned.memory),
        "padded": asdict(planned.work.padded),
        "run": dict(found),
    }


@contextmanager
def preloaded(library: str | None) -> Iterator[None]:
    """Processes started here take their memory from this library's malloc; None: from glibc's."""
    before = os.environ.pop("LD_PRELOAD", None)
    try:
        if library is not None:
            os.environ["LD_PRELOAD"] = library
        yield
    finally:
        os.environ.pop("LD_PRELOAD", None)
        if before is not None:
            os.environ["LD_PRELOAD"] = before


@contextmanager
def qwen3(name: str) -> Iterator[str]:
    """A folder with the config of a model of this size."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config

    size = QWEN3[name]
    with tempfile.TemporaryDirectory() as folder:
        Qwen3Config(
            vocab_size=151936, hidden_size=size["hidden_size"], intermediate_size=size["intermediate_size"],
            num_hidden_layers=size["layers"], num_attention_heads=size["heads"], num_key_value_heads=8, head_dim=128,
            tie_word_embeddings=size["tied"], max_position_embeddings=40960,
        ).save_pretrained(folder)  # fmt: skip
        # without a tokenizer nothing is planned: one of no words, as the plan reads none
        PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel({"<eos>": 0}, "<eos>")), eos_token="<eos>"
        ).save_pretrained(folder)
        yield folder


def derived(name: str) -> dict[str, Any]:
    """What a shipped config asks of a GPU; of the sizes between, what that of the next larger one does."""
    with qwen3(name) as folder:
        config = load_agent_config("qwen3-8b" if name in BETWEEN else name, [f"policy.base={folder}"])
        found = plan(config, processes=PROCESSES.get(name, 1), device="cpu")  # kernels of a GPU keep the same
    memory, gib = replace(found.memory, allocator=0), 2**30
    return {
        "processes": PROCESSES.get(name, 1),
        "parameters": found.parameters,
        "trained": found.trained,
        "parts_gib": {part: round(size / gib, 2) for part, size in asdict(memory).items() if size},
        "update_gib": round(memory.update / gib, 2),
        "rollout_gib": round(memory.rollout / gib, 2),
        "episodes": found.work.episodes,
        "tokens": found.work.tokens,
        "sampled": found.work.sampled,
        "flops": found.work.flops,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preload", default="libjemalloc.so.2", help="the other allocator's library")
    parser.add_argument("--derive", action="store_true", help="only make the figures of Qwen3 anew")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--one", choices=list(RUNS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        one(config_of(args, args.one, args.folder))
        return
    found: dict[str, Any] = json.loads(args.out.read_text()) if args.derive and args.out.is_file() else {}
    if not args.derive:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found = {"within": WITHIN, "like": measured(args, "like", folder), "runs": {}}
            for run, library in (("lora", None), ("lora preloaded", args.preload), ("whole", None)):
                kind = run.split()[0]
                with preloaded(library):
                    planned = plan(config_of(args, kind, folder), like=folder / "like")
                    taken = measured(args, kind, folder)
                shutil.rmtree(folder / kind)
                found["runs"][run] = compared(planned, taken)
                print(run, found["runs"][run]["memory"], found["runs"][run]["seconds"], file=sys.stderr)
        found |= {"commit": record.commit(), "seed": args.seed}
        del args.folder, args.one
        args.policy = Path(args.policy).name
        found |= record.timed_with("speed.plan", args, "torch", "transformers", "peft")
    found["qwen3"] = {"how": "derived from the models' shapes and the shipped configs; not run"} | {
        name: derived(name) for name in QWEN3
    }
    record.write(args.out, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
