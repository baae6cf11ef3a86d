"""How fast a local judge is: `full` and `score` mode against plain loops over the same transcripts.

    python -m benchmarks.speed.judge --model DIR_OR_HUB_ID [--rows 16] [--repeats 3] [--dtype bfloat16]

Four arms over the same MINT transcripts, run in turn (A B C D, A B C D, …) on the same number of threads; the medians of
transcripts/s count. Rendering and tokenising are inside every arm.

`full` and `score` are `AgentRRM.judge`; `plain_full` is `model.generate` over left-padded batches in input order, stopping at eos; `plain_score` a
padded forward over each prompt followed by `0.`, whose logits give p(first digit), p(point) and p(last digit), and a short one for `1.0`: the same
expectation, in the fewest plain calls. The plain loops are a second command, on a model exactly as transformers loads it: the judge's process keeps
freed memory (`rrm.engines.hf.host_memory`), which is part of its speed and must not help them. Wall time decides.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.mint import DATA, rows
from benchmarks.speed.harness import Second, Timings, answer, finish, in_turn, made, medians, seconds, timed
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.prompter import GRID, Prompter


def transcripts(data: Path, count: int, seed: int) -> list[Trajectory]:
    """`count` protocol rows drawn at random, in file order."""
    everything = list(rows(data, critic=False))
    return [everything[i] for i in sorted(random.Random(seed).sample(range(len(everything)), count))]


def padded(batch: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """Left-padded ids and attention mask (B, T)."""
    import torch

    width = max(map(len, batch))
    ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in batch])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch])
    return ids, mask


def batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def plain_full(
    model: Any, prompter: Prompter, trajectories: Sequence[Trajectory], size: int, max_new: int
) -> list[list[int]]:
    """Generated ids of each transcript's full judgement."""
    import torch

    replies: list[list[int]] = []
    eos = prompter.eos_token_id
    with torch.inference_mode():
        for batch in batches(trajectories, size):
            ids, mask = padded([prompter.prompt(t, "full").ids for t in batch], eos)
            ends = {"max_new_tokens": max_new, "eos_token_id": eos, "pad_token_id": eos}
            output = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, **ends)
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
            output = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True)
            first, second, third = output.logits[:, -3:].float().softmax(-1).unbind(1)
            output.past_key_values.crop(-2)
            given = {"attention_mask": mask, "past_key_values": output.past_key_values}
            ids = torch.tensor([[one, point]] * len(batch))
            again = model(input_ids=ids, position_ids=positions[:, -2:], **given)
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
    return AgentRRM.from_pretrained(args.model, device="cpu", dtype=args.dtype)


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
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the arms in turn, the plain ones by the second command, and compare them."""
    plain = Second("benchmarks.speed.judge", *sys.argv[1:], "--plain")
    judge, picked = load(args), transcripts(args.data, args.rows, args.seed)
    arms = {mode: lambda mode=mode: timed(lambda: judge.judge(picked, mode=mode)) for mode in ("full", "score")}
    arms |= {name: partial(plain.ask, name) for name in ("plain_full", "plain_score")}
    timings = in_turn(arms, args.repeats)
    last = {name: of[-1].result for name, of in timings.items()}
    pairs = zip(last["score"], last["plain_score"], strict=True)
    return {
        "transcripts_per_s": {name: round(args.rows / value, 4) for name, value in medians(timings).items()},
        "ratios": compare(timings),
        "cpu_ratios": compare(timings, "cpu"),
        "seconds": seconds(timings),
        "cpu_seconds": seconds(timings, "cpu"),
        "max_score_difference_to_plain": max(abs((feedback.raw_score or 0.0) - score) for feedback, score in pairs),
        "statuses_full": Counter(feedback.status for feedback in last["full"]),
    }


def compare(timings: Timings, of: str = "wall") -> dict[str, float]:
    """Ratios of speed from the medians of the arms' times."""
    middle = medians(timings, of)
    pairs = {"score_over_full": ("full", "score")}
    pairs |= {f"{mode}_over_plain": (f"plain_{mode}", mode) for mode in ("full", "score")}
    return {name: round(middle[slow] / middle[fast], 3) for name, (slow, fast) in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="judge directory, model directory or hub id; default: the shipped judge")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16, help="rows of a plain batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="benchmarks/results/judge_speed.json")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plain:
        return answer(plain_arms(args))
    finish(measure(args) | made("judge", args, "torch", "transformers"), args.out)


if __name__ == "__main__":
    main()
