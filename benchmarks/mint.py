"""MINT transcripts by the protocol: rows, labels and the committed split.

A row is cut at its first `<solution>…</solution>` (the environment's verdict comes after it), and y = the run succeeded
with exactly one proposal. Outcome rows are those without a critic; rows with a critic carry GPT-4's critique after each
turn and serve as training rows for critiques. Splits are by question.

    python -m benchmarks.mint --write-split benchmarks/splits/mint.json --write-folds benchmarks/splits
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rrm.data import splits
from rrm.data.splits import grouped_folds
from rrm.data.trajectory import Source, Trajectory

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts" / "mint"
SPLIT = Path(__file__).resolve().parent / "splits" / "mint.json"
FILES = ("hotpotqa", "gsm8k", "math", "theoremqa")


def cut_at_solution(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The messages up to and including the first proposal, or None where none was made."""
    for i, message in enumerate(messages):
        text = message.get("content") or ""
        start = text.find("<solution>") if message["role"] == "assistant" else -1
        if start >= 0:
            stop = text.find("</solution>", start)
            kept = text if stop < 0 else text[: stop + len("</solution>")]
            return [*messages[:i], {**message, "content": kept}]
    return None


def _trajectory(row: dict[str, Any], messages: list[dict[str, Any]], y: bool, path: Path, line: int) -> Trajectory:
    kept = {k: row[k] for k in ("agent", "critic", "reference", "finish", "critiques")}
    return Trajectory(
        id=row["id"],
        task=row["messages"][0]["content"],
        question_id=row["question_id"],
        messages=messages,  # pyright: ignore[reportArgumentType]
        outcome=float(y),
        meta={**kept, "dataset": row["task"]},
        source=Source(file=path.name, line=line, format="mint"),
    )


def rows(data: Path = DATA, *, critic: bool, proposals_only: bool = True) -> Iterator[Trajectory]:
    """Protocol rows with or without a critic, in file order.

    Args:
        critic: rows in which the agent read a critique after each turn, instead of those without.
        proposals_only: leave out rows in which nothing was proposed (y is trivially 0).
    """
    for name in FILES:
        path = data / f"{name}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                if bool(row["critic"]) != critic:
                    continue
                messages = cut_at_solution(row["messages"])
                if messages is None and proposals_only:
                    continue
                y = bool(row["outcome"]) and row["actions"]["propose_solution"] == 1
                yield _trajectory(row, messages or row["messages"], y, path, number)


def make_split(trajectories: Iterable[Trajectory], *, seed: int, held_out_agents: int = 6) -> dict[str, Any]:
    """40 % of each dataset's questions for test, 8 % for calibration, the rest for training; and agents never trained on.

    Agents are drawn one from each stratum of their success rate, so that weak and strong ones are held out alike.
    """
    rng = random.Random(seed)
    questions: dict[str, set[str]] = defaultdict(set)
    wins: dict[str, list[float]] = defaultdict(list)
    for t in trajectories:
        questions[t.meta["dataset"]].add(t.question_id or "")
        wins[t.meta["agent"]].append(t.outcome or 0.0)
    parts: dict[str, list[str]] = {"train": [], "calibration": [], "test": []}
    for dataset in sorted(questions):
        order = sorted(questions[dataset])
        rng.shuffle(order)
        n_test, n_cal = round(0.4 * len(order)), max(round(0.08 * len(order)), 2)
        parts["test"] += order[:n_test]
        parts["calibration"] += order[n_test : n_test + n_cal]
        parts["train"] += order[n_test + n_cal :]
    ranked = sorted(wins, key=lambda a: (sum(wins[a]) / len(wins[a]), a))
    size = len(ranked) / held_out_agents
    agents = [rng.choice(ranked[int(i * size) : int((i + 1) * size)]) for i in range(held_out_agents)]
    return {"seed": seed, **{k: sorted(v) for k, v in parts.items()}, "held_out_agents": sorted(agents)}


def make_folds(
    trajectories: Sequence[Trajectory], *, seed: int, k: int = 5, n_calibration: int = 8
) -> list[dict[str, Any]]:
    """The baselines' grouped folds as splits: fold i is the test part of split i; calibration questions are drawn from
    the rest, as many of each dataset as its share."""
    questions = [t.question_id or "" for t in trajectories]
    fold_of = dict(zip(questions, grouped_folds(questions, k, seed).tolist(), strict=True))
    dataset = {t.question_id or "": t.meta["dataset"] for t in trajectories}
    splits = []
    for fold in range(k):
        rng = random.Random(seed * k + fold)
        rest = sorted((q for q in fold_of if fold_of[q] != fold), key=lambda q: (dataset[q], q))
        size = len(rest) / n_calibration
        calibration = [rng.choice(rest[int(i * size) : int((i + 1) * size)]) for i in range(n_calibration)]
        splits.append(
            {
                "seed": seed,
                "fold": fold,
                "train": sorted(set(rest) - set(calibration)),
                "calibration": sorted(calibration),
                "test": sorted(q for q in fold_of if fold_of[q] == fold),
            }
        )
    return splits


def load_split(path: Path = SPLIT) -> dict[str, list[str]]:
    """The committed split."""
    return splits.load_split(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-split", type=Path, required=True, help="file of the single split")
    parser.add_argument("--write-folds", type=Path, help="folder for mint_fold0.json … mint_fold4.json")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    protocol = list(rows(args.data, critic=False))
    split = make_split(protocol, seed=args.seed)
    args.write_split.parent.mkdir(parents=True, exist_ok=True)
    args.write_split.write_text(json.dumps(split, indent=1) + "\n")
    if args.write_folds:
        for fold, part in enumerate(make_folds(protocol, seed=args.seed)):
            (args.write_folds / f"mint_fold{fold}.json").write_text(json.dumps(part, indent=1) + "\n")
    where = {q: part for part in ("train", "calibration", "test") for q in split[part]}
    counts = Counter((where[t.question_id or ""], t.outcome) for t in protocol)
    print(json.dumps({"rows": len(protocol), "counts": {f"{p}/{y:.0f}": n for (p, y), n in sorted(counts.items())}}))


if __name__ == "__main__":
    main()
