"""Tasks × methods with SmolLM2-135M, from one command that is killed and goes on: what `benchmarks.agents.run` does, on real questions.

    python -m benchmarks.studies.agent_table [--limit 40]          (after `benchmarks.studies.smollm2_qa`, whose policies it plays)

HotpotQA, 2WikiMultihopQA and MuSiQue, of the questions that `smollm2_qa` holds out, over its corpus; every method with the warm start that
was shown it, and the policies that were trained. The prompts are the methods' and benchmarks' own, longer than those that were shown; answers are asked for in the tags that
were. The run is killed by SIGKILL once --kill-after attempts are written, in the middle of a
cell, and the same command goes on. All of it lies in runs/agent_table, with the page of every judged transcript. Writes
benchmarks/results/agent_table.json: the rows of the table without what was said.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.agents.cells import EPISODES
from benchmarks.agents.page import REPORT, TABLE
from benchmarks.studies.smollm2 import ROOT, engine, on, on_device
from benchmarks.studies.smollm2_qa_demos import RESULT_CHARS, SEARCHES
from reagent.env.task import Task, read_tasks, write_tasks
from reagent.tasks.base import OWN

NAME = "agent_table"
TASKS = ("hotpotqa", "2wiki", "musique")
ASKED = {
    "direct": "direct", "naive_rag": "naive_rag", "tool_call": "tool_call", "react": "tool_call", "reagent_c": "tool_call",
    "best_of_n": "tool_call",
}  # fmt: skip
"""Method → the warm start it plays."""
LIMITS = (
    "cpu=true", "threads=1", "policy.dtype=float32", "policy.chat_template=chatml", "rollout.max_new_tokens=48",
    "rollout.max_episode_tokens=640", "rollout.max_observation_tokens=160",
    "feedback.judge_options={dtype: float32}", "feedback.score_mode=steps",
)  # fmt: skip


def of_benchmark(tasks: Sequence[Task], name: str) -> list[Task]:
    """Those of one source, as its own benchmark reads them."""
    return [replace(t, meta={**t.meta, OWN: name}) for t in tasks if t.meta["source"] == name]


def command(study: Path, folder: Path, limit: int, samples: int, device: str) -> list[str]:
    """The one command."""
    options = {
        "parser": "search_tags", "tool_prompt": "brief", "max_turns": SEARCHES + 1, "tool_options": {"search": {"k": 1, "max_chars": RESULT_CHARS}},
    }  # fmt: skip
    trained = sorted(path.parent for path in study.glob("*/seed*/policy") if (path.parent / "done.json").is_file())
    methods = [f"{name}={name}@{study / 'warm' / start}" for name, start in ASKED.items()]
    methods += [f"{path.parent.name}-{path.name}=policy@{path / 'policy'}" for path in trained]
    paths = [part for name in TASKS for part in ("--path", f"{name}={folder / f'{name}.jsonl'}")]
    own = [part for name in TASKS for part in ("--options", f"{name}={json.dumps(options)}")]
    return [
        sys.executable, "-m", "benchmarks.agents.run", "--policy", str(study / "warm" / "tool_call"), "--tasks", ",".join(TASKS),
        "--methods", ",".join(methods), *paths, *own, "--corpus", str(study / "corpus"), "--limit", str(limit),
        "--samples", str(samples), "--judge", "default", "--against", "naive_rag", "-o", str(folder / "table"), *LIMITS, *on(device), engine(device),
    ]  # fmt: skip


def written(folder: Path) -> int:
    """Attempts on disk."""
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("table/*/*/attempts.jsonl"))


def play(asked: Sequence[str], folder: Path, kill_after: int) -> None:
    """Run the command, killed once in a cell's middle; where that was is noted.

    Raises:
        SystemExit: the command failed; names its log.
    """
    killed, log = folder / "killed.json", folder / "table.log"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")]), "OMP_NUM_THREADS": "1"}
    while True:
        with open(log, "a") as out:
            run = subprocess.Popen(asked, stdout=out, stderr=out, env=env, cwd=ROOT)
            while run.poll() is None:
                if not killed.is_file() and (at := written(folder)) >= kill_after:
                    run.send_signal(signal.SIGKILL)
                    run.wait()
                    killed.write_text(json.dumps([at]) + "\n")
                time.sleep(0.5)
        if run.returncode == -signal.SIGKILL:
            continue
        if run.returncode not in (0, 1):
            raise SystemExit(f"the table failed with {run.returncode}: {log}")
        return


def told(row: dict[str, Any], study: Path) -> dict[str, Any]:
    """A row of the table without its questions, and without the path of the machine's folder of runs."""
    figures, policy = row.get("figures"), row.get("policy")
    named = {} if policy is None else {"policy": str(policy).replace(f"{study}/", f"runs/{study.name}/")}
    kept = {} if figures is None else {"figures": {k: v for k, v in figures.items() if k != "by_question"}}
    return row | named | kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=ROOT / "runs" / "smollm2_qa")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / NAME)
    parser.add_argument("--output", type=Path, default=record.RESULTS / f"{NAME}.json")
    parser.add_argument("--limit", type=int, default=40, help="questions of a task")
    parser.add_argument("--samples", type=int, default=4, help="of best_of_n")
    parser.add_argument("--kill-after", type=int, default=70, help="attempts")
    on_device(parser)
    args = parser.parse_args()
    if not (args.study / "warm" / "tool_call" / "warm.json").is_file():
        parser.error(
            f"{args.study} holds no warm start: run benchmarks.studies.smollm2_qa first, or name its folder by --study"
        )
    folder, study = args.runs.resolve(), args.study.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [task for part in ("held_out", "musique") for task in read_tasks(study / f"{part}.jsonl")]
    for name in TASKS:
        write_tasks(folder / f"{name}.jsonl", of_benchmark(tasks, name))
    begun = time.monotonic()
    play(command(study, folder, args.limit, args.samples, args.device), folder, args.kill_after)
    table = json.loads((folder / "table" / TABLE).read_text())
    found = {
        "command": record.command(f"studies.{NAME}"),
        "commit": record.commit(),
        "environment": table["environment"],
        "hardware": record.hardware(),
        "judge": table["judge"],
        "questions": args.limit,
        "samples": args.samples,
        "kills": len(json.loads((folder / "killed.json").read_text())),
        "attempts": written(folder),
        "transcripts": sum(len(p.read_bytes().splitlines()) for p in folder.glob(f"table/*/*/{EPISODES}")),
        "report_bytes": (folder / "table" / REPORT).stat().st_size,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "rows": [told(row, study) for row in table["rows"]],
    }
    record.write(args.output, found)
    print(json.dumps({key: found[key] for key in ("questions", "attempts", "transcripts", "kills", "minutes")}))


if __name__ == "__main__":
    main()
