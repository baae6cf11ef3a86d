"""Prepare MINT for `rrm train`: outcome rows, critique rows and annotations, all as canonical JSONL.

    python -m benchmarks.train_mint -o runs/mint-data
    rrm train --config smollm2 data.trajectories='[runs/mint-data/trajectories.jsonl]' \\
        data.annotations='[runs/mint-data/annotations.jsonl]' data.split=benchmarks/splits/mint.json

Outcome rows of every part are written; rows with a critic only for training questions (they train critiques, and those
with a proposal also train the score) and, apart, for the test questions (`critic_test.jsonl`, step localisation).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from benchmarks import mint
from rrm.annotators import given
from rrm.trajectory import write_jsonl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/mint-data"))
    parser.add_argument("--data", type=Path, default=mint.DATA)
    parser.add_argument("--max-words", type=int, default=18, help="longest finding, in words")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    split = mint.load_split()
    train, test = set(split["train"]), set(split["test"])
    outcome = list(mint.rows(args.data, critic=False))
    critic = list(mint.rows(args.data, critic=True, proposals_only=False))
    critic_train = [t for t in critic if t.question_id in train]
    critic_test = [t for t in critic if t.question_id in test]
    counts: Counter[str] = Counter()
    annotations = list(given.annotate(critic_train, max_words=args.max_words, with_trace=True, counts=counts))
    write_jsonl(args.output / "trajectories.jsonl", outcome + critic_train)
    write_jsonl(args.output / "critic_test.jsonl", critic_test)
    with open(args.output / "annotations.jsonl", "w", encoding="ascii") as out:
        out.writelines(json.dumps(a.model_dump(exclude_none=True)) + "\n" for a in annotations)
    print(
        json.dumps(
            {"outcome": len(outcome), "critic_train": len(critic_train), "critic_test": len(critic_test), **counts}
        )
    )


if __name__ == "__main__":
    main()
