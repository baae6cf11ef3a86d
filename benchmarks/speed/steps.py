"""How long a judge takes in mode `steps`, by a transcript's length and threads; and beside mode `score`.

    python -m benchmarks.speed.steps --model runs/default_judge/small_run/judge

Transcripts are made here (seeded words, a tool result of some hundred tokens a step), so that a length is a length for every
judge. Writes benchmarks/results/steps_speed.json: seconds a transcript and a thousand of its tokens, tokens read, and the ratio of
transcripts a second in `steps` and `score` mode, alternating in one run. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import record
from benchmarks.speed.harness import finish, in_turn, made, timed
from rrm.data.trajectory import Message, Trajectory
from rrm.judge.agent_rrm import AgentRRM

WORDS = [
    "query", "index", "table", "row", "value", "path", "node", "time", "user", "result", "field", "page", "line", "count",
]  # fmt: skip
LENGTHS = (500, 5_000, 50_000)  # tokens of a transcript, about
WORDS_A_STEP = 150
REPEATS = 3


def log(tokens: int, seed: int) -> Trajectory:
    """A transcript of about so many tokens (these words are one each)."""
    rng, task = random.Random(seed), "Find out why the nightly job failed."
    messages = [Message(role="user", content=task)]
    while tokens > 0:
        seen = " ".join(rng.choices(WORDS, k=min(WORDS_A_STEP, tokens)))
        messages.append(Message(role="assistant", content="I look at the next page of the log."))
        messages.append(Message(role="tool", name="shell", content=seen))
        tokens -= WORDS_A_STEP + 20
    return Trajectory(id=f"log{seed}", task=task, messages=messages)


def by_length(judge: AgentRRM, lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Seconds of one transcript of each length, the middle of a few, after a warm-up."""
    judge.judge([log(300, 99)], mode="steps")
    found = []
    for tokens in lengths:
        row = log(tokens, 0)
        assert judge.prompter is not None
        plan = judge.prompter.plan(row, "steps")
        repeats = 1 if tokens > 10_000 else REPEATS
        runs = [timed(lambda row=row: judge.judge([row], mode="steps")) for _ in range(repeats)]
        wall = statistics.median(run.wall for run in runs)
        found.append({
            "transcript_tokens": plan.transcript_tokens,
            "tokens_read": sum(len(judge.prompter.reading(plan, i, "steps").ids) for i in range(len(plan))),
            "readings": len(plan),
            "seconds": round(wall, 2),
            "seconds_a_thousand": round(wall / plan.transcript_tokens * 1000, 3),
        })  # fmt: skip
    return found


def beside_score(judge: AgentRRM) -> dict[str, Any]:
    """Transcripts a second of `steps` over those of `score`, on sixteen that fit into a window."""
    rows = [log(350 + 10 * i, i) for i in range(16)]
    arms = {mode: lambda mode=mode: timed(lambda: judge.judge(rows, mode=mode)) for mode in ("steps", "score")}
    timings = in_turn(arms, REPEATS)
    ratios = [round(score.wall / steps.wall, 3) for steps, score in zip(*timings.values(), strict=True)]
    return {"ratio": statistics.median(ratios), "ratios": sorted(ratios), "rows": len(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "steps_speed.json", dest="out")
    args = parser.parse_args()
    found: dict[str, Any] = {**made("steps", args, "agent-rrm", "torch", "transformers"), "seed": 0, "runs": []}
    for dtype in args.dtypes.split(","):
        judge = AgentRRM.from_pretrained(args.model, dtype=dtype)
        found["judge"] = judge.describe()
        for threads in map(int, args.threads.split(",")):
            torch.set_num_threads(threads)
            lengths = LENGTHS if dtype == "float32" else LENGTHS[:1]  # bfloat16 may be emulated, and take an hour
            run: dict[str, Any] = {"dtype": dtype, "threads": threads, "lengths": by_length(judge, lengths)}
            if dtype == "float32":
                run["beside_score"] = beside_score(judge)
            found["runs"].append(run)
            print(run, file=sys.stderr)
    finish(found, args.out)


if __name__ == "__main__":
    main()
