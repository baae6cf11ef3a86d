"""Judge a log, and print the runs and steps that are worth a look first.

python examples/judge_logs.py examples/transcripts                     # the default judge: fetches 98 MB once
python examples/judge_logs.py runs.jsonl --model lab                   # or a directory, a hub id, a server's address
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rrm import AgentRRM, Feedback, Trajectory
from rrm.errors import RRMError
from rrm.readers import read


def judged(paths: Sequence[str], model: str | None) -> list[tuple[Trajectory, Feedback]]:
    """Every run of some files beside its judgement."""
    runs = list(read(list(paths), on_error=print))  # what cannot be read is printed, with its place
    if not runs:
        raise RRMError(f"nothing to judge in {', '.join(paths)}")
    judge = AgentRRM.from_pretrained(model)
    return list(zip(runs, judge.judge(runs), strict=True))


def worst(pairs: list[tuple[Trajectory, Feedback]], n: int) -> list[tuple[Trajectory, Feedback]]:
    """The n runs with the lowest scores. A judgement that failed has no score: it is no bad one."""
    scored = [(run, said) for run, said in pairs if said.score is not None]
    return sorted(scored, key=lambda pair: pair[1].score or 0.0)[:n]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", help="files or folders, any format that rrm score reads")
    parser.add_argument("--model", help="the judge; default: the default judge")
    parser.add_argument("-n", type=int, default=5, help="runs to print")
    args = parser.parse_args(arguments)
    pairs = judged(args.paths, args.model)
    for run, said in worst(pairs, args.n):
        print(f"{said.score:.2f}  {run.id}: {run.task[:80]}")
        for finding in said.findings:
            if finding.verdict == "bad":
                print(f"      step {finding.step}: {finding.text or 'bad'}")
    failed = [said.status for _, said in pairs if said.score is None]
    print(f"{len(pairs)} runs, {len(failed)} without a score {sorted(set(failed)) or ''}")


if __name__ == "__main__":
    try:
        main()
    except RRMError as error:  # a file that is not there, an extra that is not installed, …
        sys.exit(f"error: {error}")
