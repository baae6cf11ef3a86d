"""Run folders of the study without an answer key, as a training writes them, of runs that were never made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.no_answer_key import Study
from benchmarks.studies.no_answer_key_arms import ARMS, JUDGE
from benchmarks.studies.no_answer_key_figures import collect
from reagent.train.config import load_agent_config
from reagent.train.runlog import append_line
from rrm.train.run_folder import claim_folder

TASKS = 200
MADE = {"command": "c", "commit": "abc", "policy": "p", "judge": JUDGE, "overrides": []}


def solved(share: float) -> str:
    """The first tasks are solved."""
    return "".join("1" if n < round(share * TASKS) else "0" for n in range(TASKS))


def by_task(row: str) -> dict[str, float]:
    return {f"search-heldout-0-{n}": float(digit) for n, digit in enumerate(row)}


def made(
    runs: Path,
    arm: str,
    number: int,
    curve: Sequence[float],
    *,
    ungraded: float = 0.0,
    unknown: float = 0.0,
    guards: Sequence[tuple[str, int]] = (),
) -> None:
    """A run's folder: two updates between evaluations, the last of them after the last update."""
    folder = runs / arm / f"seed{number}"
    config = load_agent_config("lab", Study(runs, "/judge").options(arm, number))
    claim_folder(config, folder)
    for update in range(2 * len(curve)):
        row = {"update": update, "episodes": 64 * (update + 1), "feedback/judge_tokens": 100.0}
        append_line(folder / "metrics.jsonl", row | {"episode/ungraded": ungraded, "episode/unknown": unknown})
    for n, share in enumerate(curve):
        row = {"update": 2 * n + 1, "episodes": 128 * (n + 1), "by_task": by_task(solved(share)), "judge_tokens": 7}
        append_line(folder / "eval.jsonl", row)
    for guard, update in guards:
        row = {"update": update, "episodes": 0, "guard": guard, "action": "warn", "text": "t"}
        append_line(folder / "guards.jsonl", row)
    options = Study(runs, f"{runs}/judge").options(arm, number)
    done = {"seconds": 120.0, "commit": "abc", "commits": ["abd", "abc"], "options": options}
    (folder / "done.json").write_text(json.dumps(done))


def begun(runs: Path, share: float = 0.25) -> Path:
    runs.mkdir(exist_ok=True)
    (runs / "start.json").write_text(json.dumps({"by_task": by_task(solved(share))}))
    return runs


def hoped_for(runs: Path) -> str:
    """A record, as JSON, in which the headline is as hoped for, with all its seeds."""
    begun(runs)
    for arm, share in (("outcome", 0.7), ("judge", 0.68), ("nothing", 0.15), ("length", 0.2), ("tenth+judge", 0.66)):
        for n in range(ARMS[arm].seeds):
            made(runs, arm, n, [share + 0.01 * (n % 2)])
    for n in range(ARMS["gamed"].seeds):
        made(runs, "gamed", n, [0.3, 0.6, 0.5, 0.4], guards=[("length", 0), ("drift", 5)])
        made(runs, "honest", n, [0.3, 0.6], guards=[("length", 1)] * (n > 0) + [("kl", 2)] * (n == 4))
    return json.dumps(MADE | collect(runs))
