"""A real server behind `rrm`: every command over it ends typed, and a trained judge that it serves gives its directory's scores.

    python -m benchmarks.served --server openai:http://127.0.0.1:8000/v1#base
    python -m benchmarks.served --judge openai:http://127.0.0.1:8000/v1#judge --judge-dir runs/judge

Both write benchmarks/results/served.json, each its own part. `--server` is any chat model: `rrm score`, `rrm score --criteria`, `rrm rank`
and `rrm calibrate` are run over it as a user runs them, and how each row ended is counted: what a small model says may be poor, that it is
read or refused by name is the point. `--judge` is a trained judge, `--judge-dir` its directory: the same transcripts are scored by
both in each of its modes, here in float32. How a server is started stands in docs/judges.md. Transcripts are the lab's, made here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from reagent.lab.transcripts import make_transcripts
from rrm.feedback import Feedback
from rrm.judge.agent_rrm import AgentRRM
from rrm.trajectory import Trajectory, write_jsonl

OUT = record.RESULTS / "served.json"
PATHS: dict[str, tuple[str, ...]] = {
    "full": ("score", "--mode", "full"),
    "criteria": ("score", "--criteria", "task-success"),
    "rank": ("rank", "--both-orders"),
    "calibrate": ("calibrate", "--mode", "score"),
}
"""What each path is called, and its command."""


def transcripts(rows: int, seed: int) -> list[Trajectory]:
    """The lab's, with outcomes, several at each question."""
    return [trajectory for trajectory, _ in make_transcripts(rows, seed=seed)]


def run(path: str, server: str, source: Path, folder: Path) -> dict[str, Any]:
    """One command over the server: how its rows ended, its exit code, and why it stopped where it wrote no rows."""
    command, *options = PATHS[path]
    out = folder / (path if command == "calibrate" else f"{path}.jsonl")
    given = [sys.executable, "-m", "rrm", command, str(source), "--model", server, "-o", str(out), *options]
    done = subprocess.run([*given, "--max-new-tokens", "128", "--timeout", "600"], capture_output=True, text=True)
    rows = next((p for p in (Path(f"{out}.rows.jsonl"), out) if p.is_file()), None)
    lines = [] if rows is None else [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    found = {"command": f"rrm {command} {' '.join(options)}", "exit": done.returncode, "rows": len(lines)}
    found["statuses"] = dict(Counter(line["status"] for line in lines))
    found["reasons"] = dict(Counter(line["reason"][:80] for line in lines if line.get("reason")).most_common(5))
    return found if lines else {**found, "stopped": done.stderr.strip()[-400:]}


def both(judge: str, folder: str, rows: Sequence[Trajectory]) -> dict[str, Any]:
    """Scores of the served judge and of its directory, row by row, in each mode of the judge."""
    here = AgentRRM.from_pretrained(folder, device="cpu", dtype="float32")
    there = AgentRRM.from_pretrained(judge, settings=folder, timeout_s=600)
    found: dict[str, Any] = {}
    for mode in here.settings.modes or ("score", "full"):
        local, served = here.judge(rows, mode=mode), there.judge(rows, mode=mode)
        found[mode] = compared(local, served)
    return found


def compared(local: Sequence[Feedback], served: Sequence[Feedback]) -> dict[str, Any]:
    """What a record holds of one mode: both scores of each row, and how the served judge's rows ended."""
    return {
        "local": [f.score for f in local],
        "served": [f.score for f in served],
        "score_source": dict(Counter(str(f.judge.score_source) for f in served)),
        "statuses": dict(Counter(f.status for f in served)),
    }


def main() -> None:
    """Measure what is named, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", help="a chat model, openai:URL#name")
    parser.add_argument("--judge", help="a served judge, openai:URL#name")
    parser.add_argument("--judge-dir", help="its directory")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--server-says", default="", help="server, version and how it was started, for the record")
    parser.add_argument("-o", "--output", type=Path, default=OUT)
    args = parser.parse_args()
    if not args.server and not (args.judge and args.judge_dir):
        parser.error("give --server, or --judge with its --judge-dir")
    rows = transcripts(args.rows, args.seed)
    found: dict[str, Any] = json.loads(args.output.read_text()) if args.output.is_file() else {}
    about = {
        "command": record.command("served"),
        "commit": record.commit(),
        "seed": args.seed,
        "server": args.server_says,
    }
    about |= record.made_with("agent-rrm", "openai")
    if args.server:
        with tempfile.TemporaryDirectory() as name:
            write_jsonl(source := Path(name) / "in.jsonl", rows)
            runs = {path: run(path, args.server, source, Path(name)) for path in PATHS}
            found["paths"] = {"runs": runs, "made": about}
    if args.judge:
        found["judge"] = {"modes": both(args.judge, args.judge_dir, rows), "made": about}
    record.write(args.output, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
