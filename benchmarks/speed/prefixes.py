"""What reading a shared prompt once saves: an update with `optim.share_prefixes` against the same update without.

    python -m benchmarks.speed.prefixes --out benchmarks/results/prefix_speed.json

As `benchmarks.speed.update` makes one up: groups of episodes of random ids with one prompt each, every weight trained or (`--lora`) an adapter, forward, backward,
clipping and a step of AdamW. Both ways have the same budget of tokens a micro-batch. Each runs in a process of its own, in turn; medians count, and the ratio
of CPU seconds stands beside that of wall seconds, because it holds on a machine that does other work too. That the first update has the same gradient norm
is checked. `--prompt-tokens` takes several: the longer the prompt beside what attempts add, the more there is to save.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.arms import Arms, Taken
from benchmarks.speed.update import SAME_NORM, counts, load, made_up_episodes, trainer_of

WAYS = ("whole", "shared")


def arm(args: argparse.Namespace, share: bool) -> dict[str, Callable[[], Any]]:
    """An update one way; what it says is (loss, gradient norm)."""
    model, tokenizer = load(args)
    if args.lora:
        import torch
        from peft import get_peft_model

        from reagent.train.config import load_agent_config
        from rrm.engines.hf.base_model import lora_config

        lora = load_agent_config("smollm2").policy.lora
        assert lora is not None
        torch.manual_seed(args.seed)  # both ways begin with one adapter
        model = get_peft_model(model, lora_config(lora, model))
    episodes = made_up_episodes(args, len(tokenizer))
    lengths, _ = counts(episodes)
    trainer = trainer_of(args, model, tokenizer, microbatch_tokens=args.microbatch_tokens, share_prefixes=share)

    def update() -> tuple[float, float]:
        metrics = trainer.learn(episodes)
        return metrics["loss"], metrics["grad_norm"]

    return {WAYS[share]: update, f"{WAYS[share]} tokens": lambda: sum(lengths)}


def whole(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Rows as they come."""
    return arm(args, False)


def shared(args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Rows that begin alike read as one."""
    return arm(args, True)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both ways in turn, for prompts of one length."""
    makers = {whole: ("whole", "whole tokens"), shared: ("shared", "shared tokens")}
    taken: dict[str, list[Taken]] = {way: [] for way in WAYS}
    with Arms(args, makers, memory=True) as both:
        tokens = both.ask("whole tokens").result
        norms = {way: both.ask(way).result[1] for way in WAYS}
        if abs(norms["shared"] / norms["whole"] - 1) > SAME_NORM[args.dtype]:
            raise SystemExit(f"the two ways do not compute the same update: first gradient norms {norms}")
        for repeat, way in itertools.product(range(args.repeats), WAYS):
            taken[way].append(both.ask(way))
            print(f"prompt {args.prompt_tokens} {repeat} {way:7} {taken[way][-1].wall:8.3f} s", file=sys.stderr)
    middle = {
        what: {way: statistics.median(getattr(one, what) for one in taken[way]) for way in WAYS}
        for what in ("wall", "cpu", "peak_mb")
    }
    return {
        "prompt_tokens": args.prompt_tokens,
        "tokens_a_row": tokens // args.rows,
        "whole_over_shared": {
            what: round(of["whole"] / of["shared"], 3) for what, of in middle.items() if what != "peak_mb"
        },
        "seconds": {way: [round(one.wall, 3) for one in found] for way, found in taken.items()},
        "cpu_seconds": {way: [round(one.cpu, 3) for one in found] for way, found in taken.items()},
        "peak_mb": {way: round(value) for way, value in middle["peak_mb"].items()},
        "first_grad_norm": norms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="`lab`, `smollm2`, a model directory or a hub id")
    parser.add_argument("--lora", action=argparse.BooleanOptionalAction, default=True, help="train an adapter")
    parser.add_argument("--rows", type=int, default=16, help="episodes")
    parser.add_argument("--group", type=int, default=8, help="episodes a prompt")
    parser.add_argument("--microbatch-tokens", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--turn-tokens", type=int, default=24, help="sampled tokens a turn")
    parser.add_argument("--observation-tokens", type=int, default=24, help="tokens between two turns")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[36, 108, 324])
    parser.add_argument("--ragged", action="store_true", help="rows of 1, 2, … --turns turns instead of all alike")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32", choices=["bfloat16", "float32"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the JSON object here")
    args = parser.parse_args()
    if args.rows % args.group:
        parser.error(f"--rows {args.rows} must be a multiple of --group {args.group}")
    runs = [measure(argparse.Namespace(**{**vars(args), "prompt_tokens": n})) for n in args.prompt_tokens]
    found = {"runs": runs, **record.timed_with("speed.prefixes", args, "torch", "transformers", "peft")}
    if args.out:
        record.write(args.out, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
