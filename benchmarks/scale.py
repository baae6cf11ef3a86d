"""`rrm score` over many transcripts: peak memory and time a row, fresh and resumed, by a scripted judge.

    python -m benchmarks.scale [--rows 10000 100000 1000000] [-o benchmarks/results/scale.json]

Each measurement is a process of its own, whose peak resident memory the system tells (ru_maxrss). The judge answers at once: what is
measured is reading, resuming, writing and putting in order. `reversed` answers each window backwards, so that the finished file has
to be put into the order of its inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from rrm.data.feedback import Feedback, JudgeInfo, Mode, Reads
from rrm.data.trajectory import Trajectory
from rrm.readers import read
from rrm.scoring.run import score_file

KINDS = ("fresh", "resumed", "reversed")
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


class Scripted:
    """Answers at once."""

    def __init__(self, backwards: bool) -> None:
        self.backwards = backwards
        self.info = JudgeInfo(model="scripted", prompt_version="2", mode="score", calibrated=False)

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
    ) -> list[Feedback]:
        """A score by the length of the id."""
        found = [
            Feedback(id=t.id, status="scored", score=0.5, raw_score=len(t.id) % 10 / 10, coverage=1.0, judge=self.info)
            for t in (reversed(trajectories) if self.backwards else trajectories)
        ]
        if on_feedback:
            list(map(on_feedback, found))
        return found

    def describe(self) -> dict[str, Any]:
        """What decides its scores."""
        return {"model": "scripted", "prompt_version": "2"}

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """Nothing is read."""
        return [Reads(0, 1, 1.0) for _ in trajectories]


def write_rows(path: Path, rows: int) -> None:
    """Small transcripts: a question, a call, its result, an answer."""
    with open(path, "w", encoding="ascii") as out:
        for n in range(rows):
            messages = [
                {"role": "user", "content": f"How many are {n} and {n % 7}?"},
                {"role": "assistant", "content": "I add them.", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": str(n + n % 7)},
                {"role": "assistant", "content": f"There are {n + n % 7}."},
            ]
            out.write(json.dumps({"id": f"run-{n:08d}", "messages": messages, "outcome": n % 3 / 2}) + "\n")


def measure(kind: str, source: str, output: str) -> dict[str, Any]:
    """One run in this process: rows, seconds of this process's own, peak memory in MiB."""
    cpu, wall = time.process_time(), time.monotonic()
    summary = score_file(Scripted(kind == "reversed"), read([source]), Path(output), mode="score", progress=False)
    times = {"cpu_s": round(time.process_time() - cpu, 2), "wall_s": round(time.monotonic() - wall, 2)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": summary.rows, "resumed": summary.resumed, **times, "peak_mib": round(peak, 1)}


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--one", nargs=3, metavar=("KIND", "SOURCE", "OUTPUT"), help="one measurement, in this process")
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS / "scale.json")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*given.one)))
        return
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for rows in sorted(given.rows):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "rows.jsonl"
            write_rows(source, rows)
            for kind in KINDS:
                output = Path(folder) / ("backwards.jsonl" if kind == "reversed" else "out.jsonl")
                one = [sys.executable, "-m", "benchmarks.scale", "--one", kind, str(source), str(output)]
                done = subprocess.run(one, check=True, capture_output=True, text=True)
                found[kind].append(json.loads(done.stdout.splitlines()[-1]))
                print(kind, found[kind][-1], flush=True)
    made = {"command": record.command("scale"), "commit": record.commit(), "machine": record.hardware()}
    record.write(given.output, {**found, **made, "load": list(os.getloadavg())})


if __name__ == "__main__":
    main()
