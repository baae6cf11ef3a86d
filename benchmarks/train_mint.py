"""Prepare MINT for `rrm train`: outcome rows, critique rows and annotations, all as canonical JSONL.

    python -m benchmarks.train_mint --split benchmarks/splits/mint_fold0.json -o runs/mint0/data
    rrm train --config smollm2 data.trajectories='[runs/mint0/data/trajectories.jsonl]' \\
        data.annotations='[runs/mint0/data/annotations.jsonl]' data.target=annotation data.split=benchmarks/splits/mint_fold0.json

Outcome rows of every part are written, with smoothed score labels for the training questions (`--labels outcome` leaves
their outcomes as they are). Of the rows with a critic, a sample of the training questions' in which good and bad steps
are about as frequent is written for critiques (three in four steps are bad: a judge trained on all of them says little
else), and, apart, all of the test questions' (`critic_test.jsonl`, step localisation).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path

from benchmarks import mint, smoothed
from rrm.data.annotation import Annotation
from rrm.data.trajectory import write_jsonl
from rrm.train import given_labels as given


def balanced_critiques(annotations: list[Annotation], limit: int, rng: random.Random) -> list[Annotation]:
    """Up to `limit` annotations, drawn so that good and bad findings stay even: whichever is behind is drawn next."""
    pools: dict[bool, list[Annotation]] = {True: [], False: []}
    for a in rng.sample(annotations, len(annotations)):
        good = sum(f.verdict == "good" for f in a.findings or [])
        if a.findings:
            pools[2 * good >= len(a.findings)].append(a)
    chosen: list[Annotation] = []
    lead = 0
    while len(chosen) < limit and pools[lead < 0]:
        a = pools[lead < 0].pop()
        lead += sum(1 if f.verdict == "good" else -1 for f in a.findings or [])
        chosen.append(a)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/mint-data"))
    parser.add_argument("--data", type=Path, default=mint.DATA)
    parser.add_argument("--split", type=Path, default=mint.SPLIT)
    parser.add_argument("--labels", choices=("smoothed", "outcome"), default="smoothed")
    parser.add_argument("--critiques", type=int, default=360, help="critique rows to write")
    parser.add_argument("--max-words", type=int, default=18, help="longest finding, in words")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    split = mint.load_split(args.split)
    train, test, held_out = set(split["train"]), set(split["test"]), set(split.get("held_out_agents", []))
    outcome = list(mint.rows(args.data, critic=False))
    critic = list(mint.rows(args.data, critic=True, proposals_only=False))
    critic_train = {t.id: t for t in critic if t.question_id in train and t.meta["agent"] not in held_out}
    critic_test = [t for t in critic if t.question_id in test]
    counts: Counter[str] = Counter()
    found = list(given.annotate(critic_train.values(), max_words=args.max_words, with_trace=True, counts=counts))
    annotations = balanced_critiques(found, args.critiques, random.Random(args.seed))
    counts["critiques_chosen"] = len(annotations)
    for a in annotations:
        counts.update(f"steps_{f.verdict}" for f in a.findings or [])
    if args.labels == "smoothed":
        seen = [t for t in outcome if t.meta["agent"] not in held_out]
        rates = smoothed.annotate([*seen, *(critic_train[a.trajectory_id] for a in annotations)], train)
        scores = {a.trajectory_id: a for a in rates}
        annotations = [a.model_copy(update={"score": scores.pop(a.trajectory_id).score}) for a in annotations]
        annotations += scores.values()
    chosen = [critic_train[a.trajectory_id] for a in annotations if a.trajectory_id in critic_train]
    write_jsonl(args.output / "trajectories.jsonl", outcome + chosen)
    write_jsonl(args.output / "critic_test.jsonl", critic_test)
    with open(args.output / "annotations.jsonl", "w", encoding="ascii") as out:
        out.writelines(json.dumps(a.model_dump(exclude_none=True)) + "\n" for a in annotations)
    print(json.dumps({"outcome": len(outcome), "critic_train": len(chosen), "critic_test": len(critic_test), **counts}))


if __name__ == "__main__":
    main()
