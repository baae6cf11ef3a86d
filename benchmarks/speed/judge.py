"""How fast a local judge is: `full` and `score` mode against plain loops over the same transcripts.

    python -m benchmarks.speed.judge --model DIR_OR_HUB_ID [--rows 16] [--repeats 3] [--dtype bfloat16]

Four arms over the same MINT transcripts, run in turn (A B C D, A B C D, …) on the same number of threads; the medians of
transcripts/s count. Rendering and tokenising are inside every arm.

- `full`, `score`: `AgentRRM.judge`.
- `plain_full`: `model.generate` over left-padded batches in input order, stopping at eos, reply parsed.
- `plain_score`: a padded forward in input order over each prompt followed by `0.`, whose logits give p(first digit),
  p(point) and p(last digit), and a short one for `1.0`: the same expectation, in the fewest plain calls.

The plain loops run in a process of their own, on a model exactly as transformers loads it: the judge's process keeps
freed memory (`rrm.engines.hf.host_memory`), which is part of its speed and must not help them. Only one process works at a
time. Wall time decides; CPU seconds stand beside it, because they hold on a machine that does other work too. The last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.mint import DATA, rows
from benchmarks.speed.arms import Arms
from rrm.data.feedback import Mode
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.prompter import GRID, Prompter

BARS = {"score_over_full": 10.0, "full_over_plain": 1.5, "score_over_plain": 1.5}


def transcripts(data: Path, count: int, seed: int) -> list[Trajectory]:
    """`count` protocol rows drawn at random, in file order."""
    everything = list(rows(data, critic=False))
    chosen = sorted(random.Random(seed).sample(range(len(everything)), count))
    return [everything[i] for i in chosen]


def padded(batch: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """Left-padded ids and attention mask (B, T)."""
    import torch

    width = max(map(len, batch))
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in batch])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch])
    return ids, mask


def batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Consecutive slices."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def plain_full(
    model: Any, prompter: Prompter, trajectories: Sequence[Trajectory], size: int, max_new: int
) -> list[list[int]]:
    """Generated ids of each transcript's full judgement."""
    import torch

    replies: list[list[int]] = []
    with torch.inference_mode():
        for batch in batches(trajectories, size):
            ids, mask = padded([prompter.prompt(t, "full").ids for t in batch], prompter.eos_token_id)
            output = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=max_new,
                eos_token_id=prompter.eos_token_id,
                pad_token_id=prompter.eos_token_id,
            )
            replies += output[:, ids.shape[1] :].tolist()
    return replies


def plain_score(model: Any, prompter: Prompter, trajectories: Sequence[Trajectory], size: int) -> list[float]:
    """Expected score of each transcript."""
    import torch

    values = [prompter.encode(f"{v:.1f}") for v in GRID]
    if any(len(value) != 3 for value in values):
        raise SystemExit("plain_score needs a tokenizer that writes 0.7 as three tokens")
    (zero, point, _), (one, _, _) = values[0], values[10]
    digits, grid, scores = [value[2] for value in values[:10]], torch.tensor(GRID), []
    with torch.inference_mode():
        for batch in batches(trajectories, size):
            ids, mask = padded([[*prompter.prompt(t, "score").ids, zero, point] for t in batch], prompter.eos_token_id)
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            output = model(input_ids=ids, attention_mask=mask, position_ids=positions)
            first, second, third = output.logits[:, -3:].float().softmax(-1).unbind(1)
            output.past_key_values.crop(-2)
            again = model(
                input_ids=torch.tensor([[one, point]] * len(batch)),
                attention_mask=mask,
                position_ids=positions[:, -2:],
                past_key_values=output.past_key_values,
            )
            after_one, after_point = again.logits.float().softmax(-1).unbind(1)
            below = first[:, zero, None] * second[:, point, None] * third[:, digits]
            top = first[:, one] * after_one[:, point] * after_point[:, zero]
            weights = torch.cat([below, top[:, None]], dim=1)
            scores += ((weights @ grid) / weights.sum(1)).tolist()
    return scores


def load(args: argparse.Namespace) -> AgentRRM:
    """The judge, on this process's threads."""
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    judge = AgentRRM.from_pretrained(args.model, device="cpu", dtype=args.dtype, max_transcript_tokens=args.budget)
    if args.max_new_tokens:
        judge.settings.max_new_tokens = args.max_new_tokens
    return judge


def judge_arms(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """`full` and `score` by the judge."""
    judge, picked = load(args), transcripts(args.data, args.rows, args.seed)

    def plainly(mode: Mode) -> list[tuple[str, float | None, int]]:
        return [(f.status, f.raw_score, len(f.trace or "")) for f in judge.judge(picked, mode=mode)]

    return {"full": lambda: plainly("full"), "score": lambda: plainly("score")}


def plain_arms(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """The loops a user of transformers would write, without the judge's engine and its memory settings."""
    from rrm.engines.hf import host_memory

    host_memory.keep_freed_memory = lambda: False
    judge, picked = load(args), transcripts(args.data, args.rows, args.seed)
    model, prompter = judge.engine.model, judge.prompter  # pyright: ignore[reportAttributeAccessIssue]
    most = judge.settings.max_new_tokens
    assert prompter is not None
    return {
        "plain_full": lambda: plain_full(model, prompter, picked, args.batch, most),
        "plain_score": lambda: plain_score(model, prompter, picked, args.batch),
        "prompt_lengths": lambda: [len(prompter.prompt(t, "full").ids) for t in picked],
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the arms in turn, each in its process, and compare them."""
    seconds: dict[str, list[float]] = {name: [] for name in ("full", "score", "plain_full", "plain_score")}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in seconds}
    results: dict[str, Any] = {}
    makers = {judge_arms: ("full", "score"), plain_arms: ("plain_full", "plain_score", "prompt_lengths")}
    with Arms(args, makers) as arms:
        lengths = arms.ask("prompt_lengths").result
        for repeat, name in itertools.product(range(args.repeats), seconds):
            taken = arms.ask(name)
            seconds[name].append(taken.wall)
            cpu_seconds[name].append(taken.cpu)
            results[name] = taken.result
            print(f"{repeat} {name:12} {args.rows / taken.wall:8.3f} transcripts/s", file=sys.stderr)
    raw = [raw for _, raw, _ in results["score"]]
    differences = [abs((a or 0.0) - b) for a, b in zip(raw, results["plain_score"], strict=True)]
    ratios = compare(seconds)
    return {
        "transcripts_per_s": {name: round(args.rows / statistics.median(v), 4) for name, v in seconds.items()},
        "ratios": ratios,
        "cpu_ratios": compare(cpu_seconds),
        "bars": BARS,
        "met": {name: ratios[name] >= bar for name, bar in BARS.items()},
        "seconds": {name: [round(v, 3) for v in values] for name, values in seconds.items()},
        "cpu_seconds": {name: [round(v, 3) for v in values] for name, values in cpu_seconds.items()},
        "max_score_difference_to_plain": max(differences),
        "prompt_tokens_full": {"min": min(lengths), "median": statistics.median(lengths), "max": max(lengths)},
        "reply_tokens_plain": statistics.mean(map(len, results["plain_full"])),
        "statuses_full": Counter(status for status, _, _ in results["full"]),
    }


def compare(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Ratios of speed from the medians of the arms' times."""
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "score_over_full": round(middle["full"] / middle["score"], 3),
        "full_over_plain": round(middle["plain_full"] / middle["full"], 3),
        "score_over_plain": round(middle["plain_score"] / middle["score"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="judge directory, model directory or hub id; default: the shipped judge")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="rows of a plain batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--budget", type=int, default=None, help="transcript tokens; default: the judge's own")
    parser.add_argument("--max-new-tokens", type=int, default=None, help="default: the judge's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the JSON object here")
    args = parser.parse_args()
    found = measure(args)
    found |= record.timed_with("speed.judge", args, "torch", "transformers")
    found["options"]["model"] = Path(args.model).name if args.model else "default"
    if args.out:
        record.write(args.out, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
