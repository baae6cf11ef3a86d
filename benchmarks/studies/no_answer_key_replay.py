"""What today's guards would have said of the runs of the study without an answer key.

    python -m benchmarks.studies.no_answer_key_replay --runs runs/no_answer_key

Metrics and evaluations of every finished run are taken in, in the order in which they came, and nothing is asked or trained. What the
auditor said is read as it was written. Writes benchmarks/results/no_answer_key_replay.json.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.studies.no_answer_key_arms import ARMS
from benchmarks.studies.study import lines
from reagent.train.config import load_agent_config
from reagent.train.guards import Guards
from rrm.data.provenance import environment

RESULTS = Path(__file__).parents[1] / "results" / "no_answer_key_replay.json"


def replayed(folder: Path, watched: bool) -> list[dict[str, Any]]:
    """(guard, update) of those that fire at a run's rows, in order.

    Args:
        watched: whether what a judge says is learned from.
    """
    guards = Guards(load_agent_config(str(folder / "config.yaml")), watched)
    guards.replay(lines(folder / "metrics.jsonl"), lines(folder / "eval.jsonl"))
    return [{"guard": event.guard, "update": event.update} for event in guards.events]


def run_of(folder: Path) -> dict[str, Any]:
    """What fired when it ran, and what fires now."""
    arm, fired = folder.parent.name, folder / "guards.jsonl"
    before = [{key: row[key] for key in ("guard", "update")} for row in lines(fired)] if fired.is_file() else []
    judged = bool(ARMS[arm].judge)
    watches = load_agent_config(str(folder / "config.yaml")).guards.evaluate
    return {
        "arm": arm, "run": folder.name, "judged": judged, "evaluate": watches, "before": before, "now": replayed(folder, judged)
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/no_answer_key"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.runs.glob("*/seed*/done.json") if path.parts[-3] in ARMS)
    if not folders:
        raise SystemExit(f"{args.runs} holds no finished run of the study: give its folder by --runs")
    runs = [run_of(folder) for folder in folders]
    record.write(
        args.output,
        {
            "command": "python -m benchmarks.studies.no_answer_key_replay",
            "commit": record.commit(),
            "environment": environment(),
            "runs": runs,
        },
    )
    for evaluate in (False, True):
        mine = [run for run in runs if run["judged"] and run["evaluate"] == evaluate]
        for when in ("before", "now"):
            found = Counter(guard for run in mine for guard in {row["guard"] for row in run[when]})
            print(f"guards.evaluate={str(evaluate).lower()}, {len(mine)} judged runs, {when}: {json.dumps(found)}")


if __name__ == "__main__":
    main()
