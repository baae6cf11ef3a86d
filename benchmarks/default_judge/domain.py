"""Measure which transcripts a judge of the mixture marks as outside what it was measured on, and give one its `domain.json`.

    python -m benchmarks.default_judge.domain --data runs/default_judge/data                     # measures
    python -m benchmarks.default_judge.domain --data runs/default_judge/data --judge DIRECTORY   # and writes DIRECTORY/domain.json

Fitted on training transcripts, its threshold on calibration questions (`rrm.judge.domain`). Writes
benchmarks/results/default_judge_domain.json: the share marked of each source's test questions (`home`), of the sources that were
held out whole (`unseen`), and of each group of sources when it is left out of both training and calibration (`left_out`).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from rrm.data.trajectory import read_canonical
from rrm.judge.domain import OutOfDomainDetector, features, fit_counts, grouped

SHARE = 0.05
FILES = ("transcripts.jsonl", "unseen.jsonl")
Rows = dict[str, dict[str, list[Counter[str]]]]
"""Part → source → the features of its transcripts."""


def family(source: str) -> str:
    """The group of sources that is left out together."""
    return "mint" if source.startswith("mint") else source.partition("/")[0]


def read(folder: Path, most: int, seed: int) -> Rows:
    """At most `most` transcripts of each part and source, at random; of training all (`fit` draws)."""
    places: dict[tuple[str, str], list[Any]] = {}
    for name in FILES:
        for t in read_canonical(folder / name):
            places.setdefault((t.meta["part"], t.meta["source"]), []).append(features(t))
    rows: Rows = {}
    for (part, source), found in sorted(places.items()):
        many = len(found) if part == "train" else most or len(found)
        kept = random.Random(f"{seed}/{part}/{source}").sample(found, min(many, len(found)))
        rows.setdefault(part, {})[source] = kept
    return rows


def fit(rows: Rows, without: str | None = None, seed: int = 0) -> OutOfDomainDetector:
    """The domain of all sources but a family's, grouped as `rrm train` groups them."""
    train = {source: found for source, found in rows["train"].items() if family(source) != without}
    calibration = [x for source, found in rows["calibration"].items() if family(source) != without for x in found]
    return fit_counts(grouped(train, seed), calibration, share=SHARE)


def marked(domain: OutOfDomainDetector, rows: Sequence[Counter[str]]) -> dict[str, float]:
    """Share of rows that are outside."""
    return {"share": sum(domain.told_of(x)[0] for x in rows) / len(rows), "rows": len(rows)}


def measured(rows: Rows, domain: OutOfDomainDetector, seed: int = 0) -> dict[str, Any]:
    """The shares marked: at home, of unseen sources, and leaving each family out."""
    test = rows["test"]
    left_out = {}
    for name in sorted({family(source) for source in rows["train"]}):
        theirs = [x for source, found in test.items() if family(source) == name for x in found]
        left_out[name] = marked(fit(rows, name, seed), theirs)
    return {
        "home": marked(domain, [x for found in test.values() for x in found]),
        "home_by_source": {source: marked(domain, found) for source, found in test.items()},
        "unseen": {source: marked(domain, found) for source, found in rows["unseen"].items()},
        "left_out": left_out,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("runs/default_judge/data"), help="what the mixture wrote")
    parser.add_argument("--judge", type=Path, help="a judge's directory, which gets a domain.json")
    parser.add_argument("--most", type=int, default=0, help="rows of a source and part; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=record.RESULTS / "default_judge_domain.json")
    args = parser.parse_args()
    if args.judge is not None and not (args.judge / "judge.json").is_file():
        parser.error(f"{args.judge} is no judge's directory: it has no judge.json")
    rows = read(args.data, args.most, args.seed)
    domain = fit(rows, seed=args.seed)
    if args.judge is not None:
        domain.save(args.judge)
    facts = {"features": len(domain.idf), "bytes": len(domain.to_json().encode("utf-8")), "threshold": domain.threshold,
             "rows": domain.rows, "calibration_rows": domain.calibration_rows, "share": SHARE}  # fmt: skip
    found = {"domain": facts, **measured(rows, domain, args.seed), "most": args.most, "seed": args.seed}
    record.write(
        args.output,
        {
            **found,
            "command": record.command("default_judge.domain"),
            "commit": record.commit(),
            **record.made_with("numpy"),
        },
    )
    print(json.dumps({"output": str(args.output), "home": found["home"], "unseen": found["unseen"]}))


if __name__ == "__main__":
    main()
