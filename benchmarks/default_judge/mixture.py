"""The default judge's training mixture: every source, one split, written as `rrm train` reads it.

    python -m benchmarks.default_judge.mixture -o runs/default_judge/data
    rrm train --config default

Writes transcripts.jsonl (train, calibration and test questions), unseen.jsonl (sources held out whole, for evaluation),
annotations.jsonl and summary.json. A source gives at most its cap of training rows (`CAPS`), drawn so that rows whose
(question, steps) group has both classes come first, for `sft.balance` keeps few others; and at most `CALIBRATION_CAP`
calibration rows, drawn as they come. Test rows are all there. Rows of held-out agents are written for test questions only.
`--write-split` makes benchmarks/splits/default_judge.json anew.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.default_judge import sources
from benchmarks.default_judge.sources import Example
from benchmarks.default_judge.split import SPLIT, make_split, mint_split
from rrm.data import splits
from rrm.data.output import write_lines
from rrm.data.splits import HELD_OUT
from rrm.data.trajectory import write_jsonl

PARTS = ("train", "calibration", "test", "unseen")
CAP = 1200
"""Training rows a source gives at most."""
CAPS = {"mint_critic/math": 600, "mint_critic/hotpotqa": 600, "mint_critic/gsm8k": 600, "mint_critic/theoremqa": 600}
"""Where another cap holds: MINT with a critic is one source in four files."""
CALIBRATION_CAP = 250
"""Calibration rows of one source: a map of two numbers needs no more, and no source should draw it alone."""
COLUMNS = ("rows", "questions", "agents", "outcomes", "positive", "steps", "good_steps", "critiques", "tokens")


def load_split(path: Path = SPLIT) -> dict[str, list[str]]:
    """The committed split, with its fourth part."""
    return splits.load_split(path, PARTS)


def by_part(rows: Sequence[Example], split: Mapping[str, Sequence[str]]) -> dict[str, list[Example]]:
    """Rows by part; held-out agents' rows are left out of train and calibration.

    Raises:
        ValueError: a question that the split does not know.
    """
    where = {q: part for part in PARTS for q in split[part]}
    held_out = set(split[HELD_OUT])
    found: dict[str, list[Example]] = {part: [] for part in PARTS}
    for row in rows:
        question = row.trajectory.question_id or ""
        if question not in where:
            raise ValueError(
                f"{row.trajectory.id}: question {question!r} is in no part: make the split anew (--write-split)"
            )
        part = where[question]
        if part in ("test", "unseen") or row.trajectory.meta.get("agent") not in held_out:
            found[part].append(row)
    return found


def label_of(row: Example) -> bool | None:
    """What rows are drawn evenly by: the outcome, else whether half of the labelled steps are good; None without labels."""
    if row.trajectory.outcome is not None:
        return row.trajectory.outcome >= 0.5
    steps = row.steps()
    return 2 * sum(steps.values()) >= len(steps) if steps else None


def drawn(rows: Sequence[Example], cap: int, rng: random.Random) -> list[Example]:
    """At most `cap` rows, in their order: first those with a partner of the other class in their (question, steps) group."""
    if len(rows) <= cap:
        return list(rows)
    groups: dict[tuple[str, int], dict[bool | None, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, row in enumerate(rows):
        groups[row.trajectory.question_id or "", len(row.trajectory.steps)][label_of(row)].append(i)
    ranks: dict[int, tuple[int, float]] = {}
    for classes in groups.values():
        partners = min(len(classes[True]), len(classes[False]))
        for members in classes.values():
            rng.shuffle(members)
            ranks |= {i: (int(rank >= partners), rng.random()) for rank, i in enumerate(members)}
    return [rows[i] for i in sorted(sorted(ranks, key=ranks.__getitem__)[:cap])]


def token_counter(base: str) -> Callable[[Example], int]:
    """Tokens of task and messages as a base model's tokenizer cuts them, before any budget."""
    from transformers import AutoTokenizer

    from rrm.data.text import transcript_text
    from rrm.engines.hf.base_model import base_path

    tokenizer = AutoTokenizer.from_pretrained(base_path(base))
    return lambda row: len(tokenizer.encode(transcript_text(row.trajectory), add_special_tokens=False))


def summarise(rows: Sequence[Example], tokens: Callable[[Example], int] | None) -> dict[str, Any]:
    """The columns of the table for some rows; shares are None without anything to share."""
    outcomes = [row.trajectory.outcome for row in rows if row.trajectory.outcome is not None]
    steps = [good for row in rows for good in row.steps().values()]
    return {
        "rows": len(rows),
        "questions": len({row.trajectory.question_id for row in rows}),
        "agents": len({str(row.trajectory.meta.get("agent")) for row in rows}),
        "outcomes": len(outcomes),
        "positive": round(sum(outcomes) / len(outcomes), 3) if outcomes else None,
        "steps": len(steps),
        "good_steps": round(sum(steps) / len(steps), 3) if steps else None,
        "critiques": sum(bool(row.annotation and row.annotation.critique) for row in rows),
        "tokens": sum(map(tokens, rows)) if tokens else None,
    }


def build(
    rows: Sequence[Example],
    split: Mapping[str, Sequence[str]],
    *,
    cap: int = CAP,
    caps: Mapping[str, int] = CAPS,
    seed: int,
) -> dict[str, list[Example]]:
    """Rows by part, the training and the calibration part capped by source."""
    parts = by_part(rows, split)
    chosen: dict[str, list[Example]] = {"train": [], "calibration": []}
    for part in chosen:
        pools: dict[str, list[Example]] = defaultdict(list)
        for row in parts[part]:
            pools[row.source].append(row)
        for source, pool in pools.items():
            rng = random.Random(f"{seed}:{part}:{source}")
            if part == "train":
                chosen[part] += drawn(pool, min(cap, caps.get(source, cap)), rng)
            else:
                chosen[part] += rng.sample(pool, min(len(pool), CALIBRATION_CAP))
    return parts | chosen


def write(output: Path, parts: Mapping[str, Sequence[Example]]) -> None:
    """transcripts.jsonl, unseen.jsonl and annotations.jsonl; each row's `meta["part"]` says where it belongs."""
    output.mkdir(parents=True, exist_ok=True)
    labelled = {
        part: [row.trajectory.model_copy(update={"meta": {**row.trajectory.meta, "part": part}}) for row in rows]
        for part, rows in parts.items()
    }
    write_jsonl(output / "transcripts.jsonl", [t for part in PARTS[:3] for t in labelled[part]])
    write_jsonl(output / "unseen.jsonl", labelled["unseen"])
    annotations = [row.annotation.to_json() for part in PARTS for row in parts[part] if row.annotation]
    write_lines(output / "annotations.jsonl", annotations)


def table(parts: Mapping[str, Sequence[Example]], tokens: Callable[[Example], int] | None) -> dict[str, Any]:
    """source → part → columns; and `all` over the sources."""
    found: dict[str, Any] = {}
    for name in sorted({row.source for rows in parts.values() for row in rows}):
        found[name] = {
            part: summarise(mine, tokens) for part in PARTS if (mine := [r for r in parts[part] if r.source == name])
        }
    found["all"] = {}
    for part in PARTS:
        total = summarise(parts[part], None)
        if tokens:
            total["tokens"] = sum(entry[part]["tokens"] for entry in found.values() if part in entry)
        found["all"][part] = total
    return found


def lines(found: Mapping[str, Any]) -> list[str]:
    """The table as text, one line a source and part; `share` is of the part's rows."""
    rows = [f"{'source':22s} {'part':11s} {'share':>6s} " + " ".join(f"{c:>10s}" for c in COLUMNS)]
    for source, parts in found.items():
        for part, columns in parts.items():
            cells = " ".join(f"{'–' if columns[c] is None else columns[c]:>10}" for c in COLUMNS)
            share = columns["rows"] / max(found["all"][part]["rows"], 1)
            rows.append(f"{source:22s} {part:11s} {share:6.3f} {cells}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/default_judge/data"))
    parser.add_argument("--data", type=Path, default=sources.DATA)
    parser.add_argument("--split", type=Path, default=SPLIT)
    parser.add_argument("--write-split", action="store_true", help="make the split anew and write it to --split")
    parser.add_argument("--cap", type=int, default=CAP, help="training rows of one source, at most")
    parser.add_argument("--tokens-of", default="smollm2", help="base model whose tokens are counted; none: not counted")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = sources.load(args.data)
    if args.write_split:
        made = make_split(rows, seed=args.seed, mint_split=mint_split())
        args.split.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    parts = build(rows, load_split(args.split), cap=args.cap, seed=args.seed)
    write(args.output, parts)
    found = table(parts, None if args.tokens_of == "none" else token_counter(args.tokens_of))
    command = record.command("default_judge.mixture")
    caps = {"train": args.cap, "calibration": CALIBRATION_CAP, **CAPS}
    record.write(args.output / "summary.json", {"sources": found, "caps": caps, "command": command})
    for line in lines(found):
        print(line)
    print(json.dumps({"output": str(args.output), **{part: len(chosen) for part, chosen in parts.items()}}))


if __name__ == "__main__":
    main()
