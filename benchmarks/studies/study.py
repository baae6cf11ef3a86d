"""What the studies of many training runs share: their command line, how a run is started, and how seeds are pooled."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from rrm.judge.judge_dir import shipped

ROOT = Path(__file__).resolve().parents[2]
USUAL_SEEDS = 5


def parse(
    parser: argparse.ArgumentParser, name: str, arms: Iterable[str], own: Mapping[str, int]
) -> tuple[argparse.Namespace, dict[str, int]]:
    """The arguments, and the number of seeds of each chosen arm: what `--seeds` says, else its
    `own`, else five.

    Unknown arms end the program with a message.
    """
    known = list(arms)
    parser.add_argument("overrides", nargs="*", help="a.b=c for every training and evaluation (for trying out)")
    parser.add_argument("--arms", default=",".join(known))
    parser.add_argument("--seeds", type=int, help="of every arm, in place of its own number")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / name)
    parser.add_argument("--output", type=Path, default=record.RESULTS / f"{name}.json")
    parser.add_argument("--collect", action="store_true", help="run nothing")
    args = parser.parse_args()
    chosen = args.arms.split(",")
    unknown = set(chosen) - set(known)
    if unknown:
        parser.error(f"no arm {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return args, {arm: args.seeds or own.get(arm, USUAL_SEEDS) for arm in chosen}


def begin(runs: Path, **facts: Any) -> None:
    """Write down what all runs of a folder share, or end the program where the folder holds those of another study.

    Args:
        facts: JSON values, e.g. the overrides and the hash of the policy all runs start from.
    """
    path = runs / "study.json"
    if not path.is_file():
        runs.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts) + "\n")
        return
    kept = json.loads(path.read_text())
    if kept != facts:
        raise SystemExit(f"{runs} holds runs made with {kept}, these would be made with {facts}: choose another --runs")


def frozen_judge(runs: Path, judge: str, name: str = "judge") -> str:
    """The folder of a study's judge, copied at its start: a study over days keeps its judge, whatever is shipped by then."""
    folder = runs / name
    if not folder.is_dir():
        source = shipped("lab") if judge == "lab" else Path(judge)
        shutil.copytree(source, folder)
    return str(folder)


def training_command(name: str) -> str:
    """The command that made the runs, also where this one only collects them."""
    return record.command(f"studies.{name}").replace(" --collect", "")


def call(arguments: list[str], log: Path, module: str = "reagent") -> None:
    """`python -m reagent …` (or `rrm`) on one thread, output to a log.

    Raises:
        subprocess.CalledProcessError: it failed; the log says why.
    """
    paths = os.pathsep.join([str(ROOT / "agents"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        subprocess.run([sys.executable, "-m", module, *arguments], env=env, stdout=out, stderr=out, check=True)


def lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def two_way_interval(
    table: np.ndarray, seed: int = 0, resamples: int = 4000, within: tuple[float, float] = (-1.0, 1.0)
) -> dict[str, float]:
    """Mean of (seeds, tasks) successes with a 95 % bootstrap interval over seeds and tasks, both resampled.

    A bootstrap of three to ten seeds is too narrow: their part is widened by sqrt(n / (n − 1)) and by Student's quantile
    with n − 1 degrees of freedom over the normal one. Of one seed the interval is one over tasks alone.

    Args:
        within: what the mean can be; of shares (0, 1), of their differences as by default.
    """
    from scipy.stats import norm, t

    rng = np.random.default_rng(seed)
    n_seeds, n_tasks = table.shape
    wider = 1.0
    if n_seeds > 1:
        wider = math.sqrt(n_seeds / (n_seeds - 1)) * float(t.ppf(0.975, n_seeds - 1) / norm.ppf(0.975))
    drawn = []
    for _ in range(resamples):
        seeds, tasks = rng.integers(0, n_seeds, n_seeds), rng.integers(0, n_tasks, n_tasks)
        all_seeds = table[:, tasks].mean()
        drawn.append(all_seeds + wider * (table[seeds][:, tasks].mean() - all_seeds))
    low, high = np.clip(np.quantile(drawn, [0.025, 0.975]), *within)
    return {"value": float(table.mean()), "low": float(low), "high": float(high)}


def hops_of(task: str, hops: list[int]) -> int:
    """Held-out tasks deal their hop counts in turn; the task's number stands at the end of its id."""
    return hops[int(task.rsplit("-", 1)[1]) % len(hops)]
