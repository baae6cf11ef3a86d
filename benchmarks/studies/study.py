"""What studies of many training runs share: how a run is started, and how seeds are pooled."""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from rrm.engines.hf.weights import sha256
from rrm.engines.shipped_judges import FILE, judge_folder
from rrm.train.adapter import WEIGHTS

ROOT = Path(__file__).resolve().parents[2]
Job = Callable[[], None]


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
    begun_with = json.loads(path.read_text())
    if begun_with != facts:
        raise SystemExit(
            f"{runs} holds runs made with {begun_with}, these would be made with {facts}: choose another --runs"
        )


def frozen_judge(runs: Path, judge: str, name: str = "judge") -> str:
    """Copy a judge at the study's start, by name or folder; returns the copy's: a study over days keeps its judge, whatever is shipped by then."""
    folder, part = runs / name, runs / f"{name}.part"
    if not folder.is_dir():
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(judge_folder(judge) or judge, part)
        part.rename(folder)  # a copy that was cut off is no judge
    return str(folder)


def judge_hashes(judge: Path) -> dict[str, str]:
    """SHA-256 of a judge's own weights (the whole model's, or its adapter's), and of its judge.json: with another calibration it is
    another judge.

    Raises:
        SystemExit: there are no weights, or no settings, in the folder.
    """
    weights = next((judge / name for name in ("model.safetensors", WEIGHTS) if (judge / name).is_file()), None)
    if weights is None or not (judge / FILE).is_file():
        raise SystemExit(f"{judge} is no judge: neither model.safetensors nor {WEIGHTS}, or no {FILE}")
    return {"weights": sha256(weights), "settings": sha256(judge / FILE)}


def call(arguments: list[str], log: Path, module: str = "reagent") -> None:
    """`python -m reagent …` (or `rrm`) on one thread, output added to a log.

    Raises:
        subprocess.CalledProcessError: it failed; the log says why.
    """
    paths = os.pathsep.join([str(ROOT / "agents"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as out:
        subprocess.run([sys.executable, "-m", module, *arguments], env=env, stdout=out, stderr=out, check=True)


def train_once(
    folder: Path, options: list[str], log: Path, module: str = "reagent", arguments: Sequence[str] = ()
) -> None:
    """A training that writes into a folder, unless its `done.json` (seconds, commit, options, commits) is there; wall seconds are added
    up over continuations, and the commit of each stands in `commits`.

    Args:
        arguments: of the module, before the options.

    Raises:
        SystemExit: it was begun with other options.
        subprocess.CalledProcessError: it failed; the log says why.
    """
    if (folder / "done.json").is_file():
        return
    begun = folder.with_suffix(".begun.json")
    folder.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(begun.read_text()) if begun.is_file() else {}
    progress = {"seconds": 0.0, "options": options, "commits": []} | before
    if (was := progress["options"]) != options:
        raise SystemExit(f"{folder} was begun with {was}, not {options}: move it away, or choose another --runs")
    progress["commits"].append(commit := record.commit())
    start = time.monotonic()
    begun.write_text(json.dumps(progress) + "\n")  # also of one that is killed
    try:
        call([*arguments, *options], log, module)
    finally:
        progress["seconds"] += time.monotonic() - start
        begun.write_text(json.dumps(progress) + "\n")
    (folder / "done.json").write_text(json.dumps(progress | {"commit": commit}) + "\n")


def run_all(jobs: Sequence[Job], parallel: int) -> None:
    """Do them, so many at once; one that fails keeps no other from being done.

    Raises:
        SystemExit: some failed; names their logs.
    """
    failed: list[str] = []

    def do(job: Job) -> None:
        try:
            job()
        except subprocess.CalledProcessError as error:
            failed.append(" ".join(map(str, error.cmd[2:])))
        except SystemExit as error:  # begun with other options
            failed.append(str(error))

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(do, jobs))
    if failed:
        raise SystemExit("failed, see the logs beside their folders:\n" + "\n".join(failed))


def lines(path: Path) -> list[dict[str, Any]]:
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
    draws = _draws(*table.shape, seed, resamples)
    interval = _widened(draws, lambda seeds: ((seeds @ table) * draws.tasks).sum(axis=1))
    low, high = np.clip(interval, *within)
    return {"value": float(table.mean()), "low": float(low), "high": float(high)}


def two_way_ratio(above: np.ndarray, below: np.ndarray, seed: int = 0, resamples: int = 4000) -> dict[str, Any]:
    """Ratio of the means of two (seeds, tasks) tables, with an interval as `two_way_interval` has; both tables are resampled alike, so
    that runs of one seed stay together. None where the mean below is 0; in the interval, where that of a resample is.

    Raises:
        ValueError: tables of different shapes.
    """
    if above.shape != below.shape:
        raise ValueError(f"no ratio of tables of {above.shape} and {below.shape}")
    if not below.mean():
        return {"value": None, "low": None, "high": None}
    draws = _draws(*above.shape, seed, resamples)

    def of(seeds: np.ndarray) -> np.ndarray:
        over, under = (((seeds @ table) * draws.tasks).sum(axis=1) for table in (above, below))
        return np.divide(over, under, out=np.full(len(over), np.nan), where=under > 0)

    low, high = (float(v) if math.isfinite(v) else None for v in _widened(draws, of))
    return {"value": float(above.mean() / below.mean()), "low": low, "high": high}


@dataclass(frozen=True)
class _Draws:
    """Resamples as weights: how often each seed and task is drawn, as a share."""

    seeds: np.ndarray  # (resamples, seeds)
    tasks: np.ndarray  # (resamples, tasks)


@functools.lru_cache(maxsize=8)
def _draws(n_seeds: int, n_tasks: int, seed: int, resamples: int) -> _Draws:
    """Of every table of this shape the same."""
    rng = np.random.default_rng(seed)
    seeds, tasks = np.empty((resamples, n_seeds)), np.empty((resamples, n_tasks))
    for r in range(resamples):
        seeds[r] = np.bincount(rng.integers(0, n_seeds, n_seeds), minlength=n_seeds) / n_seeds
        tasks[r] = np.bincount(rng.integers(0, n_tasks, n_tasks), minlength=n_tasks) / n_tasks
    return _Draws(seeds, tasks)


def _widened(draws: _Draws, statistic: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The 95 % interval of a figure of weighted seeds, (resamples, seeds) → (resamples,), on the tasks drawn: the part of the seeds
    is widened as `two_way_interval` says."""
    from scipy.stats import norm, t

    n_seeds, wider = draws.seeds.shape[1], 1.0
    if n_seeds > 1:
        wider = math.sqrt(n_seeds / (n_seeds - 1)) * float(t.ppf(0.975, n_seeds - 1) / norm.ppf(0.975))
    all_seeds = statistic(np.full_like(draws.seeds, 1 / n_seeds))
    return np.quantile(all_seeds + wider * (statistic(draws.seeds) - all_seeds), [0.025, 0.975])


def hops_of(task: str, hops: list[int]) -> int:
    """Held-out tasks deal their hop counts in turn; the task's number stands at the end of its id."""
    return hops[int(task.rsplit("-", 1)[1]) % len(hops)]
