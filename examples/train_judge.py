"""Train a judge on labelled runs, and judge others with it.

    python examples/train_judge.py labelled.jsonl --annotations labels.jsonl -o runs/judge
    python examples/train_judge.py labelled.jsonl --config smollm2 -o runs/judge sft.epochs=1     # a real base, half an hour

Without files the lab makes some: `reagent lab transcripts -o labelled.jsonl --n 400 --annotations labels.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from rrm import AgentRRM
from rrm.config import load_config
from rrm.errors import RRMError
from rrm.readers import read
from rrm.train.run import train


def trained(runs: str, annotations: str | None, config: str, output: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The summary of a training: outcomes of the runs are the labels, and annotations where there are some."""
    settings = [f"data.trajectories=[{runs}]", f"data.annotations=[{annotations or ''}]", f"output_dir={output}"]
    target = [] if annotations else ["data.target=outcome"]  # whatever files and target the config has of its own
    summary = train(load_config(config, [*settings, *target, *overrides]))
    assert summary is not None  # of several processes, the main one has it
    return summary


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs")
    parser.add_argument("overrides", nargs="*", metavar="a.b=c", help="of the config")
    parser.add_argument("--annotations")
    parser.add_argument("--config", default="quickstart")
    parser.add_argument("-o", "--output", default="runs/judge")
    args = parser.parse_intermixed_args(arguments)
    summary = trained(args.runs, args.annotations, args.config, args.output, args.overrides)
    print(json.dumps({key: value for key, value in summary.items() if key.startswith(("score/", "judge"))}, indent=1))
    judge = AgentRRM.from_pretrained(summary["judge"])
    first = next(iter(read([args.runs])))
    (said,) = judge.judge([first], mode="score")
    print(f"{first.id}: outcome {first.outcome}, score {said.score}")


if __name__ == "__main__":
    try:
        main()
    except RRMError as error:  # a file that is not there, an extra that is not installed, …
        sys.exit(f"error: {error}")
