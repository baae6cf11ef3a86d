"""Whether a policy learns through vLLM what it learns in this process: the lab, over paired seeds.

    python -m benchmarks.studies.engines --vllm-python .venv-vllm/bin/python       (make test-vllm builds that environment)
    python -m benchmarks.studies.engines --collect                                  # only write the results of what is done

GRPO on a LoRA adapter of the shipped lab policy, the same tasks in the same order in every arm: `hf` (exact), `vllm` with no lag,
and each with updates learned while the next one's episodes are played (`rollout.max_lag=1`). The two samplers differ, so equal seeds sample other turns. Every
trained policy, and the one that all start from, is evaluated here, by `hf`, on the same held-out tasks. One server on one
thread is started for all runs (vLLM's CPU build, float32); the trainer has a thread too. Writes benchmarks/results/engines_lab.json.

Primary figure, written down before the first run: success of `vllm` less that of `hf` over three seeds, within ±0.1, where both
are above the start. Expected: 0.00, as log-probabilities differ by 1e-5 nats; with a lag of one update (a seed each, so its interval is over tasks
alone) the same within 0.05. Added after the first two arms were known: `hf-again`, the same as `hf` on three other seeds (A/A), whose
difference says what three seeds can tell; expected within 0.04.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.studies.study import begin, call, lines, parse, train_once, training_command, two_way_interval
from benchmarks.vllm_server import LORA, PYTHON, serving, version_of
from reagent.lab.shipped import lab_policy_folder
from rrm.data.provenance import environment

BASE = "lab-reflective"
AHEAD = "rollout.max_lag=1"
ARMS: dict[str, list[str]] = {"hf": [], "vllm": [], "hf-again": [], "hf-ahead": [AHEAD], "vllm-ahead": [AHEAD]}
SEEDS = {"hf": 3, "vllm": 3, "hf-again": 3, "hf-ahead": 1, "vllm-ahead": 1}
OFFSETS = {"hf-again": 100}
"""Of an arm's seeds, where they are not those of the others."""
TRAINING = [
    f"policy.base={BASE}", "policy.lora={r: 16, alpha: 32, dropout: 0.0}", "algorithm=grpo", "optim.learning_rate=1e-3",
    "max_updates=24", "save_every=100", "eval.every=0", "environment.eval_tasks=4",
]  # fmt: skip
TASKS = 400


def is_served(arm: str) -> bool:
    """Whether an arm's episodes are sampled by the server."""
    return arm.startswith("vllm")


def run(runs: Path, arm: str, seed: int, server: str, overrides: list[str]) -> None:
    """Train and evaluate, unless that is done."""
    folder = runs / arm / f"seed{seed}"
    where = [f"rollout.engine=vllm:{server}#base"] if is_served(arm) else []
    options = [*TRAINING, *ARMS[arm], *overrides, f"seed={seed + OFFSETS.get(arm, 0)}", f"output_dir={folder}"]
    train_once(folder, options, folder.with_suffix(".log"), arguments=["train", "--config", "lab", *where])
    evaluate(folder / "held_out.json", str(folder / "policy"))


def evaluate(target: Path, policy: str) -> None:
    """A policy on the held-out tasks, in this process, unless that is done."""
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        options = [f"policy.base={BASE}", f"environment.eval_tasks={TASKS}", "--policy", policy, "-o", str(target)]
        call(["eval", "--config", "lab", *options], target.with_suffix(".log"))


def collect(runs: Path, arm: str, like: list[dict[str, int]] | None) -> dict[str, Any] | None:
    """What an arm's finished seeds reached, and how fast.

    Args:
        like: by seed, success by task of the arm that it is compared with.
    """
    folders = [runs / arm / f"seed{seed}" for seed in range(SEEDS[arm])]
    if not all((folder / "held_out.json").is_file() for folder in folders):
        return None
    updates = [row for folder in folders for row in lines(folder / "metrics.jsonl")[1:]]
    table = by_task(folders)
    seconds = [row["time/total_s"] for row in updates]
    found: dict[str, Any] = {
        "success": two_way_interval(_table(table), within=(0, 1)),
        "by_seed": [round(float(np.mean(list(row.values()))), 4) for row in table],
        "action_tokens_per_s": round(statistics.median(row["time/rollout_tokens_per_s"] for row in updates), 1),
        "update_seconds": {
            "whole": round(statistics.median(seconds), 2),
            "rollout": round(statistics.median(row["time/rollout_s"] for row in updates), 2),
            "learning": round(statistics.median(row["time/update_s"] for row in updates), 2),
        },
        # of a server each update has both; `hf` without a lag samples from the very numbers it learns from
        "logprob_gap": max(row["logprob_gap"] if is_served(arm) else row.get("logprob_gap", 0.0) for row in updates),
        "staleness": statistics.mean(
            row["staleness"] if is_served(arm) else row.get("staleness", 0.0) for row in updates
        ),
        "commits": sorted({c for f in folders for c in json.loads((f / "done.json").read_text())["commits"]}),
    }
    if like is not None:
        found["less_hf"] = two_way_interval(_table(table) - _table(like[: len(table)]))
    return found


def by_task(folders: list[Path]) -> list[dict[str, int]]:
    """Success by held-out task, of each run."""
    return [json.loads((folder / "held_out.json").read_text())["by_task"] for folder in folders]


def _table(rows: list[dict[str, int]]) -> np.ndarray:
    return np.array([[row[task] for task in sorted(rows[0])] for row in rows], dtype=float)


@contextlib.contextmanager
def server(needed: bool, python: Path) -> Iterator[tuple[str, str | None]]:
    """(address, version) of a server of the policy that all start from, or empty ones where no arm needs it."""
    if not needed:
        yield "", None
        return
    with serving(python, str(lab_policy_folder(BASE)), *LORA) as url:
        yield url, version_of(url)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path, default=PYTHON)
    args, seeds = parse(parser, "engines_lab", ARMS, SEEDS)
    begin(args.runs, overrides=args.overrides, training=TRAINING)
    if not args.collect:
        evaluate(args.runs / "start.json", str(lab_policy_folder(BASE)))
        due = [(arm, seed) for seed in range(max(seeds.values())) for arm in seeds if seed < seeds[arm]]
        left = any(is_served(a) and not (args.runs / a / f"seed{s}" / "done.json").is_file() for a, s in due)
        with server(left, args.vllm_python) as (url, version):
            if version:
                (args.runs / "vllm.json").write_text(json.dumps(version))
            for arm, seed in due:
                run(args.runs, arm, seed, url, args.overrides)
    exact = [args.runs / "hf" / f"seed{seed}" for seed in range(SEEDS["hf"])]
    like = by_task(exact) if all((folder / "held_out.json").is_file() for folder in exact) else None
    arms = {arm: collect(args.runs, arm, None if arm == "hf" else like) for arm in ARMS}
    start = json.loads((args.runs / "start.json").read_text())["by_task"]
    noted = args.runs / "vllm.json"
    found = {
        "command": training_command("engines"),
        "environment": environment(),
        "vllm": json.loads(noted.read_text()) if noted.is_file() else None,
        "seeds": SEEDS["hf"],
        "tasks": TASKS,
        "start": round(float(np.mean(list(start.values()))), 4),
        "arms": {arm: row for arm, row in arms.items() if row is not None},
    }
    record.write(args.output, found)
    print(json.dumps({"start": found["start"], **{arm: row["by_seed"] for arm, row in found["arms"].items()}}))


if __name__ == "__main__":
    main()
