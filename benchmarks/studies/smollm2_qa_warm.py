"""One supervised warm start of `smollm2_qa`, in a process of its own:

python -m benchmarks.studies.smollm2_qa_warm --work runs/smollm2_qa --method tool_call
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.studies.smollm2 import DTYPES, held_in, on_device
from benchmarks.studies.smollm2_qa_data import tasks_in
from benchmarks.studies.smollm2_qa_demos import METHODS, demonstrations, drawn
from benchmarks.studies.warm import warm_start
from reagent.train.config import load_agent_config
from rrm.engines.hf.host_memory import keep_freed_memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where `smollm2_qa_data.prepare` wrote")
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--shown", type=int, help="demonstrations; all that there are")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    on_device(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    corpus = str(args.work / "corpus")
    everything = list(demonstrations(drawn(tasks_in(args.work, "warm"), None, args.seed), args.method, corpus))
    if args.shown is not None and not 0 < args.shown <= len(everything):
        parser.error(f"--shown {args.shown}: there are {len(everything)} demonstrations")
    shown = everything[: args.shown]
    policy = load_agent_config("smollm2", held_in(args.dtype)).policy
    folder = args.work / "warm" / args.method
    card = warm_start(shown, policy, folder, epochs=args.epochs, batch=args.batch, seed=args.seed, device=args.device)
    print(json.dumps(card))


if __name__ == "__main__":
    main()
