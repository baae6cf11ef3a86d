"""How early a guard stops failing runs, how many good ones it stops wrongly, and what that saves.

    python -m benchmarks.guard                # scores every prefix with the shipped default judge (kept in runs/guard), then the record
    python -m benchmarks.guard --limit 2      # two runs a source: a look
    python -m benchmarks.guard --minutes 60   # what can be judged in an hour; the next call goes on from there

Runs: questions of `benchmarks/splits/default_judge.json`'s test part that the judge was not trained on, with a known outcome and at
least three steps, drawn one a question at a time and blind to outcomes (`LIMITS` a source). Each prefix that ends with a step is
judged as the guard does (mode `steps`, keys and values kept). A stop after the last step is none. `tokens` are those of the agent's
turns and of what came back, by the judge's tokenizer; what is saved is what the run would have added after the stop.

Rivals, both allowed the same share of good runs: `turns`, stop whatever runs longer than k (a fractional k: that share of the
runs goes on to the next one); `random`, stop after each step with one probability (in expectation).

Primary figure, written down before the study was run: share of failing runs' tokens saved by `GuardPolicy(signal="score",
patience=2)` at a threshold that stops at most 10 % of good runs, minus the same of the better rival. All three take their parameter
from the other four of five folds of questions. Predicted: 0.03, with an interval that holds 0; the judge's AUROC on whole runs is 0.73,
and less is known early. Beside it: patience 1, and `p_good` of the latest step as the signal.

Controls, all added after the first run of the study. The runs are of thirteen sources, and what tells them apart would pass for a
judgement of runs:

- `shuffled`: the guard, where each run has the scores of another run of its source (cut to its length, or their last one repeated):
  what is left of its figures is what it knows of sources. Many draws.
- `source_alone` stops runs after their first step by how often the other runs of their source fail, which no guard is told, and
  earlier than a guard of patience 2 can.
- `turns_of_source`: stop what runs longer than so many times the median length of its source.

Intervals are over questions, at the folds and parameters as they were drawn and fitted; `other_folds` has the primary figure at others.

Writes benchmarks/results/guard.json (cross-fitted figures with intervals over questions) and guard.png, the curves; what the judge said of
each prefix stays in runs/guard.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.default_judge import sources
from benchmarks.default_judge.drawing import named, spread
from benchmarks.default_judge.mixture import by_part, load_split
from benchmarks.default_judge.sources import Example
from benchmarks.guard_figures import FOLDS, drawn, measured
from benchmarks.guard_ways import Run, of_sources
from rrm.data.jsonl import append_line, read_lines
from rrm.data.provenance import environment
from rrm.data.questions import question_of, seen_in_training
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.prompt.rendering import agent_text, observation_text

LIMITS = {"mint/": 10, "mint_more/": 10, "": 24}
"""Runs of a source at most, by the beginning of its name."""
LEAST_STEPS = 3


# ---- which runs, and what the judge says of their prefixes -----------------------------------------------------------------


def chosen(data: Path, keys: Sequence[str], seed: int, limit: int | None) -> list[Example]:
    """The runs, sources taking turns, so that a part of them is a draw as well."""
    rows = by_part(sources.load(data), load_split())["test"]
    rows = [r for r in rows if r.trajectory.outcome is not None and len(r.trajectory.steps) >= LEAST_STEPS]
    met = set(seen_in_training(keys, (r.trajectory for r in rows)))
    found = []
    for source, its in named([r for r in rows if r.trajectory.id not in met]).items():
        most = next(n for start, n in LIMITS.items() if source.startswith(start))
        drawn = spread(its, most if limit is None else min(limit, most), derive_seed(seed, source))
        found += [(place / len(drawn), source, row) for place, row in enumerate(drawn)]
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def judged(rows: Sequence[Example], judge: Any, kept: Path, minutes: float) -> list[Run]:
    """Each run with what the judge says after each step; what an earlier run of this study judged is read from `kept`, and none is begun
    after so many minutes."""
    from rrm.judge.incremental_judge import Follower

    done = {row["id"]: Run(**row) for row in read_lines(kept, json.loads, "a judged run")} if kept.exists() else {}
    began = time.monotonic()
    for number, row in enumerate(rows, 1):
        trajectory = row.trajectory
        if trajectory.id not in done and time.monotonic() - began < 60.0 * minutes:
            follower = Follower(judge)
            run = _judged(row, judge, follower)
            follower.close()
            append_line(kept, json.dumps(vars(run)))
            done[trajectory.id] = run
            print(f"{number}/{len(rows)} {run.source} {time.monotonic() - began:.0f} s", flush=True)
    return [done[row.trajectory.id] for row in rows if row.trajectory.id in done]


def _judged(row: Example, judge: Any, follower: Any) -> Run:
    whole = row.trajectory
    score, p_good, tokens, seconds = list[float](), list[float](), list[int](), list[float]()
    for prefix in prefixes(whole):
        before, began = judge.engine.counters.prefilled, time.perf_counter()
        feedback = follower.judge(prefix)
        seconds.append(round(time.perf_counter() - began, 4))
        tokens.append(judge.engine.counters.prefilled - before)
        score.append(round(feedback.score, 6))
        p_good.append(round(feedback.findings[-1].p_good, 6))
    encode = judge.prompter.encode
    added = [len(encode(f"{agent_text(s.message)}\n{observation_text(s)}")) for s in whole.steps]
    assert whole.outcome is not None
    return Run(whole.id, row.source, question_of(whole), whole.outcome >= 0.5, added, score, p_good, tokens, seconds)


def prefixes(whole: Trajectory) -> list[Trajectory]:
    """The run as it stood after each step."""
    ends = [step.message_index + 1 + len(step.observations) for step in whole.steps]
    return [whole.model_copy(update={"messages": whole.messages[:end], "outcome": None}) for end in ends]


def main() -> None:
    """Judge what is not judged, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=sources.DATA)
    parser.add_argument("--work", type=Path, default=Path("runs/guard"))
    parser.add_argument("--limit", type=int, help="runs of a source at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so many")
    parser.add_argument("--dtype", default="bfloat16", help="of the judge's weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=record.RESULTS / "guard.json")
    args = parser.parse_args()
    made, runs = judged_anew(args)
    found = measured(runs, args.seed)
    record.write(args.output, {**made, **found})
    drawn(runs, args.output.with_suffix(".png"))
    print(json.dumps({"output": args.output.name, "runs": len(runs), "primary": found["primary"]}))


def counts(runs: Sequence[Run]) -> dict[str, Any]:
    """How many runs there are, and of what."""
    return {
        "runs": len(runs),
        "questions": len({run.question for run in runs}),
        "good": sum(run.good for run in runs),
        "sources": {source: len(its) for source, its in of_sources(runs).items()},
    }


def judged_anew(args: argparse.Namespace) -> tuple[dict[str, Any], list[Run]]:
    """Judge what is not judged; how that was done, and the runs."""
    import torch

    from rrm.judge.agent_rrm import AgentRRM

    torch.set_num_threads(args.threads)
    judge = AgentRRM.from_pretrained(dtype=args.dtype)
    rows = chosen(args.data, judge.settings.training_questions, args.seed, args.limit)
    kept = args.work / f"prefixes_{(judge.model_hash or 'judge')[:12]}_{args.dtype}.jsonl"
    runs = judged(rows, judge, kept, args.minutes)
    made = {
        "command": record.command("guard"),
        "commit": record.commit(),
        "environment": environment(),
        "judged_by": judge.describe(),
        "draw": {"limits": LIMITS, "limit": args.limit, "least_steps": LEAST_STEPS, "seed": args.seed, "folds": FOLDS},
        "drawn": len(rows),
    }
    return {**made, **counts(runs)}, runs


if __name__ == "__main__":
    main()
