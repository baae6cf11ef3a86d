"""Put a judge's scores into the Inspect log they are of. Needs `pip install 'agent-rrm[inspect]'`.

    rrm score run.eval -o scored.jsonl --model DIR
    rrm convert run.eval -o scores.jsonl --to inspect --scores scored.jsonl
    python inspect_scores.py run.eval scores.jsonl judged.eval

Each sample and epoch gets the scorers `agent_rrm` and, of criteria, `agent_rrm.NAME`; what stands under these names is replaced,
all else stays. `inspect view` and `samples_df` show them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

try:
    from inspect_ai.log import EvalLog, read_eval_log, write_eval_log
    from inspect_ai.scorer import Score
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[inspect]'")


def put(log: EvalLog, lines: list[dict[str, Any]]) -> int:
    """Put the lines of this log into its samples; returns how many samples have scores now.

    Raises:
        ValueError: a line of this log names a sample that is not in it, or no line is of this log.
    """
    own = [line for line in lines if line.get("eval_id", log.eval.eval_id) == log.eval.eval_id]
    if not own:
        raise ValueError(f"none of {len(lines)} lines is of the evaluation {log.eval.eval_id}")
    samples = {(str(sample.id), sample.epoch): sample for sample in log.samples or []}
    for line in own:
        sample = samples.get((str(line["sample_id"]), line["epoch"]))
        if sample is None:
            raise ValueError(f"the log has no sample {line['sample_id']!r} in epoch {line['epoch']}")
        sample.scores = {**(sample.scores or {}), **{name: Score(**s) for name, s in line["scores"].items()}}
    return len(own)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Put a judge's scores into an Inspect log.")
    parser.add_argument("log", help="the log that was judged, .eval or .json")
    parser.add_argument("scores", type=Path, help="what `rrm convert --to inspect` wrote")
    parser.add_argument("out", help="where the log with scores goes, .eval or .json")
    options = parser.parse_args()
    log = read_eval_log(options.log)
    lines = [json.loads(line) for line in options.scores.read_text(encoding="utf-8").splitlines() if line.strip()]
    try:
        count = put(log, lines)
    except ValueError as error:
        sys.exit(f"error: {error}")
    write_eval_log(log, options.out)
    sys.stdout.write(f"{count} samples have scores in {options.out}\n")


if __name__ == "__main__":
    main()
