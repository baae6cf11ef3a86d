"""How long a judge takes in mode `steps`, by a transcript's length and threads; and beside mode `score`.

    python -m benchmarks.speed.steps --model runs/default_judge/small_run/judge

Transcripts are made here (seeded words, a tool result of some hundred tokens a step), so that a length is a length for every
judge. Writes benchmarks/results/steps_speed.json: seconds a transcript and a thousand of its tokens, tokens read, and the ratio of
transcripts a second in `steps` and `score` mode, alternating in one run. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import record
from rrm.data.trajectory import Message, Trajectory
from rrm.judge.agent_rrm import AgentRRM

WORDS = (
    "query",
    "index",
    "table",
    "row",
    "value",
    "path",
    "node",
    "time",
    "user",
    "result",
    "field",
    "page",
    "line",
    "count",
)
LENGTHS = (500, 5_000, 50_000)
"""Tokens of a transcript, about."""
WORDS_A_STEP = 150
REPEATS, ONCE = 3, 10_000
"""How often a transcript is judged, up to so many tokens; longer ones take minutes and are judged once."""
PAIRS = 3
"""Alternations of the two modes."""


def log(tokens: int, seed: int) -> Trajectory:
    """A transcript of about so many tokens (these words are one each)."""
    rng = random.Random(seed)
    messages = [Message(role="user", content="Find out why the nightly job failed.")]
    while tokens > 0:
        seen = " ".join(rng.choices(WORDS, k=min(WORDS_A_STEP, tokens)))
        messages.append(Message(role="assistant", content="I look at the next page of the log."))
        messages.append(Message(role="tool", name="shell", content=seen))
        tokens -= WORDS_A_STEP + 20
    return Trajectory(id=f"log{seed}", task="Find out why the nightly job failed.", messages=messages)


def timed(judge: AgentRRM, rows: list[Trajectory], mode: Any) -> float:
    """Seconds to judge the rows."""
    start = time.monotonic()
    judge.judge(rows, mode=mode)
    return time.monotonic() - start


def by_length(judge: AgentRRM, lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Seconds of one transcript of each length, the middle of a few, after a warm-up."""
    timed(judge, [log(300, 99)], "steps")
    found = []
    for tokens in lengths:
        row = log(tokens, 0)
        assert judge.prompter is not None
        plan = judge.prompter.plan(row, "steps")
        seconds = statistics.median(timed(judge, [row], "steps") for _ in range(1 if tokens > ONCE else REPEATS))
        read = sum(len(judge.prompter.reading(plan, i, "steps").ids) for i in range(len(plan)))
        found.append({
            "transcript_tokens": plan.transcript_tokens,
            "tokens_read": read,
            "readings": len(plan),
            "seconds": round(seconds, 2),
            "seconds_a_thousand": round(seconds / plan.transcript_tokens * 1000, 3),
        })  # fmt: skip
    return found


def beside_score(judge: AgentRRM) -> dict[str, Any]:
    """Transcripts a second of `steps` over those of `score`, on sixteen that fit into a window."""
    rows = [log(350 + 10 * i, i) for i in range(16)]
    pairs = [(timed(judge, rows, "steps"), timed(judge, rows, "score")) for _ in range(PAIRS)]
    ratios = sorted(score / steps for steps, score in pairs)
    return {"ratio": round(ratios[len(ratios) // 2], 3), "ratios": [round(r, 3) for r in ratios], "rows": len(rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "steps_speed.json", dest="out")
    args = parser.parse_args()
    found: dict[str, Any] = {
        **record.timed_with("speed.steps", args, "agent-rrm", "torch", "transformers"),
        "commit": record.commit(),
        "seed": 0,
        "runs": [],
    }
    for dtype in args.dtypes.split(","):
        judge = AgentRRM.from_pretrained(args.model, dtype=dtype)
        found["judge"] = judge.describe()
        for threads in map(int, args.threads.split(",")):
            torch.set_num_threads(threads)
            # without matrix units bfloat16 is emulated: the longest would take an hour to say so
            lengths = LENGTHS if dtype == "float32" else LENGTHS[:1]
            run = {"dtype": dtype, "threads": threads, "lengths": by_length(judge, lengths)}
            if dtype == "float32":
                run["beside_score"] = beside_score(judge)
            found["runs"].append(run)
            print(json.dumps(run), flush=True)
    record.write(args.out, found)


if __name__ == "__main__":
    main()
