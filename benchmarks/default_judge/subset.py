"""A small, even part of the mixture's training rows: what two cores without matrix units can learn from in an hour.

    python -m benchmarks.default_judge.subset --data runs/default_judge/data -o runs/default_judge/small

Writes transcripts.jsonl, annotations.jsonl and split.json; beside them some calibration rows of each source. Of each source `ROWS` rows are drawn; where outcomes are learned, in
pairs of a success and a failure at the same question with the same number of steps, one pair a question at a time, so that
inside a pair neither question nor length tells the label. Transcripts longer than `--characters` are left out: the judge
learns windows from those that are a little longer than one.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

from rrm.data.annotation import read_annotations
from rrm.data.output import write_lines
from rrm.data.trajectory import Trajectory, read_canonical, write_jsonl

ROWS = {
    "mint/gsm8k": 240, "mint/math": 190, "mint/theoremqa": 140, "mint/hotpotqa": 60,
    "mint_more/mbpp": 150, "mint_more/humaneval": 180, "mint_more/mmlu": 230, "mint_more/alfworld": 60,
    "mint_critic/gsm8k": 16, "mint_critic/math": 16, "mint_critic/theoremqa": 16, "mint_critic/hotpotqa": 16,
    "intercode/sql": 90, "intercode/bash": 50, "intercode/python": 12,
    "fireact": 40, "agentdojo": 6, "reflexion": 6, "knowagent": 4,
}  # fmt: skip
"""MINT's tasks, which alone have many attempts at a question, with nearly every pair there is; of what teaches steps less: it is
learned from a few hundred rows."""
LONG = ("agentdojo", "knowagent")
"""Sources of which hardly a run fits into one window: these may be `LONGER` times as long."""
LONGER = 3
PAIRS_OF_A_QUESTION = 20


def characters(trajectory: Trajectory) -> int:
    """Length of what was said and seen."""
    return sum(len(m.text()) for m in trajectory.messages)


def in_pairs(rows: list[Trajectory], most: int, rng: random.Random) -> list[Trajectory]:
    """Up to `most` rows: pairs of one question and number of steps, then others at random."""
    groups: dict[tuple[str, int], tuple[list[Trajectory], list[Trajectory]]] = defaultdict(lambda: ([], []))
    for t in rows:
        if t.outcome is not None:
            groups[t.question_id or t.id, len(t.steps)][t.outcome >= 0.5].append(t)
    pairs = [sides for sides in groups.values() if all(sides)]
    rng.shuffle(pairs)
    chosen: list[Trajectory] = []
    for _ in range(PAIRS_OF_A_QUESTION):
        for sides in pairs:
            if len(chosen) + 2 <= most and all(sides):
                chosen += [side.pop(rng.randrange(len(side))) for side in sides]
    taken = {t.id for t in chosen}
    rest = [t for t in rows if t.id not in taken]
    return chosen + rng.sample(rest, min(len(rest), most - len(chosen)))


def subset(rows: list[Trajectory], longest: int, seed: int, share: float = 1.0) -> list[Trajectory]:
    """The training rows of each source that are drawn."""
    chosen: list[Trajectory] = []
    for source, whole in ROWS.items():
        most = 2 * round(whole * share / 2)
        limit = longest * (LONGER if source in LONG else 1)
        own = [t for t in rows if t.meta["source"] == source and t.meta["part"] == "train" and characters(t) <= limit]
        labelled = sum(t.outcome is not None for t in own) * 2 > len(own)
        rng = random.Random(f"{seed}/{source}")
        chosen += in_pairs(own, most, rng) if labelled else rng.sample(own, min(len(own), most))
    return chosen


def calibration(rows: list[Trajectory], most: int, seed: int) -> list[Trajectory]:
    """At most `most` calibration rows of each source that the training rows are of, at random."""
    chosen: list[Trajectory] = []
    for source in ROWS:
        own = [t for t in rows if t.meta["source"] == source and t.meta["part"] == "calibration"]
        chosen += random.Random(f"{seed}/calibration/{source}").sample(own, min(len(own), most))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("runs/default_judge/data"))
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/default_judge/small"))
    parser.add_argument("--characters", type=int, default=2500)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows of each source")
    parser.add_argument("--calibration", type=int, default=14, help="calibration rows of each source")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = list(read_canonical(args.data / "transcripts.jsonl"))
    parts = {
        "train": subset(rows, args.characters, args.seed, args.share),
        "calibration": calibration(rows, args.calibration, args.seed),
    }
    chosen = [t for part in parts.values() for t in part]
    ids = {t.id for t in chosen}
    labels = [a for a in read_annotations(args.data / "annotations.jsonl") if a.trajectory_id in ids]
    args.output.mkdir(parents=True, exist_ok=True)
    write_jsonl(args.output / "transcripts.jsonl", chosen)
    write_lines(args.output / "annotations.jsonl", (a.to_json() for a in labels))
    questions = {part: sorted({t.question_id for t in rows if t.question_id}) for part, rows in parts.items()}
    (args.output / "split.json").write_text(json.dumps({**questions, "test": []}) + "\n")
    found = {part: {"rows": len(rows), "questions": len(questions[part])} for part, rows in parts.items()}
    print(json.dumps({**found, "annotations": len(labels)}))


if __name__ == "__main__":
    main()
